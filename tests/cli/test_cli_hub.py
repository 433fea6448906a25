"""Hugging Face data sets on disk: fit, predict, export and fit again; and what is said without the library."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import NAMES, QUICK, labels_of, metrics_of, run_json, settings, small, write_csv

from labelloop.data.image_files import load_images
from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.readers.clean_file import join_clean_file
from labelloop.workflows.encode import read_inputs

pytestmark = pytest.mark.slow

DATA = small()
ORDER = ["cat", "ant", "bee", "dog"]  # neither sorted nor all in use
MORE = {"id": [40], "clean_label": ["dog"]}
NUMBER = np.array([ORDER.index(name) for name in NAMES])


@pytest.fixture(scope="module")
def datasets() -> Any:
    found = pytest.importorskip("datasets", reason="needs the extra hub")
    if not hasattr(found, "Features"):  # tests/datasets/ answers to the name where the package is missing
        pytest.skip("needs the extra hub")
    found.disable_progress_bars()
    return found


def numbered(labels: np.ndarray) -> list[int]:
    return np.where(labels < 0, -1, NUMBER[labels]).tolist()


def made(datasets: Any, inputs: dict[str, tuple[Any, list]], rows: slice = slice(None)) -> Any:
    """A data set with ClassLabel columns `label` and `clean_label`, and these features."""
    kind = datasets.ClassLabel(names=ORDER)
    features = datasets.Features(
        {**{name: feature for name, (feature, _) in inputs.items()}, "label": kind, "clean_label": kind}
    )
    columns = {name: values[rows] for name, (_, values) in inputs.items()}
    labels = {"label": numbered(DATA.y)[rows], "clean_label": numbered(DATA.y_clean)[rows]}
    return datasets.Dataset.from_dict(columns | labels, features=features)


def embedding(datasets: Any) -> dict[str, tuple[Any, list]]:
    return {"embedding": (datasets.Sequence(datasets.Value("float32")), DATA.X.tolist())}


def test_fit_export_and_fit_again(labelloop, datasets, tmp_path):
    train = made(datasets, embedding(datasets))
    other = small(30, seed=5)
    columns = {"embedding": other.X.tolist(), "label": numbered(other.true), "clean_label": [-1] * 30}
    test = datasets.Dataset.from_dict(columns, features=train.features)
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(str(tmp_path / "data"))

    run = tmp_path / "run"
    done = labelloop("fit", tmp_path / "data", "--output-dir", run, *settings(QUICK))
    assert done.code == 0, done.err
    record = run_json(run)
    source = record["source"]
    assert (source["kind"], source["label_column"], source["clean_column"]) == ("hf-dataset", "label", "clean_label")
    assert source["path"] == str(tmp_path / "data")
    assert source["class_names"] == record["data"]["classes"] == ORDER
    assert source["options"] == {"split": "train"}
    assert (record["data"]["rows"], record["data"]["test"]["rows"]) == (120, 30)
    assert "test_accuracy" in metrics_of(run)[-1]
    labels = labels_of(run)
    assert labels["given_label"] == [name or None for name in DATA.names(DATA.y)]

    done = labelloop("export", run, "--to", "hf", "--replace", "--output", tmp_path / "new")
    assert done.code == 0, done.err
    splits = datasets.load_from_disk(str(tmp_path / "new"))
    assert splits["test"].to_dict() == test.to_dict()
    new = splits["train"]
    assert new.features == train.features
    assert [ORDER[k] for k in new["label"]] == labels["corrected_label"]
    assert list(new["clean_label"]) == list(train["clean_label"])

    again = tmp_path / "again"
    done = labelloop("fit", tmp_path / "new", "--output-dir", again, *settings(QUICK))
    assert done.code == 0, done.err
    assert labels_of(again)["given_label"] == labels["corrected_label"]
    assert run_json(again)["source"]["options"] == {"split": "train"}

    done = labelloop("predict", run, tmp_path / "data", "--output", tmp_path / "p.csv")
    assert done.code == 0, done.err
    said = [line.split(",")[1].strip('"') for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    assert said == labels["predicted_label"]


def test_images_are_decoded_as_files_are(labelloop, datasets, tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (120, 8, 6, 3), dtype=np.uint8)
    images = [Image.fromarray(array) for array in pixels]
    data = made(datasets, {"picture": (datasets.Image(), images)})
    data.save_to_disk(str(tmp_path / "data"))
    table = read_table(tmp_path / "data")
    assert table.inputs.tolist() == pixels.tolist()
    assert table.class_names == tuple(ORDER)

    run = tmp_path / "run"
    quick = [value for value in QUICK if "network_options" not in value]
    done = labelloop(
        "fit", tmp_path / "data", "--output-dir", run, "--image-size", 4, *settings([*quick, "network=mlp"])
    )
    assert done.code == 0, done.err
    assert json.loads((run / "model.json").read_text())["image_form"]["height"] == 4
    done = labelloop("predict", run, tmp_path / "data", "--output", tmp_path / "p.csv")
    assert done.code == 0, done.err
    assert labelloop("export", run, "--to", "hf", "--output", tmp_path / "new").code == 0
    assert datasets.load_from_disk(str(tmp_path / "new")).features["picture"] == datasets.Image()


def test_texts_features_and_a_chosen_order_of_rows(datasets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hub_texts.py").write_text("def make():\n    return lambda texts: [[len(t)] for t in texts]\n")
    inputs = {
        "text": (datasets.Value("string"), ["x" * i for i in range(120)]),
        "size": (datasets.Value("float64"), [float(i) for i in range(120)]),
    }
    made(datasets, inputs).select([5, 3, 60]).save_to_disk(str(tmp_path / "data"))
    table = read_inputs(
        tmp_path / "data", ReadOptions(text_columns=("text",), feature_columns=[], encoder="hub_texts:make")
    )
    assert table.inputs.tolist() == [[5], [3], [60]]
    table = read_table(tmp_path / "data", ReadOptions(feature_columns=["size"]))
    assert table.inputs.tolist() == [[5], [3], [60]]
    assert table.labels.tolist() == ["", "", NAMES[DATA.y[60]]]


def test_splits(labelloop, datasets, tmp_path):
    data = made(datasets, embedding(datasets))
    parts = {"train": data, "test": data.map(lambda row: {"label": -1, "clean_label": -1})}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "blank"))
    done = labelloop("fit", tmp_path / "blank", "--output-dir", tmp_path / "run", *settings(QUICK))
    assert (done.code, "no row of the split 'test' has a label" in done.err) == (0, True)
    datasets.DatasetDict({"a": data, "b": data}).save_to_disk(str(tmp_path / "two"))
    done = labelloop("fit", tmp_path / "two", "--output-dir", tmp_path / "other")
    assert (done.code, "no split 'train', only a, b" in done.err) == (1, True)
    with_more = join_clean_file(read_table(tmp_path / "two" / "b"), write_csv(tmp_path / "more.csv", MORE))
    assert with_more.clean_labels[[23, 40, 41]].tolist() == [NAMES[DATA.true[23]], "dog", ""]  # by row number
    assert len(read_table(tmp_path / "two" / "b")) == 120


def test_a_name_goes_to_the_hub(labelloop, datasets, tmp_path, monkeypatch):
    data = datasets.DatasetDict({"train": made(datasets, embedding(datasets))})
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda name: asked.append(name) or data)
    run = tmp_path / "run"
    done = labelloop("fit", "hf:some/data", "--output-dir", run, *settings(QUICK))
    assert done.code == 0, done.err
    assert set(asked) == {"some/data"}
    assert run_json(run)["source"]["path"] == "hf:some/data"
    done = labelloop("export", run, "--to", "hf", "--output", tmp_path / "new")
    assert done.code == 0, done.err
    assert len(datasets.load_from_disk(str(tmp_path / "new"))["train"]) == 120
    done = labelloop("undo", tmp_path / "new.undo.zip")
    assert (done.code, "hf:some/data is on the hub" in done.out) == (0, True)

    done = labelloop("correct", "hf:some/data", "--output", tmp_path / "labels.csv")
    assert done.code == 0, done.err


def test_labels_are_corrected_without_training(labelloop, datasets, tmp_path):
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(4), size=120)
    inputs = embedding(datasets) | {
        "pred_probs": (datasets.Sequence(datasets.Value("float64")), probabilities.tolist())
    }
    data = made(datasets, inputs)
    datasets.DatasetDict({"train": data, "test": data.select([0, 1])}).save_to_disk(str(tmp_path / "data"))
    run = tmp_path / "run"
    done = labelloop("correct", tmp_path / "data", "--output-dir", run)
    assert done.code == 0, done.err
    assert run_json(run)["source"]["options"]["split"] == "train"
    labels = labels_of(run)
    assert labels["given_label"] == [name or None for name in DATA.names(DATA.y)]
    path = tmp_path / "same.npz"
    columns = {"embedding": DATA.X, "pred_probs": probabilities, "label": numbered(DATA.y)}
    np.savez(path, **columns, clean_label=numbered(DATA.y_clean))
    assert labelloop("correct", path, "--output-dir", tmp_path / "same").code == 0
    assert [ORDER[k] for k in labels_of(tmp_path / "same")["corrected_label"]] == labels["corrected_label"]

    done = labelloop("export", run, "--to", "hf", "--output", tmp_path / "new")
    assert done.code == 0, done.err
    new = datasets.load_from_disk(str(tmp_path / "new"))["train"]
    assert [ORDER[k] for k in new["corrected_label"]] == labels["corrected_label"]


def test_the_extra_is_named_where_it_is_missing(labelloop, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    for data in (tmp_path / "data", "hf:some/data"):
        done = labelloop("fit", data, "--output-dir", tmp_path / "run")
        assert (done.code, "pip install 'labelloop[hub]'" in done.err) == (2, True)
    done = labelloop("correct", tmp_path / "data", "--output", tmp_path / "labels.csv")
    assert (done.code, "pip install 'labelloop[hub]'" in done.err) == (2, True)
    assert not (tmp_path / "run").exists()


def test_images_in_memory(tmp_path: Path):
    from PIL import Image

    Image.new("RGB", (3, 2), (10, 20, 30)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    pixels, form, bad = load_images([content, b"", content[:20], tmp_path / "a.png"])
    assert (form.height, form.width) == (2, 3)
    assert pixels[0].tolist() == pixels[3].tolist() == [[[10, 20, 30]] * 3] * 2
    assert [(image.row, image.path) for image in bad] == [(1, "row 1"), (2, "row 2")]
    assert bad[0].reason == "no image"
