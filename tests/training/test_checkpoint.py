"""Checkpoints: everything comes back, damage is named, and a crash while writing leaves the last one readable."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_rows import make_model
from toys import same_state, state_of

from labelloop.config.base import TrainingConfig
from labelloop.errors import DataError
from labelloop.training import checkpoint as module
from labelloop.training.checkpoint import read_checkpoint, write_checkpoint
from labelloop.training.setup import new_optimizer


def trained(kind: str = "small-cnn", steps: int = 2, optimizer=torch.optim.SGD, **options):
    """A network and an optimiser that has a state."""
    model = make_model(kind)
    model = model.to(memory_format=torch.channels_last)
    options = options or {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}
    optimizer = optimizer(model.parameters(), **options)
    x = torch.randint(0, 256, (8, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for _ in range(steps):
        optimizer.zero_grad()
        model(x if kind == "small-cnn" else x.flatten(1)[:, :6] / 255).logits.square().mean().backward()
        optimizer.step()
    return model, optimizer


def past_rounds(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {"train": rng.random((5, 3)).astype(np.float32), "clean": rng.random((4, 3)).astype(np.float32)}
        for _ in range(count)
    ]


def write(folder: Path, epoch: int = 3, rounds: int = 2, steps: int = 2) -> None:
    model, optimizer = trained(steps=steps)
    arrays = {"targets": np.full((5, 3), epoch, np.float32)}
    write_checkpoint(folder, epoch, model, optimizer, arrays, past_rounds(rounds), {"rounds": [{"loss": epoch / 7}]})


def test_everything_comes_back_bit_for_bit(tmp_path):
    model, optimizer = trained()
    arrays = {"targets": np.random.default_rng(0).random((5, 3)).astype(np.float32)}
    values = {"rounds": [{"weights": [1 / 3, 2 / 3], "epoch": 40}], "other": None}
    write_checkpoint(tmp_path, 7, model, optimizer, arrays, past_rounds(12), values)
    found = read_checkpoint(tmp_path)
    assert found.epoch == 7
    assert same_state(found.model, state_of(model))
    assert found.values == values
    np.testing.assert_array_equal(found.arrays["targets"], arrays["targets"])
    assert len(found.past) == 12
    for stored, original in zip(found.past, past_rounds(12), strict=True):
        assert stored.keys() == original.keys()
        assert all(np.array_equal(stored[key], original[key]) for key in stored)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}),
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.AdamW, {"lr": 1e-3}),
    ],
)
def test_a_restored_optimiser_takes_the_same_steps(tmp_path, kind, options):
    model, optimizer = trained("mlp", 3, kind, **options)
    write_checkpoint(tmp_path, 1, model, optimizer, {}, [], {})
    found = read_checkpoint(tmp_path)
    again, fresh = trained("mlp", 0, kind, **options)
    again.load_state_dict(found.model)
    fresh.load_state_dict(found.optimizer)
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    for network, opt in ((model, optimizer), (again, fresh)):
        opt.zero_grad()
        network(x).logits.square().mean().backward()
        opt.step()
    assert same_state(model.state_dict(), again.state_dict())


def test_there_is_none_before_the_first(tmp_path):
    assert read_checkpoint(tmp_path) is None
    assert read_checkpoint(tmp_path / "nowhere") is None


def test_a_new_checkpoint_replaces_the_old_and_writes_earlier_rounds_only_once(tmp_path):
    write(tmp_path, epoch=3, rounds=2)
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("round-*")}
    assert len(times) == 2
    write(tmp_path, epoch=4, rounds=3)
    assert read_checkpoint(tmp_path).epoch == 4
    assert sorted(p.name for p in tmp_path.glob("epoch-*")) == ["epoch-0004.safetensors"]
    assert len(list(tmp_path.glob("round-*"))) == 3
    assert all((tmp_path / name).stat().st_mtime_ns == time for name, time in times.items())
    assert len(list(tmp_path.iterdir())) == 5, "nothing else is left lying about"


def test_there_is_no_pickle_in_it(tmp_path):
    write(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    json.loads((tmp_path / "state.json").read_text())


@pytest.mark.parametrize("name", ["epoch-0003.safetensors", "round-001.safetensors", "round-002.safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "one byte", "missing"])
def test_a_damaged_file_is_named(tmp_path, name, damage):
    write(tmp_path)
    path = tmp_path / name
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    else:
        content[-1] ^= 1
        path.write_bytes({"truncated": content[: len(content) // 2], "empty": b"", "one byte": content}[damage])
    with pytest.raises(DataError) as error:
        read_checkpoint(tmp_path)
    assert str(path) in str(error.value)
    word = {"truncated": "truncated", "empty": "truncated", "one byte": "checksum", "missing": "is missing"}[damage]
    assert word in str(error.value)


@pytest.mark.parametrize("content", [b"", b'{"epoch": 3, "fi', b"\xff\xfe\x00"])
def test_an_unreadable_state_is_named(tmp_path, content):
    write(tmp_path)
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(DataError, match=r"state\.json"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("content", ["{}", "[]", '{"epoch": 3}'])
def test_a_state_without_its_keys_is_named(tmp_path, content):
    write(tmp_path)
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(DataError, match=r"state\.json"):
        read_checkpoint(tmp_path)


class Crash(Exception):
    pass


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("half_way", [False, True], ids=["before the file", "in the middle of the file"])
def test_a_crash_while_writing_leaves_the_last_checkpoint_readable(tmp_path, monkeypatch, at, half_way):
    """Writing epoch 4 with two new rounds takes four files; the crash comes at each of them in turn."""
    write(tmp_path, epoch=3, rounds=1, steps=2)
    before = read_checkpoint(tmp_path)
    original, written = module.write_atomically, []

    def crashing(path, fill):
        if len(written) == at:
            if half_way:

                def fill_half(partial):
                    fill(partial)
                    partial.write_bytes(partial.read_bytes()[:10])
                    raise Crash

                original(path, fill_half)
            raise Crash
        written.append(path.name)
        original(path, fill)

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_atomically", crashing)
        with pytest.raises(Crash):
            write(tmp_path, epoch=4, rounds=3, steps=3)
    assert len(written) == at
    after = read_checkpoint(tmp_path)
    assert after.epoch == 3
    assert same_state(after.model, before.model)
    assert len(after.past) == 1
    write(tmp_path, epoch=4, rounds=3, steps=3)
    assert read_checkpoint(tmp_path).epoch == 4
    assert len(read_checkpoint(tmp_path).past) == 3


def test_the_old_files_go_only_after_the_new_state_stands(tmp_path, monkeypatch):
    write(tmp_path, epoch=3)

    def no_unlink(self, missing_ok=False):
        raise Crash

    with monkeypatch.context() as patch:
        original = Path.unlink
        patch.setattr(
            Path, "unlink", lambda self, **k: original(self, **k) if ".partial" in self.name else no_unlink(self)
        )
        with pytest.raises(Crash):
            write(tmp_path, epoch=4)
    assert read_checkpoint(tmp_path).epoch == 4


def test_a_learning_rate_of_the_encoders_own_comes_back(tmp_path):
    model = make_model()
    config = TrainingConfig(encoder_learning_rate_factor=0.1)
    optimizer = new_optimizer(model, config)
    model(torch.ones(4, 6)).logits.sum().backward()
    optimizer.step()
    write_checkpoint(tmp_path, 1, model, optimizer, {}, (), {})
    again = new_optimizer(make_model(), config)
    again.load_state_dict(read_checkpoint(tmp_path).optimizer)
    assert [group["factor"] for group in again.param_groups] == [0.1, 1.0]
