"""Hugging Face data sets out: the same ClassLabel, the same other columns."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from made_runs import run_of

from labelloop.data.options import origin_of
from labelloop.data.table import from_arrays

GIVEN = [0, 0, 1, -1]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def hub_run(tmp_path: Path, split: str | None = None) -> Path:
    origin = origin_of("hf-dataset", tmp_path / "data", {"split": split}, label_column="label")
    names = ["cat", "dog", "owl"]
    table = from_arrays(np.zeros((4, 1), np.float32), GIVEN, [1, -1, -1, -1], class_names=names, origin=origin)
    return run_of(table, tmp_path / "run", {1: ("dog", 0.875), 3: ("owl", 0.75)})


@pytest.mark.parametrize("split", [None, "train"])
def test_a_data_set_keeps_its_class_label(labelloop, tmp_path, split):
    datasets = pytest.importorskip("datasets", reason="needs the extra hub")
    if not hasattr(datasets, "Features"):  # tests/datasets/ answers to the name where the package is missing
        pytest.skip("needs the extra hub")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["cat", "dog", "owl"])}
    )
    data = datasets.Dataset.from_dict({"text": list("abcd"), "label": GIVEN}, features=features)
    others = {"test": data.select([2, 3])}
    (data if split is None else datasets.DatasetDict({split: data, **others})).save_to_disk(str(tmp_path / "data"))

    def load(name: str):
        loaded = datasets.load_from_disk(str(tmp_path / name))
        return loaded if split is None else loaded[split]

    run = hub_run(tmp_path, split)
    before = contents(tmp_path / "data")

    done = labelloop("export", run, "--to", "hf", "--output", tmp_path / "added")
    assert done.code == 0, done.err
    added = load("added")
    assert added.features["corrected_label"] == features["label"]
    assert list(added["label"]) == GIVEN
    assert list(added["corrected_label"]) == [1, 1, 1, 2]  # no given label is an owl, yet it is number 2
    assert list(added["changed"]) == [False, True, False, False]
    assert (tmp_path / "added.changes.csv").exists()

    assert labelloop("export", run, "--to", "hf", "--replace", "--output", tmp_path / "new").code == 0
    new = load("new")
    assert new.features == features
    assert (list(new["text"]), list(new["label"])) == (list("abcd"), [1, 1, 1, 2])

    assert labelloop("export", run, "--to", "hf", "--action", "drop", "--output", tmp_path / "fewer").code == 0
    assert list(load("fewer")["text"]) == ["a", "c", "d"]

    if split is not None:  # the other split is not lost: as it was, or with the same columns and its own labels
        kept = datasets.load_from_disk(str(tmp_path / "new"))["test"]
        assert (kept.features, kept[:]) == (features, {"text": ["c", "d"], "label": [1, -1]})
        beside = datasets.load_from_disk(str(tmp_path / "added"))["test"]
        assert beside.features == added.features
        assert (list(beside["corrected_label"]), list(beside["changed"])) == ([1, -1], [False, False])

    undo = tmp_path / "fewer.undo.zip"
    assert contents(tmp_path / "data") == before  # no export touched it
    assert "nothing to undo" in labelloop("undo", undo).out
    (tmp_path / "data" / "state.json").write_text("{}")
    (tmp_path / "data" / "note.txt").write_text("mine")
    ended = labelloop("undo", undo)
    assert (ended.code, "exists and has changed" in ended.err) == (1, True)
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "fewer")  # all that is needed is in the undo file
    assert labelloop("undo", undo).code == 0
    assert contents(tmp_path / "data") == before
    assert labelloop("undo", undo, "--output", tmp_path / "twice").code == 0
    assert contents(tmp_path / "twice") == before

    assert labelloop("export", run, "--to", "hf", "--no-undo", "--output", tmp_path / "last").code == 0
    assert not (tmp_path / "last.undo.zip").exists()


def test_the_extra_is_named_where_it_is_missing(labelloop, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    run = hub_run(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    ended = labelloop("export", run, "--to", "hf", "--output", tmp_path / "new")
    assert ended.code == 2
    assert "pip install 'labelloop[hub]'" in ended.err
    assert not list(tmp_path.glob("*new*"))


@pytest.mark.filterwarnings("ignore:.*has no manifest")
def test_the_data_set_that_is_exported_is_the_one_that_the_user_names(labelloop, tmp_path):
    """Not the one that run.json names: a stranger may have written it."""
    datasets = pytest.importorskip("datasets", reason="needs the extra hub")
    if not hasattr(datasets, "Features"):
        pytest.skip("needs the extra hub")
    features = datasets.Features({"label": datasets.ClassLabel(names=["cat", "dog", "owl"])})
    data = datasets.Dataset.from_dict({"label": GIVEN}, features=features)
    data.save_to_disk(str(tmp_path / "mine"))
    private = data.add_column("secret", list("abcd"))
    private.save_to_disk(str(tmp_path / "data"))
    (tmp_path / "private").mkdir()
    private.to_csv(str(tmp_path / "private" / "rows.csv"))
    run = hub_run(tmp_path)
    done = labelloop("export", run, "--to", "hf", "--input", tmp_path / "mine", "--output", tmp_path / "out")
    assert done.code == 0, done.err
    assert "secret" not in datasets.load_from_disk(str(tmp_path / "out")).column_names

    record = json.loads((run / "run.json").read_text())
    record["source"] |= {"path": f"hf:{tmp_path / 'private'}", "listing": None}
    (run / "run.json").write_text(json.dumps(record))
    (run / "manifest.json").unlink(missing_ok=True)
    done = labelloop("export", run, "--to", "hf", "--output", tmp_path / "again")
    assert (done.code, "is a file or folder here" in done.err) == (1, True), done.err
    assert not (tmp_path / "again").exists()
