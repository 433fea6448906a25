"""The adapters of transformers and sentence-transformers where neither is installed, as in CI: the same interface."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from encoder_data import QUICK, SMALL, settings, texts, write_pictures, write_reviews
from stand_ins import LIMIT, Model, mean_of_tokens
from tiny_encoders import some_images

import labelloop as package
from labelloop.encoders import library_encoders
from labelloop.encoders.encode import encode_rows
from labelloop.encoders.encoder import raw_inputs
from labelloop.encoders.inputs import open_encoder
from labelloop.encoders.library_encoders import why_unreachable as really_unreachable
from labelloop.encoders.network import prepare_rows, pretrained
from labelloop.errors import UsageError
from labelloop.runs.result_files import read_preview
from labelloop.types import RawInputs

pytestmark = pytest.mark.slow

LIBRARIES = ("transformers", "sentence-transformers")
SHORT = ("--no-report",)


@pytest.mark.parametrize("library", LIBRARIES)
def test_texts_become_what_the_library_makes_of_them(stand_in_libraries, library):
    rows = [*texts(40), "", "a " * 50_001]
    name = f"{library}:{stand_in_libraries}"
    with pytest.warns(UserWarning, match="texts are") as caught:
        found = encode_rows(raw_inputs(rows), open_encoder(name, "text"), "reviews.csv")
    said = "\n".join(str(warning.message) for warning in caught)
    assert "1 texts are empty and all have the same features: row 40" in said
    assert f"1 texts are longer than the {LIMIT} tokens" in said
    expected = torch.stack([mean_of_tokens(Model(), row) for row in rows]).detach().numpy()
    np.testing.assert_allclose(found.features, expected, atol=1e-6)
    assert found.preprocessing["tokens"] == LIMIT
    network = pretrained(name, "text").eval()
    inputs, _ = prepare_rows(raw_inputs(rows), open_encoder(name, "text"))
    with torch.no_grad():
        np.testing.assert_allclose(network(torch.from_numpy(inputs)).numpy(), expected, atol=1e-6)


def test_images_become_what_the_library_makes_of_them(stand_in_libraries, tmp_path):
    paths = some_images(tmp_path / "images", 5)
    from PIL import Image

    Image.new("RGB", (1, 1), (250, 10, 90)).save(tmp_path / "images" / "pixel.png")
    paths.append(tmp_path / "images" / "pixel.png")
    encoder = open_encoder(f"transformers:{stand_in_libraries}", "image")
    found = encode_rows(RawInputs("image", paths), encoder)
    colours = [np.asarray(Image.open(path), np.float32).reshape(-1, 3).mean(axis=0) / 255 for path in paths]
    expected = Model().colours(torch.from_numpy(np.array(colours))).detach().numpy()
    np.testing.assert_allclose(found.features, expected, atol=1e-5)
    assert dict(found.preprocessing) == {"size": {"height": 1, "width": 1}, "pooling": "of the network"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_text_file_to_a_corrected_file_and_back(labelloop, stand_in_libraries, library, tmp_path):
    reviews, name = write_reviews(tmp_path / "reviews.csv"), f"{library}:{stand_in_libraries}"
    flags = ("--text", "review", "--encoder", name)
    done = labelloop("fit", reviews, *flags, "--output-dir", tmp_path / "run", *settings(SMALL), *SHORT)
    assert done.code == 0, done.err
    assert "0 rows from the cache, 60 new" in done.out
    expected = pq.read_table(tmp_path / "run" / "labels.parquet")["predicted_label"].to_pylist()
    assert package.load_model(tmp_path / "run").predict(texts(60)).tolist() == expected
    assert read_preview(tmp_path / "run").by_row()[3] == texts(60)[3]  # for the report and the review
    trained = ("--train-encoder", "--output-dir", tmp_path / "trained", *settings(QUICK), *SHORT)
    assert labelloop("fit", reviews, *flags, *trained).code == 0
    expected = pq.read_table(tmp_path / "trained" / "labels.parquet")["predicted_label"].to_pylist()
    assert package.load_model(tmp_path / "trained").predict(texts(60)).tolist() == expected
    saved = json.loads((tmp_path / "trained" / "trained_encoder" / "weights.json").read_text())
    assert saved != json.loads((stand_in_libraries / "weights.json").read_text())


def test_an_image_folder_says_its_encoder_and_a_full_cache_needs_none(labelloop, stand_in_libraries, tmp_path):
    photos = tmp_path / "photos"
    flags = ("--clean-file", write_pictures(photos), "--encoder", f"transformers:{stand_in_libraries}")
    done = labelloop("fit", photos, *flags, "--output-dir", tmp_path / "run", *settings(SMALL), *SHORT)
    assert done.code == 0, done.err
    assert f"inputs: images, through the encoder transformers:{stand_in_libraries}" in done.out
    assert (read_preview(tmp_path / "run").kind, len(read_preview(tmp_path / "run").by_row())) == ("image", 48)
    before = json.loads((tmp_path / "run" / "model.json").read_text())["encoder_form"]
    del sys.modules["transformers"].AutoModel  # whoever loads a model now fails
    again = labelloop("fit", photos, *flags, "--output-dir", tmp_path / "again", *settings(SMALL), *SHORT)
    assert again.code == 0, again.err
    assert "48 rows from the cache, 0 new" in again.out
    assert json.loads((tmp_path / "again" / "model.json").read_text())["encoder_form"] == before
    assert labelloop("embed", photos, *flags[2:], "--output", tmp_path / "f.npz").code == 0
    model, paths = package.load_model(tmp_path / "run"), sorted(photos.rglob("*.png"))[:3]
    assert model.predict(list(map(str, paths))).tolist() == model.predict(paths).tolist()


def test_without_a_network_the_hub_is_asked_once(stand_in_libraries, monkeypatch):
    asked: list[str] = []
    hub, constants = types.ModuleType("huggingface_hub"), types.ModuleType("huggingface_hub.constants")
    constants.ENDPOINT, constants.HF_HUB_OFFLINE = "https://hub.test", False

    def head(address: str, timeout: float) -> None:
        asked.append(address)
        raise OSError("Name or service not known")

    hub.constants, hub.utils = constants, types.ModuleType("huggingface_hub.utils")
    hub.utils.get_session = lambda: types.SimpleNamespace(head=head)
    for module in (hub, constants, hub.utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(library_encoders, "why_unreachable", really_unreachable)
    seen: list[bool] = []

    def load(place: str, device: str) -> None:
        seen.append(constants.HF_HUB_OFFLINE)
        raise OSError("not downloaded")

    monkeypatch.setattr(sys.modules["sentence_transformers"], "SentenceTransformer", load)
    with pytest.raises(UsageError) as caught:
        open_encoder("sentence-transformers:no-such-model", "text").load()
    assert "no network connection to look for it: https://hub.test: Name or service not known" in str(caught.value)
    assert (asked, seen, constants.HF_HUB_OFFLINE) == (["https://hub.test"], [True], False)
    with pytest.raises(UsageError, match=r"there is no folder \./nothing"):
        open_encoder("sentence-transformers:./nothing", "text").load()
    assert len(asked) == 1  # no network is needed to miss a folder


def test_texts_need_no_encoder(tmp_path):
    config = {"epochs": 3, "rounds": 0}
    given, clean = ["bad", "good"] * 20, [*["bad", "good"] * 10, *[""] * 20]
    found = package.fit(texts(40), given, clean, config=config)
    assert (found.corrected_labels[:20] == clean[:20]).all()
    alone = package.LabelLoopClassifier(config=config, random_state=0).fit(np.array(texts(40)), given, clean)
    assert set(alone.predict(texts(4))) <= {"bad", "good"}
    with_words = package.LabelLoopClassifier(encoder="words", config=config, random_state=0)
    assert with_words.fit(texts(40), given, clean).predict(texts(4)).shape == (4,)


def test_correct_says_once_what_an_encoder_would_do(labelloop, tmp_path):
    reviews = write_reviews(tmp_path / "reviews.csv", 60, 40)
    done = labelloop("correct", reviews, "--text", "review", "--output", tmp_path / "labels.csv")
    assert done.code == 0, done.err
    assert done.out.count("hint: ") == done.out.count("--text review --encoder") == 1


def test_folders_are_told_from_names(monkeypatch, stand_in_libraries):
    def never() -> str:
        raise AssertionError("a folder needs no network")

    monkeypatch.setattr(library_encoders, "why_unreachable", never)
    assert open_encoder(f"transformers:{stand_in_libraries}", "text").load().module is not None
    assert Path(stand_in_libraries, "config.json").exists()
