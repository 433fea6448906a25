"""`labelloop correct` from files to a file, as a shell would run it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from worlds import class_conditional

import labelloop
from labelloop.cli import main
from labelloop.workflows.refit import corrected as corrected_again
from labelloop.workflows.refit import read_stored_run

pytestmark = pytest.mark.slow

WORLD = class_conditional(800)
CLEAN = WORLD.clean(120)
NAMES = np.array(["ant", "bee", "cat", "dog"])
COLUMNS = [
    "id",
    "given_label",
    "corrected_label",
    "corrected_confidence",
    "changed",
    "verified",
    "predicted_label",
    "is_label_issue",
    "label_score",
]


def write_npz(folder: Path) -> Path:
    path = folder / "rows.npz"
    np.savez(path, pred_probs=WORLD.probabilities, given_label=WORLD.given, y_clean=CLEAN, true_label=WORLD.true)
    return path


def write_csv(folder: Path) -> Path:
    path = folder / "rows.csv"
    columns = {f"p_{name}": WORLD.probabilities[:, k] for k, name in enumerate(NAMES)}
    columns |= {"label": NAMES[WORLD.given], "clean_label": np.where(CLEAN < 0, "", NAMES[CLEAN])}
    pa.csv.write_csv(pa.table(columns), path)
    return path


def write_parquet(folder: Path) -> Path:
    path = folder / "rows.parquet"
    columns = {
        "name": [f"r{i}" for i in range(len(CLEAN))],
        "oos": WORLD.probabilities.tolist(),
        "vector": WORLD.embeddings.tolist(),
        "given": WORLD.given,
        "checked": pa.array(CLEAN, mask=CLEAN < 0),
    }
    pq.write_table(pa.table(columns), path)
    return path


def test_npz_by_the_usual_names(tmp_path, capsys):
    output = tmp_path / "labels.parquet"
    assert main(["correct", str(write_npz(tmp_path)), "--output", str(output)]) == 0
    said = capsys.readouterr()
    assert "800 rows, 4 classes; clean rows: 120 with a given label, 0 without" in said.out
    assert said.err == ""
    table = pq.read_table(output)
    assert table.column_names == COLUMNS
    direct = labelloop.correct(WORLD.given, CLEAN, pred_probs=WORLD.probabilities.astype(np.float32))
    assert table["corrected_label"].to_pylist() == direct.corrected_labels.tolist()
    assert np.asarray(table["verified"]).tolist() == (CLEAN >= 0).tolist()


def test_csv_as_predict_writes_it(tmp_path):
    output = tmp_path / "labels.csv"
    assert main(["correct", str(write_csv(tmp_path)), "--output", str(output), "--quiet"]) == 0
    table = pa.csv.read_csv(output)
    assert table.column_names == COLUMNS
    corrected = np.array(table["corrected_label"].to_pylist())
    rest = CLEAN < 0
    assert (corrected == NAMES[WORLD.true])[rest].mean() > (WORLD.given == WORLD.true)[rest].mean() + 0.05


def test_verified_labels_in_a_file_of_their_own(tmp_path, capsys):
    whole = pa.csv.read_csv(write_csv(tmp_path)).append_column("id", pa.array([f"r{i}" for i in range(len(CLEAN))]))
    pa.csv.write_csv(whole, tmp_path / "whole.csv")
    pa.csv.write_csv(whole.drop_columns("clean_label"), tmp_path / "noisy.csv")
    known = pa.table({"id": whole["id"], "clean_label": whole["clean_label"]}).filter(pa.array(CLEAN >= 0))
    pa.csv.write_csv(known, tmp_path / "clean.csv")
    for name, more in (("whole", []), ("noisy", ["--clean-file", str(tmp_path / "clean.csv")])):
        output = str(tmp_path / f"{name}.parquet")
        assert main(["correct", str(tmp_path / f"{name}.csv"), "--output", output, "--quiet", *more]) == 0
    assert pq.read_table(tmp_path / "noisy.parquet").equals(pq.read_table(tmp_path / "whole.parquet"))
    (tmp_path / "clean.csv").write_text("id,clean_label\nr900,ant\n")
    output = str(tmp_path / "none.parquet")
    assert main(["correct", str(tmp_path / "noisy.csv"), "--output", output, *more]) == 1
    assert "1 of 1 ids are not in" in capsys.readouterr().err
    assert not (tmp_path / "none.parquet").exists()


def test_parquet_with_named_columns_and_both_sources(tmp_path):
    output = tmp_path / "labels.parquet"
    columns = [
        "--label-column",
        "given",
        "--clean-column",
        "checked",
        "--id-column",
        "name",
        "--pred-probs-column",
        "oos",
    ]
    arguments = ["correct", str(write_parquet(tmp_path)), "--output", str(output), *columns]
    assert main([*arguments, "--embedding-column", "vector"]) == 0
    table = pq.read_table(output)
    assert table["id"].to_pylist()[:2] == ["r0", "r1"]
    assert table["corrected_label"].type == pa.int64()
    only_probabilities = tmp_path / "other.parquet"
    assert main([*arguments[:3], str(only_probabilities), *columns]) == 0
    assert not pq.read_table(only_probabilities).equals(table)


def said_of_columns(text: str) -> list[str]:
    """The lines about columns, which come before those about classes."""
    lines = text.splitlines()
    return [line.strip() for line in lines[1 : next(n for n, line in enumerate(lines) if " classes; " in line)]]


def test_beside_both_sources_every_column_is_said_once(tmp_path, capsys):
    path = tmp_path / "rows.parquet"
    columns = {
        "pred_probs": WORLD.probabilities.tolist(),
        "embedding": WORLD.embeddings.tolist(),
        "noisy_label": WORLD.given,
        "clean_label": pa.array(CLEAN, mask=CLEAN < 0),
        "note": [f"n{i}" for i in range(800)],
        "size": np.arange(800.0),
    }
    pq.write_table(pa.table(columns), path)
    arguments = ["correct", str(path), "--output", str(tmp_path / "labels.parquet")]
    expected = [
        "given label: 'noisy_label' (guessed by its name)",
        "clean label: 'clean_label' (guessed by its name)",
        "features: 'pred_probs' (probabilities of 4 classes)",
        "features: 'embedding' (embedding of 5 numbers)",
        "left out: 'note' (with probabilities or an embedding, other columns are not used)",
        "left out: 'size' (with probabilities or an embedding, other columns are not used)",
    ]
    for more in ([], ["--dry-run"]):
        assert main([*arguments, *more, "--overwrite"]) == 0
        assert said_of_columns(capsys.readouterr().out) == expected
    named = ["--label-column", "noisy_label", "--pred-probs-column", "pred_probs", "--feature-columns", "size"]
    assert main([*arguments, *named, "--dry-run"]) == 0
    assert said_of_columns(capsys.readouterr().out) == [
        "given label: 'noisy_label'",
        expected[1],
        expected[2],
        "features, number: 1: 'size'",
        "left out: 'embedding' (only the named columns are used)",
        "left out: 'note' (only the named columns are used)",
    ]
    assert main([*arguments, "--feature-columns", "size", "--dry-run"]) == 0  # the probabilities are guessed
    assert "left out: 'note' (only the named columns are used)" in said_of_columns(capsys.readouterr().out)


def test_beside_both_sources_every_array_is_said_once(tmp_path, capsys):
    arrays = {"pred_probs": WORLD.probabilities, "embeddings": WORLD.embeddings, "given_label": WORLD.given}
    np.savez(tmp_path / "rows.npz", y_clean=CLEAN, true_label=WORLD.true, notes=np.arange(800), **arrays)
    assert main(["correct", str(tmp_path / "rows.npz"), "--dry-run"]) == 0
    said = said_of_columns(capsys.readouterr().out)
    assert [line for line in said if "array (" not in line] == [
        "probabilities: 'pred_probs' (guessed by its name)",
        "given label: 'given_label' (guessed by its name)",
        "clean label: 'y_clean' (guessed by its name)",
        "inputs: 'embeddings' (guessed by its name)",
        "left out: 'true_label' (an array with an unknown name)",
        "left out: 'notes' (an array with an unknown name)",
    ]


def test_test_rows_teach_nothing(tmp_path):
    path, output = tmp_path / "rows.npz", tmp_path / "labels.parquet"
    split = np.where(np.arange(800) < 400, "train", "test")
    arrays = {"pred_probs": WORLD.probabilities, "given_label": WORLD.given}
    np.savez(path, y_clean=WORLD.true, split=split, **arrays)
    assert main(["correct", str(path), "--output", str(output), "--quiet"]) == 1  # no noisy row is left to the check
    clean = np.where(np.arange(800) % 4 == 0, WORLD.true, -1)
    for name, seen in (("with", clean), ("without", np.where(split == "test", -1, clean))):
        np.savez(path, y_clean=seen, split=split, **arrays)
        assert main(["correct", str(path), "--output", str(tmp_path / f"{name}.parquet"), "--quiet"]) == 0
    assert pq.read_table(tmp_path / "with.parquet").equals(pq.read_table(tmp_path / "without.parquet"))


@pytest.mark.parametrize(
    ("extra", "code", "message"),
    [
        (["--output", "labels.txt"], 2, "cannot write '.txt'"),
        (["--output", "there.csv"], 1, "exists; give another name, or --overwrite"),
        (["--output", "new.csv", "--pred-probs-column", "probs"], 1, "no array 'probs'"),
        (["--output", "new.csv", "--clean-column", "cleaned"], 1, "no array 'cleaned'"),
        (["--output", "new.csv", "--class-names", "a,b"], 1, "4 columns, but there are 2 classes"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path, monkeypatch, capsys, extra, code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("mine")
    assert main(["correct", str(write_npz(tmp_path)), *extra]) == code
    assert message in capsys.readouterr().err
    assert (tmp_path / "there.csv").read_text() == "mine"
    assert not (tmp_path / "new.csv").exists()


def test_a_file_without_scores_or_a_file_that_is_none(tmp_path, capsys):
    np.savez(tmp_path / "bare.npz", y=WORLD.given, y_clean=CLEAN)
    assert main(["correct", str(tmp_path / "bare.npz"), "--output", str(tmp_path / "o.csv")]) == 1
    assert "bare.npz: no inputs; expected one of" in capsys.readouterr().err
    for name in ("gone.npz", "gone.parquet", "gone.csv", "rows.xlsx"):
        arguments = ["correct", str(tmp_path / name), "--output", str(tmp_path / "o.csv")]
        assert main([*arguments, "--pred-probs-column", "p"]) == 1
        assert name in capsys.readouterr().err


def test_a_table_needs_no_probabilities(tmp_path, capsys):
    columns = {f"x{k}": WORLD.embeddings[:, k] for k in range(4)}
    columns |= {"where": np.where(WORLD.embeddings[:, 4] > 0, "north", "south")}
    columns |= {"label": NAMES[WORLD.given], "clean_label": np.where(CLEAN < 0, "", NAMES[CLEAN])}
    pa.csv.write_csv(pa.table(columns), tmp_path / "table.csv")
    assert main(["correct", str(tmp_path / "table.csv"), "--output-dir", str(tmp_path / "run"), "--quiet"]) == 0
    corrected = np.array(pq.read_table(tmp_path / "run" / "labels.parquet")["corrected_label"].to_pylist())
    rest = CLEAN < 0
    assert (corrected == NAMES[WORLD.true])[rest].mean() > (WORLD.given == WORLD.true)[rest].mean() + 0.05
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {"clean rows, forest", "clean rows, logistic"} <= set(run["weights_without_label"])
    assert "given labels changed" in run["guard"]["line"]
    stored = read_stored_run(tmp_path / "run")
    again = corrected_again(stored)[0]
    np.testing.assert_array_equal(again, stored.targets)


@pytest.mark.parametrize(("name", "words"), [("no.csv", "no such file"), ("folder", "is a folder; .csv")])
def test_what_cannot_be_read_is_named(tmp_path, capsys, name, words):
    (tmp_path / "folder").mkdir()
    assert main(["correct", str(tmp_path / name), "--output", str(tmp_path / "labels.csv")]) == 1
    assert f"{tmp_path / name}" in (said := capsys.readouterr().err)
    assert words in said


def test_one_column_that_begins_like_a_probability_is_a_feature(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    table = {"p_value": WORLD.embeddings[:, 0], "label": WORLD.given, "clean_label": CLEAN}
    pa.csv.write_csv(pa.table(table), path)
    assert main(["correct", str(path), "--dry-run"]) == 0
    assert "features, number: 1: 'p_value'" in capsys.readouterr().out
