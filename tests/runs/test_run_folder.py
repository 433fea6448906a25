"""The run folder: whole files or none, nothing replaced that was not asked for, lines that a crash cut short."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelloop import large_arrays
from labelloop.errors import DataError
from labelloop.runs.files import read_json, write_atomically
from labelloop.runs.folder import OUR_FILES, RunFolder, read_metrics
from labelloop.runs.lock import LOCK
from labelloop.runs.result_files import row_arrays
from labelloop.runs.run_json import SCHEMA_VERSION, RunRecord


@pytest.fixture
def old_run(tmp_path) -> Path:
    """A folder with a run, and with a file and a folder that are not the run's."""
    folder = RunFolder(tmp_path / "run")
    folder.write_record(RunRecord(state="finished"))
    for name in (name for name in OUR_FILES[1:] if name != "manifest.json"):
        (folder.path / name).write_text("old")
    folder.checkpoint.mkdir()
    (folder.checkpoint / "state.json").write_text("{}")
    (folder.path / "mine.txt").write_text("mine")
    (folder.path / "plots").mkdir()
    return folder.path


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    file = tmp_path / "file.txt"
    file.write_text("old")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="full"):
        write_atomically(file, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
    assert file.read_text() == "old"
    write_atomically(file, lambda path: path.write_text("new"))
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
    assert file.read_text() == "new"


def test_a_reader_never_sees_half_a_file(tmp_path):
    file = tmp_path / "file.txt"
    file.write_text("old")

    def slowly(path: Path) -> None:
        path.write_text("ne")
        assert file.read_text() == "old"
        path.write_text("new")

    write_atomically(file, slowly)
    assert file.read_text() == "new"


def test_a_new_folder_is_made_with_its_parents(tmp_path):
    folder = RunFolder(str(tmp_path / "a" / "b"))
    assert folder.path.is_dir()
    assert [path.name for path in folder.path.iterdir()] == [LOCK]


def test_an_old_run_is_refused_resumed_or_replaced(old_run):
    with pytest.raises(DataError, match=r"already holds a run.*--resume.*--overwrite"):
        RunFolder(old_run)
    assert RunFolder(old_run, resume=True).read_record() == RunRecord(state="finished")
    assert (old_run / "labels.parquet").read_text() == "old"
    RunFolder(old_run, overwrite=True)
    assert sorted(path.name for path in old_run.iterdir()) == [LOCK, "mine.txt", "plots"]


def test_what_is_no_run_is_neither_resumed_nor_replaced(tmp_path):
    with pytest.raises(DataError, match="holds no run to resume"):
        RunFolder(tmp_path, resume=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "model.json").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(DataError, match=r"has a model\.json that LabelLoop did not write"):
            RunFolder(tmp_path, overwrite=overwrite)
    assert (tmp_path / "model.json").read_text() == "mine"
    with pytest.raises(DataError, match="is a file"):
        RunFolder(tmp_path / "model.json")


def test_metrics_are_appended_and_cut_back(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.read_metrics() == []
    for epoch in (1, 2, 3):
        folder.append_metrics({"epoch": epoch, "loss": 1 / epoch})
    assert [row["epoch"] for row in folder.read_metrics()] == [1, 2, 3]
    assert folder.keep_metrics(2) == [{"epoch": 1, "loss": 1.0}, {"epoch": 2, "loss": 0.5}]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    assert folder.keep_metrics(0) == []
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_a_last_line_that_was_cut_short_is_left_out_and_another_is_named(tmp_path):
    folder = RunFolder(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n{"epo')
    assert read_metrics(tmp_path) == [{"epoch": 1}, {"epoch": 2}]
    folder.keep_metrics(2)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"epoch": 1}\n{"epoch": 2}\n'
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epo\n{"epoch": 3}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2 is damaged"):
        read_metrics(tmp_path)


def test_results_are_written_without_pickle(tmp_path):
    folder = RunFolder(tmp_path)
    targets = np.array([[0.25, 0.75]], np.float32)
    folder.write_targets(targets)
    folder.write_labels(pa.table({"id": ["a"]}))
    folder.write_record(RunRecord(state="running", about={"name": "Größe"}))
    np.testing.assert_array_equal(np.load(tmp_path / "targets.npy", allow_pickle=False), targets)
    assert pq.read_table(tmp_path / "labels.parquet").to_pydict() == {"id": ["a"]}
    assert folder.read_record().about["name"] == "Größe"
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["schema_version"] == SCHEMA_VERSION
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "labels.parquet", "run.json", "targets.npy"]


def test_a_record_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match=r"run\.json is missing"):
        read_json(tmp_path / "run.json")
    for content in (b"", b'{"state": ', b"\xff\xfe"):
        (tmp_path / "run.json").write_bytes(content)
        with pytest.raises(DataError, match=r"run\.json is damaged"):
            read_json(tmp_path / "run.json")


def test_features_are_kept_in_half_precision_unless_one_is_too_large_for_it(monkeypatch):
    monkeypatch.setattr(large_arrays, "CHUNK_VALUES", 8)  # a few rows a chunk
    features = np.linspace(-1, 1, 60, dtype=np.float32).reshape(20, 3)
    labels = np.zeros(20, int)
    for place, value, kept in ((0, 1.0, np.float16), (19, 7e4, np.float32), (19, -7e4, np.float32)):
        features[place, 1] = value
        said = row_arrays(labels, labels, features=features, logits=features, extra=None).inputs
        assert (said["features"].dtype, said["logits"].dtype) == (kept, np.float32)
        np.testing.assert_allclose(said["features"], features, atol=1e-3)
    assert row_arrays(labels, labels, features=features[:0]).inputs["features"].dtype == np.float16
