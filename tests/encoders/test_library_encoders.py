"""Encoders of libraries: features are what the library itself gives, and what is wrong is said."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_encoders import some_images

from labelloop.encoders.encode import encode_rows
from labelloop.encoders.encoder import raw_inputs
from labelloop.encoders.inputs import open_encoder
from labelloop.encoders.network import prepare_rows, pretrained
from labelloop.errors import DataError, UsageError
from labelloop.types import RawInputs

TEXTS = ["good box", "the bad box it broke", "love " * 9, "unheard words", "solid", "good box", "milk and honey"]


def test_texts_of_transformers_are_the_mean_over_tokens(text_folder):
    encoder = open_encoder(f"transformers:{text_folder}", "text")
    found = encode_rows(raw_inputs(TEXTS), encoder).features
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(text_folder), AutoTokenizer.from_pretrained(text_folder)
    for row, text in enumerate(TEXTS):  # one by one: nothing is filled up, so there is nothing to mask
        with torch.no_grad():
            hidden = model(**tokenizer([text], return_tensors="pt")).last_hidden_state
        np.testing.assert_allclose(found[row], hidden.mean(dim=1)[0].numpy(), atol=1e-5)


def test_texts_of_sentence_transformers_are_what_it_encodes(sentence_folder):
    encoder = open_encoder(f"sentence-transformers:{sentence_folder}", "text")
    found = encode_rows(raw_inputs(TEXTS), encoder).features
    from sentence_transformers import SentenceTransformer

    own = SentenceTransformer(str(sentence_folder), device="cpu").encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(found, own, atol=1e-5)


def test_images_of_transformers_are_what_its_model_pools(image_folder, tmp_path):
    paths = some_images(tmp_path / "images", 6)
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModel

    Image.new("RGB", (1, 1), (250, 10, 90)).save(tmp_path / "images" / "pixel.png")
    Image.new("L", (3, 1), 200).save(tmp_path / "images" / "grey.png")
    paths += [tmp_path / "images" / "pixel.png", tmp_path / "images" / "grey.png"]
    found = encode_rows(RawInputs("image", paths), open_encoder(f"transformers:{image_folder}", "image"))
    assert not found.unreadable
    model, processor = AutoModel.from_pretrained(image_folder), AutoImageProcessor.from_pretrained(image_folder)
    images = [Image.open(path).convert("RGB") for path in paths]
    with torch.no_grad():
        for row, image in enumerate(images):
            pixels = processor(image, return_tensors="pt", input_data_format="channels_last")["pixel_values"]
            np.testing.assert_allclose(found.features[row], model(pixels).pooler_output[0].numpy(), atol=1e-5)
    flat = (np.array([250, 10, 90]) / 255 - 0.5) / 0.5  # a single pixel becomes a plain image of its colour
    prepared = prepare_rows(RawInputs("image", [images[6]]), open_encoder(f"transformers:{image_folder}", "image"))[0]
    np.testing.assert_allclose(prepared[0], np.broadcast_to(flat[:, None, None], (3, 16, 16)), atol=1e-5)


def test_a_pooling_layer_that_was_not_saved_is_not_used(image_folder, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(image_folder, tmp_path / "headless")
    weights = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in weights.items() if "pooler" not in k}, folder / "model.safetensors", {"format": "pt"})
    paths = some_images(tmp_path / "images", 3)
    twice = [
        encode_rows(
            RawInputs("image", paths), open_encoder(f"transformers:{folder}", "image"), cache=tmp_path / str(i)
        ).features
        for i in range(2)
    ]
    np.testing.assert_array_equal(*twice)  # a random layer would differ
    save_file(
        {k: v for k, v in weights.items() if "attention" not in k}, folder / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(UsageError, match=r"of its weights are missing, such as .*attention"):
        open_encoder(f"transformers:{folder}", "image").load()


@pytest.mark.parametrize("library", ["transformers", "sentence-transformers"])
def test_empty_and_endless_texts_are_encoded_with_a_warning(library, text_folder, sentence_folder):
    folder = text_folder if library == "transformers" else sentence_folder
    encoder = open_encoder(f"{library}:{folder}", "text")
    endless = "good box " * 11112
    assert len(endless) > 100_000
    rows = ["good", "", endless, "   "]
    with pytest.warns(UserWarning, match="texts are") as caught:
        found = encode_rows(raw_inputs(rows), encoder, "reviews.csv")
    said = [str(warning.message) for warning in caught]
    assert any("reviews.csv: 2 texts are empty and all have the same features: row 1, 3" in text for text in said)
    assert any("1 texts are longer than the 32 tokens" in text and "row 2" in text for text in said)
    assert np.isfinite(found.features).all()
    np.testing.assert_allclose(found.features[1], found.features[3], atol=1e-6)


@pytest.mark.parametrize("kind", ["text", "sentence", "image"])
def test_the_network_to_train_says_what_the_frozen_encoder_says(
    kind, text_folder, sentence_folder, image_folder, tmp_path
):
    if kind == "image":
        name, raw = f"transformers:{image_folder}", RawInputs("image", some_images(tmp_path, 5))
    else:
        name = f"transformers:{text_folder}" if kind == "text" else f"sentence-transformers:{sentence_folder}"
        raw = raw_inputs(TEXTS)
    encoder = open_encoder(name, raw.kind)
    inputs, unreadable = prepare_rows(raw, encoder)
    assert not unreadable
    network = pretrained(name, raw.kind).eval()
    assert all(weight.requires_grad for weight in network.parameters())
    with torch.no_grad():
        found = network(torch.stack([torch.as_tensor(inputs[i]) for i in range(len(raw))]))
    np.testing.assert_allclose(found.numpy(), encode_rows(raw, encoder).features, atol=1e-5)


def test_random_views_are_fixed_by_seed_epoch_and_row(image_folder, tmp_path):
    raw = RawInputs("image", some_images(tmp_path, 4))
    images, _ = prepare_rows(raw, open_encoder(f"transformers:{image_folder}", "image"))
    view = images.augmented(1, 2)
    np.testing.assert_array_equal(view[3], images.augmented(1, 2)[3])
    assert not np.array_equal(view[3], images[3])
    assert not np.array_equal(view[3], images.augmented(1, 3)[3])
    assert images[-1].shape == (3, 16, 16)
    with pytest.raises(IndexError):
        images[4]


def test_unreadable_images_are_named_before_training(image_folder, tmp_path):
    paths = some_images(tmp_path, 4)
    paths[1].write_bytes(b"nothing")
    images, unreadable = prepare_rows(RawInputs("image", paths), open_encoder(f"transformers:{image_folder}", "image"))
    assert [(row, name) for row, name, _ in unreadable] == [(1, str(paths[1]))]
    with pytest.raises(DataError, match="cannot be decoded"):
        images[1]


def test_tokens_have_one_length_and_longer_texts_are_cut(text_folder):
    encoder = open_encoder(f"transformers:{text_folder}", "text")
    rows, _ = prepare_rows(raw_inputs(["good", "the bad box"]), encoder)
    assert rows.tolist() == [[2, 4, 3, -1, -1], [2, 12, 5, 14, 3]]
    assert prepare_rows(raw_inputs(["good " * 50]), encoder)[0].shape == (1, 32)
    assert prepare_rows(raw_inputs(["the bad box", "it"]), encoder, (3,))[0].tolist() == [[2, 12, 5], [2, 13, 3]]


def test_another_file_in_the_folder_makes_another_version(text_folder, tmp_path):
    import shutil

    name = f"transformers:{text_folder}"
    copied = shutil.copytree(text_folder, tmp_path / "elsewhere")
    version = open_encoder(name, "text").version
    assert open_encoder(f"transformers:{copied}", "text").version == version  # the place does not matter
    (copied / "README.md").write_text("prose")
    assert open_encoder(f"transformers:{copied}", "text").version == version
    config = (copied / "config.json").read_text()
    (copied / "config.json").write_text(config.replace("12", "11", 1) + " ")
    assert open_encoder(f"transformers:{copied}", "text").version != version


def test_a_full_cache_needs_no_library(text_folder):
    """The second run starts at once: the library is not even imported."""
    import subprocess

    name = f"transformers:{text_folder}"
    encode_rows(raw_inputs(TEXTS), open_encoder(name, "text"))
    code = (
        "import sys; from labelloop.encoders.encoder import raw_inputs\n"
        "from labelloop.encoders.encode import encode_rows\n"
        "from labelloop.encoders.inputs import open_encoder\n"
        f"found = encode_rows(raw_inputs({TEXTS!r}), open_encoder({name!r}, 'text'))\n"
        "print(found.from_cache, 'transformers' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(TEXTS)), "False", "False"]


@pytest.mark.parametrize(
    ("library", "kind"), [("sentence-transformers", "text"), ("transformers", "image"), ("timm", "image")]
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(library, kind, monkeypatch):
    monkeypatch.setattr("labelloop.encoders.library_encoders.find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        open_encoder(f"{library}:anything", kind)
    assert f"needs {library}: install it with pip install 'labelloop[{library}]'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("sentence-transformers:x", "image", "is for texts; for images, use transformers:NAME or timm:NAME"),
        ("timm:x", "text", "is for images; for texts, use sentence-transformers:NAME"),
        ("words", "image", "counts the words of texts"),
        ("transformers:x", "sound", "cannot encode 'sound'"),
    ],
)
def test_an_encoder_of_the_other_kind_is_refused(name, kind, words):
    with pytest.raises(UsageError) as caught:
        open_encoder(name, kind)
    assert words in str(caught.value)


@pytest.mark.parametrize("library", ["transformers", "sentence-transformers"])
@pytest.mark.parametrize("place", ["no-such-model-of-mine", "./no/such/folder"])
def test_a_name_that_does_not_exist_is_said_to(library, place, monkeypatch):
    pytest.importorskip(library.replace("-", "_"), reason=f"pip install {library} to test its encoders")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # no waiting for a network
    with pytest.raises(UsageError) as caught:
        open_encoder(f"{library}:{place}", "text").load()
    assert f"encoder '{library}:{place}': there is no folder" in str(caught.value)


def test_a_folder_without_a_model_is_said_to_have_none(tmp_path, text_folder):
    with pytest.raises(UsageError, match="has no model that transformers can load"):
        open_encoder(f"transformers:{tmp_path}", "text").load()
    with pytest.raises(UsageError, match="so it cannot read images"):
        open_encoder(f"transformers:{text_folder}", "image").load()


def test_words_need_nothing_and_tell_texts_apart():
    found = encode_rows(raw_inputs(["good box", "bad box", "good box"]), open_encoder("words", "text")).features
    assert found.shape == (3, 512)
    assert (found[0] == found[2]).all()
    assert (found[0] != found[1]).any()


def stand_in(weight: float) -> types.ModuleType:
    """A module with the three functions of timm that are used."""
    made = types.ModuleType("timm")
    made.__spec__ = types.SimpleNamespace(name="timm")
    made.created = []

    def create_model(name: str, pretrained: bool, num_classes: int) -> torch.nn.Module:
        if name == "nothing":
            raise RuntimeError("Unknown model (nothing)")
        made.created.append((name, pretrained, num_classes))
        model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 4))
        torch.nn.init.constant_(model[2].weight, weight)
        torch.nn.init.zeros_(model[2].bias)
        return model

    def create_transform(input_size: tuple, mean: tuple, is_training: bool) -> object:
        assert not is_training

        def transform(image: object) -> torch.Tensor:
            pixels = np.asarray(image.resize(input_size[1:]), np.float32) / 255 - np.float32(mean)
            return torch.from_numpy(pixels.transpose(2, 0, 1).copy())

        return transform

    made.create_model = create_model
    made.data = types.SimpleNamespace(
        resolve_model_data_config=lambda model: {"input_size": (3, 8, 8), "mean": (0.5, 0.5, 0.5)},
        create_transform=create_transform,
    )
    return made


def test_timm_is_called_as_it_wants_to_be(tmp_path, monkeypatch):
    library = stand_in(1.0)
    monkeypatch.setitem(sys.modules, "timm", library)
    paths = some_images(tmp_path, 3)
    encoder = open_encoder("timm:tiny", "image")
    found = encode_rows(RawInputs("image", paths), encoder)
    assert library.created == [("tiny", True, 0)]
    from PIL import Image

    pixels = [np.asarray(Image.open(path).resize((8, 8)), np.float64) / 255 - 0.5 for path in paths]
    expected = [[image.mean(axis=(0, 1)).sum()] * 4 for image in pixels]
    np.testing.assert_allclose(found.features, expected, atol=1e-5)
    assert encoder.load().preprocessing == {"input_size": [3, 8, 8], "mean": [0.5, 0.5, 0.5]}
    assert encode_rows(RawInputs("image", paths), open_encoder("timm:tiny", "image")).from_cache == 3
    open_encoder(f"timm:{tmp_path}", "image")
    assert library.created[-1][0] == f"local-dir:{tmp_path}"
    network = pretrained("timm:tiny", "image", with_weights=False)
    assert library.created[-1] == ("tiny", False, 0)
    inputs, _ = prepare_rows(RawInputs("image", paths), encoder)
    np.testing.assert_allclose(network(torch.as_tensor(inputs[0])[None]).detach().numpy()[0], expected[0], atol=1e-5)
    monkeypatch.setitem(sys.modules, "timm", stand_in(2.0))  # other weights of the same name
    assert open_encoder("timm:tiny", "image").version != encoder.version
    with pytest.raises(UsageError, match=r"timm found no model of that name.*Unknown model"):
        open_encoder("timm:nothing", "image")


def test_a_torch_module_of_ones_own_can_be_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    Path("own_network.py").write_text(
        "import torch, numpy as np\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        torch.manual_seed(0)\n"
        "        self.line = torch.nn.Linear(2, 3)\n"
        "    def preprocess(self, texts):\n"
        "        return np.array([[len(t), t.count('a')] for t in texts], np.float32)\n"
        "    def forward(self, x):\n"
        "        return self.line(x)\n"
        "def function():\n"
        "    return lambda texts: [[1.0] for _ in texts]\n"
    )
    raw, encoder = raw_inputs(["aa", "b", "cac"]), open_encoder("own_network:Net", "text")
    inputs, _ = prepare_rows(raw, encoder)
    assert inputs.tolist() == [[2, 2], [1, 0], [3, 1]]
    network = pretrained("own_network:Net", "text")
    np.testing.assert_allclose(
        network(torch.from_numpy(inputs)).detach().numpy(), encode_rows(raw, encoder).features, atol=1e-6
    )
    for call in (
        lambda: pretrained("own_network:function", "text"),
        lambda: prepare_rows(raw, open_encoder("own_network:function", "text")),
    ):
        with pytest.raises(UsageError, match="cannot be fine-tuned"):
            call()
    sys.modules.pop("own_network")
