"""Bad input for export and undo: an exit code, a message that says where and what to do, and nothing written."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from made_runs import made_run

from labelloop.errors import UsageError
from labelloop.export.decision import Decision, decide, only_certified
from labelloop.runs.folder import RESULTS, RUN
from labelloop.runs.manifest import write_manifest

ROWS = b"x,label,clean_label\n1,cat,dog\n2,cat,\n3,dog,\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_bytes(ROWS)
    return made_run(tmp_path / "rows.csv", tmp_path / "run", {1: ("dog", 0.9)})


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--to", "csvv"], "no format 'csvv'; did you mean 'csv'"),
        (["--to", "excel-file"], "known: csv, tsv"),
        (["--to", "image-folder"], "did you mean 'imagefolder'"),
        (["--to", "imagefolder"], "of kind 'csv' and cannot become 'imagefolder'; possible: csv, tsv, jsonl, parquet"),
        (["--to", "hf"], "cannot become 'hf'"),
        (["--to", "csv", "--min-confidence", "1.5"], "between 0 and 1, not 1.5"),
        (["--to", "csv", "--min-confidence", "-0.1"], "between 0 and 1, not -0.1"),
        (["--to", "csv", "--min-confidence", "nan"], "between 0 and 1, not nan"),
        (["--to", "csv", "--min-confidence", "high"], "high"),
        (["--to", "csv", "--action", "delete"], "delete"),
        (["--to", "csv", "--output", "new.txt"], "does not end in .csv"),
        (["--to", "issues", "--output", "new.txt"], ".csv or .parquet"),
        (["--to", "noise-matrix", "--orientation", "sideways"], "sideways"),
        ([], "--to"),
    ],
)
def test_wrong_usage(labelloop, tmp_path, monkeypatch, run, flags, said):
    monkeypatch.chdir(tmp_path)
    before = everything(tmp_path)
    ended = labelloop("export", run, *flags)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert everything(tmp_path) == before


def no_folder(run: Path) -> Path:
    return run / "nothing"


def a_file(run: Path) -> Path:
    return run.parent / "rows.csv"


def an_empty_folder(run: Path) -> Path:
    (run.parent / "empty").mkdir()
    return run.parent / "empty"


def without(name: str):
    def change(run: Path) -> Path:
        (run / name).unlink()
        return run

    return change


def said_of(**values: object):
    def change(run: Path) -> Path:
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(record | values))
        write_manifest(run, (RUN, *RESULTS))
        return run

    return change


def damaged_labels(run: Path) -> Path:
    (run / "labels.parquet").write_bytes(b"PAR1 no")
    return run


def other_targets(run: Path) -> Path:
    np.save(run / "targets.npy", np.zeros((2, 2), np.float32))
    write_manifest(run, (RUN, *RESULTS))
    return run


def input_gone(run: Path) -> Path:
    (run.parent / "rows.csv").rename(run.parent / "elsewhere.csv")
    return run


def input_changed(run: Path) -> Path:
    (run.parent / "rows.csv").write_bytes(ROWS + b"4,cat,\n")
    return run


def output_there(run: Path) -> Path:
    Path("rows-corrected.csv").write_text("mine")
    return run


def changes_there(run: Path) -> Path:
    Path("rows-corrected.csv.changes.csv").write_text("mine")
    return run


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (no_folder, "does not exist; give the folder"),
        (a_file, "is a file; give the folder"),
        (an_empty_folder, "is not a run folder: it has no run.json"),
        (without("labels.parquet"), "it has no labels.parquet"),
        (without("targets.npy"), "it has no targets.npy"),
        (said_of(state="interrupted"), "is not finished (state: interrupted); continue it with `fit --resume`"),
        (said_of(source=None), "does not say which file its rows came from"),
        (damaged_labels, "is damaged"),
        (other_targets, "3 rows in labels.parquet and 2 in targets.npy"),
        (input_gone, "does not exist; give the input's present path with --input"),
        (input_changed, "has changed since the run read it"),
        (output_there, "rows-corrected.csv exists and is not overwritten; give another name with --output"),
        (changes_there, "rows-corrected.csv.changes.csv exists"),
    ],
)
def test_what_cannot_be_exported(labelloop, tmp_path, monkeypatch, run, change, said):
    monkeypatch.chdir(tmp_path)
    folder = change(run)
    before = everything(tmp_path)
    ended = labelloop("export", folder, "--to", "csv")
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert everything(tmp_path) == before


def test_a_column_of_that_name_is_there_already(labelloop, tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"x,label,clean_label,changed\n1,cat,dog,no\n2,cat,,no\n3,dog,,no\n")
    made_run(tmp_path / "rows.csv", tmp_path / "run", {})
    ended = labelloop("export", tmp_path / "run", "--to", "csv", "--output", tmp_path / "new.csv")
    assert ended.code == 2
    assert "already has a column 'changed'; use --replace" in ended.err
    assert not list(tmp_path.glob("new*"))


def test_labels_from_another_place_are_not_put_back(labelloop, tmp_path, run):
    table_of = (tmp_path / "rows.csv").read_bytes().replace(b"2,cat", b"2,dog")
    (tmp_path / "rows.csv").write_bytes(table_of)
    from labelloop.runs.files import sha256_of

    record = json.loads((run / "run.json").read_text())
    record["source"]["sha256"] = sha256_of(tmp_path / "rows.csv")
    (run / "run.json").write_text(json.dumps(record))
    write_manifest(run, (RUN, *RESULTS))
    ended = labelloop("export", run, "--to", "csv", "--output", tmp_path / "new.csv")
    assert ended.code == 2
    assert "--noisy-labels" in ended.err
    assert "row 2" in ended.err


def test_a_file_without_a_label_column_has_none_to_replace(labelloop, tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"x,clean_label\n1,cat\n2,dog\n3,\n")
    made_run(tmp_path / "rows.csv", tmp_path / "run", {2: ("dog", 0.8)})
    ended = labelloop("export", tmp_path / "run", "--to", "csv", "--replace", "--output", tmp_path / "new.csv")
    assert ended.code == 2
    assert "no label column to replace" in ended.err
    assert labelloop("export", tmp_path / "run", "--to", "csv", "--output", tmp_path / "new.csv").code == 0
    assert (tmp_path / "new.csv").read_text().splitlines()[3] == "3,,dog,0.8,false"


def test_a_write_that_fails_leaves_nothing(labelloop, tmp_path, monkeypatch, run):
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("labelloop.export.export.write_changes", fail)
    ended = labelloop("export", run, "--to", "csv", "--output", tmp_path / "new.csv")
    assert ended.code == 1
    assert "o space left" in ended.err
    assert not list(tmp_path.glob("*new*"))


def exported(labelloop, tmp_path: Path, run: Path) -> Path:
    assert labelloop("export", run, "--to", "csv", "--output", tmp_path / "new.csv").code == 0
    return tmp_path / "new.csv.undo.zip"


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def another_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "hello")


def one_byte_off(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        about = archive.read("undo.json")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("undo.json", about)
        archive.writestr("original", ROWS.replace(b"1", b"7"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.unlink, "no such file; give the .undo.zip"),
        (cut_short, "is damaged or not an undo file"),
        (empty, "is damaged or not an undo file"),
        (another_archive, "is damaged or not an undo file"),
        (one_byte_off, "its checksum is wrong"),
    ],
)
def test_an_undo_file_that_cannot_be_used(labelloop, tmp_path, run, damage, said):
    undo = exported(labelloop, tmp_path, run)
    damage(undo)
    before = everything(tmp_path)
    ended = labelloop("undo", undo, "--output", tmp_path / "back.csv")
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert everything(tmp_path) == before


def test_undo_overwrites_nothing(labelloop, tmp_path, run):
    undo = exported(labelloop, tmp_path, run)
    same = labelloop("undo", undo)
    assert (same.code, same.out) == (0, f"{tmp_path / 'rows.csv'} is as it was; there is nothing to undo\n")
    (tmp_path / "rows.csv").write_text("my own work since then")
    ended = labelloop("undo", undo)
    assert ended.code == 1
    assert "exists and has changed; give another path with --output" in ended.err
    assert (tmp_path / "rows.csv").read_text() == "my own work since then"
    (tmp_path / "rows.csv").unlink()
    assert labelloop("undo", undo).code == 0
    assert (tmp_path / "rows.csv").read_bytes() == ROWS
    assert labelloop("undo").code == 2


def test_no_undo_file_if_none_is_wanted(labelloop, tmp_path, run):
    assert labelloop("export", run, "--to", "csv", "--no-undo", "--output", tmp_path / "new.csv").code == 0
    assert sorted(path.name for path in tmp_path.glob("new*")) == ["new.csv", "new.csv.changes.csv"]


def test_a_misspelt_choice_from_python_is_refused():
    """The command line checks them before."""
    with pytest.raises(UsageError, match="no action 'relable'; did you mean 'relabel'"):
        decide(pa.table({}), "relable", 0.0)
    with pytest.raises(UsageError, match="no rest 'droped'; did you mean 'drop'"):
        only_certified(Decision(*[np.zeros(0)] * len(fields(Decision))), np.zeros(0, bool), "droped")
