"""Encoders from the command line and from Python: fit, predict, correct, embed, export, with tiny encoders."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from encoder_data import CLASSES, QUICK, SMALL, labels, settings, texts, write_pictures, write_reviews

import labelloop as package
from labelloop.errors import DataError, UsageError

pytestmark = pytest.mark.slow


def encoder_of(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())["source"]["encoder"]


def predictions(path: Path) -> list[str]:
    with path.open() as file:
        return [row["predicted_label"] for row in csv.DictReader(file)]


def test_a_text_file_to_a_corrected_file(labelloop, sentence_folder, tmp_path):
    reviews, run = write_reviews(tmp_path / "reviews.csv"), tmp_path / "run"
    name = f"sentence-transformers:{sentence_folder}"
    done = labelloop("fit", reviews, "--text", "review", "--encoder", name, "--output-dir", run, *settings(SMALL))
    assert done.code == 0, done.err
    assert (encoder_of(run)["from_cache"], encoder_of(run)["encoded"]) == (0, 60)
    assert "0 rows from the cache, 60 new" in done.out
    assert "hint" not in done.out
    again = labelloop(
        *("fit", reviews, "--text", "review", "--encoder", name, "--output-dir", tmp_path / "two", *settings(SMALL))
    )
    assert "60 rows from the cache, 0 new" in again.out
    first, second = (pq.read_table(place / "labels.parquet") for place in (run, tmp_path / "two"))
    assert first.equals(second)
    assert labelloop("export", run, "--to", "csv", "--output", tmp_path / "corrected.csv").code == 0
    assert len((tmp_path / "corrected.csv").read_text().splitlines()) == 61
    assert labelloop("predict", run, reviews, "--output", tmp_path / "p.csv").code == 0
    assert predictions(tmp_path / "p.csv") == first["predicted_label"].to_pylist()

    assert labelloop("export", run, "--to", "model", "--output", tmp_path / "model").code == 0
    form = json.loads((tmp_path / "model" / "model.json").read_text())["encoder_form"]
    assert (form["name"], form["width"], form["preprocessing"]["tokens"]) == (name, 16, 32)
    model = package.load_model(tmp_path / "model")
    assert model.predict(texts(60)).tolist() == first["predicted_label"].to_pylist()
    with pytest.raises(DataError, match="these are images, but the model was trained on texts"):
        model.predict([b""])


def test_an_image_folder_to_a_corrected_folder(labelloop, image_folder, tmp_path):
    photos, run = tmp_path / "photos", tmp_path / "run"
    clean = write_pictures(photos)
    (photos / "good" / "15.png").write_bytes(b"not an image")
    name = f"transformers:{image_folder}"
    flags = ("--encoder", name, "--clean-file", clean, "--output-dir", run, "--max-unreadable", "0.05")
    done = labelloop("fit", photos, *flags, *settings(SMALL))
    assert done.code == 0, done.err
    assert "1 of 48 images cannot be read" in done.err
    found = pq.read_table(run / "labels.parquet")
    paths = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    assert found["id"].to_pylist() == paths
    bad = paths.index("good/15.png")
    assert found["corrected_label"].to_pylist()[bad] is None
    truth = np.array([CLASSES[labels(48, 1)[0][int(Path(path).stem)]] for path in paths])
    right = np.array(found["corrected_label"].to_pylist())[np.arange(48) != bad] == truth[np.arange(48) != bad]
    assert right.mean() > 0.9
    assert "good/15.png" in (run / "unreadable.csv").read_text()
    assert labelloop("export", run, "--to", "imagefolder", "--output", tmp_path / "corrected").code == 0
    told = labelloop("predict", run, photos, "--output", tmp_path / "p.csv")
    assert told.code == 0
    assert "1 images get no prediction" in told.err
    assert predictions(tmp_path / "p.csv")[:3] == found["predicted_label"].to_pylist()[:3]
    model = package.load_model(run)
    good = [path for path in paths if path != "good/15.png"]
    from PIL import Image

    images = [Image.open(photos / path) for path in good]
    assert model.predict(images).tolist() == model.predict([photos / path for path in good]).tolist()
    assert model.predict([str(photos / path) for path in good[:2]]).tolist() == model.predict(images[:2]).tolist()
    with pytest.raises(DataError, match=r"1 of 48 images cannot be read, such as row \d+, .*15\.png"):
        model.predict([photos / path for path in paths])
    assert (run / "unreadable.csv").exists()


def test_a_changed_file_and_another_encoder_are_noticed(labelloop, image_folder, tmp_path):
    photos = tmp_path / "photos"
    write_pictures(photos, 12)
    name, output = f"transformers:{image_folder}", tmp_path / "f.npz"
    embed = ("embed", photos, "--output", output, "--overwrite", "--encoder")
    assert "(0 from the cache, 12 new" in labelloop(*embed, name).out
    assert "(12 from the cache, 0 new" in labelloop(*embed, name).out
    one = next(photos.rglob("3.png"))
    one.write_bytes(next(photos.rglob("4.png")).read_bytes()[:-4] + b"more")  # still an image, of other bytes
    assert "(11 from the cache, 1 new" in labelloop(*embed, name).out
    other = shutil.copytree(image_folder, tmp_path / "other")
    text = (other / "preprocessor_config.json").read_text()
    (other / "preprocessor_config.json").write_text(text.replace("0.5, 0.5, 0.5", "0.4, 0.5, 0.6", 1))
    assert "(0 from the cache, 12 new" in labelloop(*embed, f"transformers:{other}").out
    assert "(12 from the cache, 0 new" in labelloop(*embed, name).out


def test_embed_keeps_rows_in_order_and_labels(labelloop, image_folder, text_folder, tmp_path):
    photos = tmp_path / "photos"
    write_pictures(photos, 12)
    (photos / "good" / "00.png").write_bytes(b"")
    done = labelloop("embed", photos, "--encoder", f"transformers:{image_folder}", "--output", tmp_path / "i.npz")
    assert done.code == 0, done.err
    assert "1 images cannot be read and have NaN for features" in done.err
    with np.load(tmp_path / "i.npz") as found:
        ids, labelled = found["ids"].tolist(), found["y"].tolist()
        assert ids == sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
        assert labelled == [name.split("/")[0] for name in ids]
        assert np.isnan(found["X"]).any(axis=1).tolist() == [name == "good/00.png" for name in ids]
        assert json.loads(str(found["encoder"]))["width"] == 12
    reviews = write_reviews(tmp_path / "reviews.csv")
    flags = ("--text", "review", "--encoder", f"transformers:{text_folder}")
    assert labelloop("embed", reviews, *flags, "--output", tmp_path / "t.npz").code == 0
    fits = [
        labelloop("fit", reviews, *flags, "--output-dir", tmp_path / "a", *settings(SMALL)),
        labelloop("fit", tmp_path / "t.npz", "--output-dir", tmp_path / "b", *settings(SMALL)),
    ]
    assert [fit.code for fit in fits] == [0, 0], fits[1].err
    a, b = (pq.read_table(tmp_path / place / "labels.parquet") for place in "ab")
    assert a.equals(b)
    told = labelloop("embed", reviews, *flags, "--output", tmp_path / "t.npz")
    assert (told.code, "exists" in told.err) == (1, True)
    told = labelloop("embed", reviews, "--output", tmp_path / "x.npz")
    assert (told.code, "nothing to encode with; give --encoder" in told.err) == (2, True)
    told = labelloop("embed", reviews, *flags, "--output", tmp_path / "x.csv")
    assert (told.code, "give an .npz file" in told.err) == (2, True)


@pytest.mark.parametrize("library", ["transformers", "sentence-transformers"])
def test_a_trained_encoder_of_texts(labelloop, library, text_folder, sentence_folder, tmp_path):
    folder = shutil.copytree(text_folder if library == "transformers" else sentence_folder, tmp_path / "encoder")
    reviews, run, name = write_reviews(tmp_path / "reviews.csv"), tmp_path / "run", f"{library}:{folder}"
    flags = ("--text", "review", "--encoder", name, "--train-encoder", "--test", reviews, "--allow-overlap")
    done = labelloop("fit", reviews, *flags, "--output-dir", run, *settings(QUICK))
    assert done.code == 0, done.err
    config = json.loads((run / "run.json").read_text())["config"]
    assert (config["encoder_learning_rate_factor"], config["mixup"]) == (0.1, 0.0)
    assert config["network_options"] == {"encoder": name, "kind": "text"}
    assert labelloop("export", run, "--to", "model", "--output", tmp_path / "model").code == 0
    shutil.rmtree(folder)  # what was trained is saved whole, in the library's own format
    assert labelloop("predict", tmp_path / "model", reviews, "--output", tmp_path / "p.csv").code == 0
    expected = pq.read_table(run / "labels.parquet")["predicted_label"].to_pylist()
    assert predictions(tmp_path / "p.csv") == expected
    model = package.load_model(run)
    assert model.predict(texts(60)).tolist() == expected
    model.save(tmp_path / "again")
    assert package.load_model(tmp_path / "again").predict(texts(60)).tolist() == expected
    weight = next(model.network.encoder.parameters()).detach().numpy()
    if library == "transformers":
        from transformers import AutoModel

        saved = next(AutoModel.from_pretrained(run / "trained_encoder").parameters()).detach().numpy()
        before = next(AutoModel.from_pretrained(text_folder).parameters()).detach().numpy()
    else:
        from sentence_transformers import SentenceTransformer

        saved, before = (
            next(SentenceTransformer(str(place), device="cpu").parameters()).detach().numpy()
            for place in (run / "trained_encoder", sentence_folder)
        )
    np.testing.assert_array_equal(saved, weight)
    assert not np.array_equal(before, weight)


def test_a_trained_encoder_of_images_goes_on_after_an_interruption(labelloop, image_folder, tmp_path):
    photos = tmp_path / "photos"
    clean = write_pictures(photos, 30, 16)
    name = f"transformers:{image_folder}"
    flags = ("--encoder", name, "--train-encoder", "--clean-file", clean)
    done = labelloop("fit", photos, *flags, "--output-dir", tmp_path / "run", *settings(QUICK))
    assert done.code == 0, done.err
    expected = pq.read_table(tmp_path / "run" / "labels.parquet")
    told = labelloop("fit", photos, *flags, "--output-dir", tmp_path / "run", "--resume", *settings(QUICK))
    assert told.code == 0, told.err
    assert pq.read_table(tmp_path / "run" / "labels.parquet").equals(expected)
    assert labelloop("predict", tmp_path / "run", photos, "--output", tmp_path / "p.csv").code == 0
    assert predictions(tmp_path / "p.csv") == expected["predicted_label"].to_pylist()


def test_correct_takes_texts_and_images(labelloop, image_folder, text_folder, tmp_path):
    photos = tmp_path / "photos"
    clean = write_pictures(photos, 80, 44)
    flags = ("--encoder", f"transformers:{image_folder}", "--clean-file", clean)
    done = labelloop("correct", photos, *flags, "--output", tmp_path / "l.parquet", "--output-dir", tmp_path / "run")
    assert done.code == 0, done.err
    found = pq.read_table(tmp_path / "l.parquet")
    truth = [CLASSES[labels(80, 1)[0][int(Path(path).stem)]] for path in found["id"].to_pylist()]
    assert (np.array(found["corrected_label"].to_pylist()) == np.array(truth)).mean() > 0.9
    assert labelloop("export", tmp_path / "run", "--to", "imagefolder", "--output", tmp_path / "new").code == 0
    told = labelloop("correct", photos, "--clean-file", clean, "--output", tmp_path / "x.csv")
    assert (told.code, "images where --encoder makes features" in told.err) == (1, True)
    (photos / "good" / "x.png").write_bytes(b"")
    told = labelloop("correct", photos, *flags, "--output", tmp_path / "x.csv")
    assert (told.code, "1 images cannot be read" in told.err) == (1, True)


def test_without_an_encoder_it_works_and_says_what_one_would_do(labelloop, tmp_path):
    reviews = write_reviews(tmp_path / "reviews.csv")
    done = labelloop("fit", reviews, "--text", "review", "--output-dir", tmp_path / "run", *settings(SMALL))
    assert done.code == 0, done.err
    assert done.out.count("hint: ") == 1
    assert "--encoder sentence-transformers:" in done.out
    model = package.load_model(tmp_path / "run")
    assert model.encoding[0].kind == "text"
    np.testing.assert_array_equal(model.predict(["love great", "broken late"]), ["good", "bad"])
    photos = tmp_path / "photos"
    clean = write_pictures(photos, 24, 12)
    done = labelloop("fit", photos, "--clean-file", clean, "--output-dir", tmp_path / "images", *settings(QUICK[:4]))
    assert done.code == 0, done.err
    assert done.out.count("hint: ") == 1
    assert "--encoder transformers:" in done.out


def test_from_python(text_folder, image_folder, tmp_path):
    truth, given = labels(60)
    y, y_clean = np.array(CLASSES)[given], np.where(np.arange(60) < 24, np.array(CLASSES)[truth], "")
    config = {"epochs": 5, "rounds": 1, "learners": "networks", "batch_size": 16}
    name, rows = f"transformers:{text_folder}", texts(60)
    result = package.fit(
        rows, y, y_clean, encoder=name, config=config, X_test=["the hill", "purr milk paw it"], y_test=["bad", "good"]
    )
    assert result.model.predict(rows).tolist() == [CLASSES[k] for k in result.predicted_proba.argmax(axis=1)]
    features = result.model.encoder_form
    assert (features.kind, features.width) == ("text", 16)
    for train_encoder in (False, True):
        classifier = package.LabelLoopClassifier(
            encoder=name, train_encoder=train_encoder, config=config, random_state=0
        )
        classifier.fit(rows, y, y_clean)
        assert classifier.predict(rows).shape == (60,)
        assert classifier.transform(rows[:4]).shape[0] == 4
        assert classifier.get_params()["encoder"] == name
        assert classifier.score(rows, y) > 0.5
    write_pictures(tmp_path / "photos", 24)
    paths = sorted((tmp_path / "photos").rglob("*.png"))
    truth = labels(24, 1)[0][[int(path.stem) for path in paths]]
    y_clean = np.where(np.arange(24) % 2 == 0, np.array(CLASSES)[truth], "")
    found = package.fit(
        paths, [path.parent.name for path in paths], y_clean, encoder=f"transformers:{image_folder}", config=config
    )
    assert found.model.predict(paths).shape == (24,)
    with pytest.raises(UsageError, match="train_encoder trains an encoder further; name one with encoder"):
        package.fit(np.zeros((4, 2)), [0, 1, 0, 1], [0, 1, -1, -1], train_encoder=True)
    with pytest.raises(UsageError, match="train_encoder trains an encoder further"):
        package.LabelLoopClassifier(train_encoder=True).fit(np.zeros((4, 2)), [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--encoder", "sentence-transformers:/no/such/folder"), 2, "there is no folder /no/such/folder"),
        (("--encoder", "transfomers:x"), 2, "cannot import 'transfomers'"),
        (("--encoder", "x"), 2, "is not of the form sentence-transformers:NAME"),
        (("--train-encoder",), 2, "--train-encoder trains an encoder further; name one with encoder"),
        (("--train-encoder", "--encoder", "words"), 2, "cannot be fine-tuned"),
        (("--encoder", "timm:x"), 2, "is for images"),
    ],
)
def test_wrong_flags_leave_nothing(labelloop, stand_in_libraries, flags, code, words, tmp_path):
    reviews = write_reviews(tmp_path / "reviews.csv")
    done = labelloop("fit", reviews, "--text", "review", *flags, "--output-dir", tmp_path / "run")
    assert (done.code, words in done.err) == (code, True), done.err
    assert not (tmp_path / "run").exists()


def test_what_does_not_go_together_is_said(labelloop, text_folder, image_folder, tmp_path):
    reviews, photos = write_reviews(tmp_path / "reviews.csv"), tmp_path / "photos"
    write_pictures(photos, 12)
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 2)), y=[0, 1, 0, 1])
    images, words = ("--encoder", f"transformers:{image_folder}"), ("--encoder", f"transformers:{text_folder}")
    out = ("--output-dir", tmp_path / "run")
    for said, flags in {
        "name --text, or --file-name-column": (reviews, *words),
        "these are arrays; leave it out": (tmp_path / "a.npz", *words),
        "leave --image-size out": (photos, *images, "--image-size", "16"),
        "so it cannot read images": (photos, *words),
        "name one with encoder": (photos, "--train-encoder"),
        "works with the methods closed-loop and cross-entropy, not with 'glc'": (
            *(reviews, *words, "--text", "review", "--train-encoder", "--method", "glc"),
        ),
        "leave network = 'mlp' out": (reviews, *words, "--text", "review", "--train-encoder", "--set", "network=mlp"),
        "has one learning rate for all weights": (
            *(reviews, *words, "--text", "review", "--method", "glc", "--set", "encoder_learning_rate_factor=0.5"),
        ),
    }.items():
        done = labelloop("fit", *flags, *out)
        assert (done.code, said in done.err) == (2, True), done.err
    assert not (tmp_path / "run").exists()


def test_a_model_says_when_its_encoder_is_another_now(labelloop, text_folder, tmp_path):
    folder = shutil.copytree(text_folder, tmp_path / "encoder")
    reviews, run = write_reviews(tmp_path / "reviews.csv"), tmp_path / "run"
    flags = ("--text", "review", "--encoder", f"transformers:{folder}")
    assert labelloop("fit", reviews, *flags, "--output-dir", run, *settings(SMALL)).code == 0
    moved = folder.rename(tmp_path / "moved")
    told = labelloop("predict", run, reviews)
    assert (told.code, "there is no folder" in told.err) == (2, True)
    told = labelloop("predict", run, reviews, "--encoder", f"transformers:{moved}")
    assert (told.code, told.err) == (0, "")
    (moved / "config.json").write_text((moved / "config.json").read_text() + "\n")
    told = labelloop("predict", run, reviews, "--encoder", f"transformers:{moved}")
    assert told.code == 0
    assert "is not exactly the one that the model was trained with" in told.err


def test_models_of_earlier_versions_still_load(labelloop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "old_texts.py").write_text(
        "def make():\n    return lambda texts: [[len(t), t.count('o')] for t in texts]\n"
    )
    reviews, run = write_reviews(tmp_path / "reviews.csv"), tmp_path / "run"
    flags = ("--text", "review", "--encoder", "old_texts:make")
    assert labelloop("fit", reviews, *flags, "--output-dir", run, *settings(SMALL)).code == 0
    about = json.loads((run / "model.json").read_text())
    about["text_form"] = {"column": "review", "embedder": "old_texts:make"}
    del about["encoder_form"]
    (run / "model.json").write_text(json.dumps(about))
    (run / "manifest.json").unlink()  # which earlier versions did not write
    assert labelloop("predict", run, reviews, "--output", tmp_path / "p.csv", "--trust-code").code == 0
    assert predictions(tmp_path / "p.csv") == pq.read_table(run / "labels.parquet")["predicted_label"].to_pylist()
