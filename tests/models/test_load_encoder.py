"""Weights from a file: what loads, what is left out, and what each error says."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from labelloop.errors import DataError
from labelloop.models import build_encoder, load_encoder, read_state_dict

WIDTHS = {"widths": [4, 6]}


def _encoder(seed: int, channels: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    encoder = build_encoder("small-cnn", (channels, 8, 8), WIDTHS)
    encoder(torch.rand(4, channels, 8, 8))  # moves the buffers away from their start
    return encoder.eval()


def _batch() -> torch.Tensor:
    return torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt", ".PTH"])
def test_saved_and_loaded_gives_equal_outputs(tmp_path, suffix):
    saved, other = _encoder(1), _encoder(2)
    path = tmp_path / f"weights{suffix}"
    save = save_file if suffix == ".safetensors" else torch.save
    save(saved.state_dict(), path)
    assert not torch.equal(saved(_batch()), other(_batch()))
    assert load_encoder(other, path) == ()
    assert torch.equal(saved(_batch()), other(_batch()))
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in saved.state_dict().items())


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_public_checkpoint_loads_without_its_last_layer(tmp_path, name):
    options = {"stem": "imagenet"}
    torch.manual_seed(1)
    saved = build_encoder(name, (3, 32, 32), options).eval()
    other = build_encoder(name, (3, 32, 32), options).eval()
    fc = {"fc.weight": torch.zeros(1000, saved.feature_dim), "fc.bias": torch.zeros(1000)}
    save_file({**saved.state_dict(), **fc}, tmp_path / "public.safetensors")
    assert set(load_encoder(other, str(tmp_path / "public.safetensors"))) == {"fc.weight", "fc.bias"}
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(saved(x), other(x))


def test_a_layer_fc_that_the_encoder_has_is_loaded(tmp_path):
    class WithFc(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

    saved, other = WithFc(), WithFc()
    torch.save(saved.state_dict(), tmp_path / "a.pth")
    assert load_encoder(other, tmp_path / "a.pth") == ()
    assert torch.equal(saved.fc.weight, other.fc.weight)


def test_old_checkpoints_without_batch_counters_load(tmp_path):
    saved, other = _encoder(1), _encoder(2)
    old = {key: value for key, value in saved.state_dict().items() if not key.endswith("num_batches_tracked")}
    assert len(old) == len(saved.state_dict()) - 2
    torch.save(old, tmp_path / "old.pth")
    load_encoder(other, tmp_path / "old.pth")
    assert torch.equal(saved(_batch()), other(_batch()))


@pytest.mark.parametrize("entry", ["state_dict", "model", None])
@pytest.mark.parametrize("prefix", ["module.", ""])
def test_the_wrappings_of_other_trainers_are_taken_off(tmp_path, entry, prefix):
    saved, other = _encoder(1), _encoder(2)
    state = {prefix + key: value for key, value in saved.state_dict().items()}
    state[prefix + "fc.bias"] = torch.zeros(3)
    torch.save({entry: state, "epoch": 3} if entry else state, tmp_path / "a.pt")
    assert load_encoder(other, tmp_path / "a.pt") == ("fc.bias",)
    assert torch.equal(saved(_batch()), other(_batch()))


def test_half_precision_weights_are_converted(tmp_path):
    saved, other = _encoder(1), _encoder(2)
    save_file({key: value.half() for key, value in saved.state_dict().items()}, tmp_path / "half.safetensors")
    load_encoder(other, tmp_path / "half.safetensors")
    assert {p.dtype for p in other.parameters()} == {torch.float32}
    torch.testing.assert_close(other(_batch()), saved(_batch()), atol=1e-2, rtol=1e-2)


def test_the_error_lists_every_kind_of_misfit_and_loads_nothing(tmp_path):
    encoder = _encoder(1)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    state = {key: value + 1 for key, value in before.items()}
    del state["blocks.1.bn.bias"]
    state["blocks.1.conv.weight"] = torch.zeros(6, 4, 5, 5)
    state["blocks.2.conv.weight"] = torch.zeros(1)
    save_file(state, tmp_path / "a.safetensors")
    with pytest.raises(DataError) as caught:
        load_encoder(encoder, tmp_path / "a.safetensors")
    message = str(caught.value)
    assert str(tmp_path / "a.safetensors") in message
    assert "does not fit SmallCNN" in message
    assert "1 missing: blocks.1.bn.bias;" in message
    assert "1 unexpected: blocks.2.conv.weight;" in message
    assert "1 of another shape: blocks.1.conv.weight [6, 4, 5, 5] where the encoder has [6, 4, 3, 3]." in message
    assert "Choose the network" in message
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())


def test_another_number_of_channels_shows_in_the_shapes(tmp_path):
    torch.save(_encoder(1, channels=3).state_dict(), tmp_path / "rgb.pth")
    with pytest.raises(DataError, match=r"blocks\.0\.conv\.weight \[4, 3, 3, 3\] where the encoder has \[4, 1, 3, 3\]"):
        load_encoder(_encoder(2, channels=1), tmp_path / "rgb.pth")


def test_a_long_list_of_keys_is_cut(tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "a.pth")
    encoder = build_encoder("resnet18", (3, 32, 32))
    with pytest.raises(DataError, match=r"100 missing: conv1\.weight, .* and 90 more; 1 unexpected: a\.") as caught:
        load_encoder(encoder, tmp_path / "a.pth")
    assert len(str(caught.value)) < 1000


def test_a_saved_module_is_refused_and_its_code_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "trapped",))

    torch.save({"a": Trap()}, tmp_path / "trap.pth")
    torch.save(_encoder(1), tmp_path / "module.pth")
    for name in ("trap.pth", "module.pth"):
        with pytest.raises(DataError, match=r"more than tensors.*save the state_dict\(\)"):
            read_state_dict(tmp_path / name)
    assert not (tmp_path / "trapped").exists()


BROKEN = {
    "empty": b"",
    "text": b"hello world, this is no checkpoint",
    "start of a zip": b"PK\x03\x04 and then nothing",
    "pickled bytes": pickle.dumps({"a": 1}, protocol=2),
}


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_something_else(tmp_path, suffix, kind):
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(BROKEN[kind])
    with pytest.raises(DataError, match=f"broken{suffix}: ") as caught:
        read_state_dict(path)
    expected = "cannot be read as .safetensors" if suffix == ".safetensors" else "torch file|read as .pth|no tensors"
    assert any(part in str(caught.value) for part in expected.split("|"))


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file(tmp_path, suffix, share):
    path = tmp_path / f"cut{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(_encoder(1).state_dict(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DataError, match=r"cannot be read as .*Is the file complete\?"):
        read_state_dict(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(1)], "holds no tensors by key"),
        ({}, "holds no tensors by key"),
        (torch.zeros(2), "holds no tensors by key"),
        ({"a": torch.zeros(1), "epoch": 3}, r"not tensors: 'epoch' \(int\)"),
    ],
)
def test_a_torch_file_without_a_state_dict(tmp_path, content, message):
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(DataError, match=message):
        read_state_dict(tmp_path / "a.pth")


def test_no_such_file_and_no_such_kind(tmp_path):
    with pytest.raises(DataError, match=r"absent\.pth: there is no such file"):
        read_state_dict(tmp_path / "absent.pth")
    with pytest.raises(DataError, match=r"weights\.onnx: .* must end in one of \.safetensors, \.pth, \.pt"):
        read_state_dict(tmp_path / "weights.onnx")
