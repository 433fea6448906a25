"""`labelloop predict`: a file through the model of a run."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from cli_tools import COLUMNS, NAMES, QUICK, contents, labels_of, named_csv, numbers, settings, small, write_csv

import labelloop as library
from labelloop.cli import main

DATA = small()
NEW = small(30, seed=3)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run on named columns with text labels."""
    folder = tmp_path_factory.mktemp("predict")
    data = named_csv(folder / "rows.csv", DATA)
    flags = ["fit", data, "--output-dir", folder / "run", *settings(QUICK), "--quiet"]
    assert main([str(part) for part in flags]) == 0
    return folder / "run"


@pytest.fixture
def new_rows(tmp_path) -> Path:
    return write_csv(tmp_path / "new.csv", {"id": NEW.ids, **numbers(NEW)})


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_prints_a_row_for_every_row_as_csv(run, new_rows, labelloop):
    ended = labelloop("predict", run, new_rows)
    assert (ended.code, ended.err) == (0, "")
    rows = rows_of(ended.out)
    assert list(rows[0]) == ["id", "predicted_label", "confidence", "p_ant", "p_bee", "p_cat"]
    assert [row["id"] for row in rows] == NEW.ids
    expected = library.load_model(run).predict_proba(NEW.X)
    found = np.array([[float(row[f"p_{name}"]) for name in NAMES] for row in rows])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert [row["predicted_label"] for row in rows] == [NAMES[k] for k in expected.argmax(axis=1)]
    assert [float(row["confidence"]) for row in rows] == pytest.approx(expected.max(axis=1))
    assert np.mean([row["predicted_label"] == NAMES[k] for row, k in zip(rows, NEW.true, strict=True)]) > 0.6


def test_says_of_the_training_file_what_labels_parquet_says(run, labelloop):
    rows = rows_of(labelloop("predict", run, run.parent / "rows.csv").out)
    assert [row["id"] for row in rows] == DATA.ids
    assert [row["predicted_label"] for row in rows] == labels_of(run)["predicted_label"]


def test_the_columns_that_the_model_does_not_use_are_named(run, labelloop, tmp_path):
    expected = labelloop("predict", run, write_csv(tmp_path / "new.csv", {"id": NEW.ids, **numbers(NEW)})).out
    more = {"colour": ["red"] * 30, "label": ["ant"] * 30}
    ended = labelloop("predict", run, write_csv(tmp_path / "new.csv", {"id": NEW.ids, **more, **numbers(NEW)}))
    warning = "labelloop: warning: {}: columns that the model does not use: {}\n"
    assert ended.err == warning.format(tmp_path / "new.csv", "'colour'"), "labels are no inputs"
    assert ended.out == expected
    more = {f"x{number}": np.arange(30.0) for number in range(8)}
    ended = labelloop("predict", run, write_csv(tmp_path / "new.csv", {"id": NEW.ids, **numbers(NEW), **more}))
    assert ended.err == warning.format(tmp_path / "new.csv", "'x0', 'x1', 'x2', 'x3', 'x4' and 3 more")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_writes_a_file_and_replaces_one_only_when_asked(ending, run, new_rows, labelloop, tmp_path):
    output = tmp_path / f"found.{ending}"
    ended = labelloop("predict", run, new_rows, "--output", output)
    assert ended.code == 0
    assert ended.out == f"30 rows written to {output}\n"
    printed = rows_of(labelloop("predict", run, new_rows).out)
    if ending == "csv":
        assert rows_of(output.read_text()) == printed
    else:
        table = pq.read_table(output).to_pydict()
        assert list(table) == list(printed[0])
        assert table["predicted_label"] == [row["predicted_label"] for row in printed]
        assert table["p_bee"] == pytest.approx([float(row["p_bee"]) for row in printed])
    before = contents(tmp_path)
    again = labelloop("predict", run, new_rows, "--output", output)
    assert again.code == 1
    assert str(output) in again.err
    assert "--overwrite" in again.err
    assert contents(tmp_path) == before
    output.write_text("old")
    assert labelloop("predict", run, new_rows, "--output", output, "--overwrite").code == 0
    assert contents(tmp_path) == before


def test_the_folder_of_the_output_is_made(run, new_rows, labelloop, tmp_path):
    done = labelloop("predict", run, new_rows, "--output", tmp_path / "some" / "where" / "p.csv")
    assert done.code == 0, done.err
    assert len((tmp_path / "some" / "where" / "p.csv").read_text().splitlines()) == 31


def test_columns_are_found_by_name_in_any_order(run, new_rows, labelloop, tmp_path):
    mixed = {name: numbers(NEW)[name] for name in ("c", "a", "d", "b")}
    other = write_csv(tmp_path / "mixed.csv", {"more": np.arange(30), **mixed, "note": ["x"] * 30, "id": NEW.ids})
    ended = labelloop("predict", run, other)
    assert ended.code == 0, ended.err
    assert ended.out == labelloop("predict", run, new_rows).out


def test_a_missing_column_is_named(run, labelloop, tmp_path):
    columns = numbers(NEW)
    del columns["c"]
    ended = labelloop("predict", run, write_csv(tmp_path / "short.csv", columns), "--output", tmp_path / "out.csv")
    assert ended.code == 1
    assert "'c'" in ended.err
    assert "short.csv" in ended.err
    assert not (tmp_path / "out.csv").exists()


def test_a_bad_number_is_named_by_row_and_column(run, labelloop, tmp_path):
    columns = numbers(NEW)
    columns["b"] = np.where(np.arange(30) == 7, np.inf, columns["b"])
    ended = labelloop("predict", run, write_csv(tmp_path / "inf.csv", columns))
    assert ended.code == 1
    assert "column b" in ended.err
    assert "row 7" in ended.err
    assert ended.out == ""


def test_arrays_need_the_width_the_model_has(run, labelloop, tmp_path):
    np.savez(tmp_path / "wide.npz", X=np.zeros((3, 5), np.float32))
    ended = labelloop("predict", run, tmp_path / "wide.npz")
    assert ended.code == 1
    assert "5" in ended.err


def test_a_label_column_is_not_needed_and_not_used(run, new_rows, labelloop, tmp_path):
    with_labels = write_csv(tmp_path / "l.csv", {"id": NEW.ids, **numbers(NEW), "label": ["unheard-of"] * 30})
    assert labelloop("predict", run, with_labels).out == labelloop("predict", run, new_rows).out


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: (run / "model.json").unlink(), ["model.json is missing", "finished run"]),
        (lambda run: (run / "model.safetensors").unlink(), ["model.safetensors is missing", "finished run"]),
        (lambda run: (run / "model.json").write_text("{"), ["model.json is damaged"]),
        (
            lambda run: (run / "model.json").write_text('{"classes": [0]}'),
            ["model.json", "no column_names, input_shape"],
        ),
        (lambda run: (run / "model.safetensors").write_bytes(b"short"), ["model.safetensors is damaged"]),
    ],
)
def test_a_run_that_cannot_be_used_is_named(damage, words, run, new_rows, labelloop, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("model.json", "model.safetensors"):
        (copy / name).write_bytes((run / name).read_bytes())
    assert labelloop("predict", copy, new_rows).code == 0
    damage(copy)
    ended = labelloop("predict", copy, new_rows)
    assert ended.code == 1
    for word in words:
        assert word in ended.err


def test_a_folder_that_is_no_run_is_named(new_rows, labelloop, tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere", new_rows):
        ended = labelloop("predict", folder, new_rows)
        assert ended.code == 1
        assert ended.err.startswith("labelloop: ")
        assert str(folder) in ended.err


def test_missing_data_and_wrong_endings(run, new_rows, labelloop, tmp_path):
    ended = labelloop("predict", run, tmp_path / "nowhere.csv")
    assert ended.code == 1
    assert "nowhere.csv: no such file" in ended.err
    ended = labelloop("predict", run, new_rows, "--output", tmp_path / "found.xlsx")
    assert ended.code == 2
    assert "'.xlsx'" in ended.err


def test_the_model_file_says_what_the_model_is(run):
    about = json.loads((run / "model.json").read_text())
    assert about["classes"] == list(NAMES)
    assert about["column_names"] == list(COLUMNS)
    assert (about["network"], about["network_options"], about["input_shape"]) == ("mlp", {"hidden": [8]}, [4])
