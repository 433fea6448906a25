"""What needs the run alone: issues under cleanlab's names, the noise matrix by hand, the model with its card."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from made_runs import made_run

import labelloop as library

pytestmark = pytest.mark.slow

NAMES = ("no", "yes")
ROWS = b"x,label,clean_label\n1,a,\n2,a,\n3,b,\n4,b,\n5,,\n6,b,a\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_bytes(ROWS)
    return made_run(tmp_path / "rows.csv", tmp_path / "run", {0: ("a", 0.75), 1: ("b", 0.5), 2: ("b", 1), 3: ("a", 1)})


def matrix_of(path: Path) -> tuple[str, np.ndarray]:
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head[1:] == ["a", "b"]
    assert [row[0] for row in rows] == ["a", "b"]
    return head[0], np.array([row[1:] for row in rows], dtype=float)


def test_the_noise_matrix_by_hand(labelloop, tmp_path, run):
    # Rows with a given label, and the probability of a: (a, .75) (a, .5) (b, 0) (b, 1) (b, verified a: 1).
    # True a: .75 + .5 given as a, 0 + 1 + 1 given as b, of 3.25. True b: .25 + .5 given as a, 1 given as b, of 1.75.
    expected = np.array([[1.25, 2.0], [0.75, 1.0]]) / np.array([[3.25], [1.75]])
    assert labelloop("export", run, "--to", "noise-matrix", "--output", tmp_path / "t.csv").code == 0
    corner, ours = matrix_of(tmp_path / "t.csv")
    assert corner == "true \\ given"
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    np.testing.assert_allclose(ours.sum(axis=1), 1)
    flags = ("--orientation", "cleanlab", "--output", tmp_path / "c.csv")
    assert labelloop("export", run, "--to", "noise-matrix", *flags).code == 0
    corner, cleanlabs = matrix_of(tmp_path / "c.csv")
    assert corner == "given \\ true"
    np.testing.assert_allclose(cleanlabs, expected.T, rtol=1e-6)
    np.testing.assert_allclose(cleanlabs.sum(axis=0), 1)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_issues(labelloop, tmp_path, run, suffix):
    out = tmp_path / f"issues.{suffix}"
    done = labelloop("export", run, "--to", "issues", "--output", out)
    assert (done.code, done.out) == (0, f"2 label issues in 6 rows, in {out}\n")
    table = (pq.read_table(out) if suffix == "parquet" else pa.csv.read_csv(out)).to_pydict()
    assert table["index"] == [0, 1, 2, 3, 4, 5]
    assert table["is_label_issue"] == [False, False, False, True, False, True]
    assert table["label_score"] == [0.75, 0.5, 1, 0, None, 0]
    assert set(table) == {"index", "is_label_issue", "label_score", "given_label", "predicted_label"}


def test_a_run_without_a_model_has_none_to_export(labelloop, tmp_path, run):
    ended = labelloop("export", run, "--to", "model", "--output", tmp_path / "model")
    assert ended.code == 1
    assert "`labelloop correct` trains none" in ended.err
    assert not (tmp_path / "model").exists()


def rows_of(path: Path, count: int = 60, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    true = np.arange(count) % 2
    X = rng.normal(size=(count, 2)) + 3 * true[:, None]
    lines = ["a,b,label,clean_label"]
    for k, (x, t) in enumerate(zip(X, true, strict=True)):
        given = 1 - t if k % 5 == 0 else t
        lines.append(f"{x[0]},{x[1]},{NAMES[given]},{NAMES[t] if k < 20 else ''}")
    path.write_text("\n".join(lines) + "\n")
    return X


QUICK = (
    *("--set", "epochs=4", "--set", "rounds=0", "--set", "learners=networks"),
    "--quiet",
)


@pytest.mark.filterwarnings("ignore:.*not among the features")
def test_from_a_fit_to_a_file_that_fit_accepts_again_and_a_model(labelloop, tmp_path):
    X = rows_of(tmp_path / "rows.csv")
    run = tmp_path / "run"
    rows_of(tmp_path / "test.csv", seed=1)
    fitted = labelloop("fit", tmp_path / "rows.csv", "--output-dir", run, "--test", tmp_path / "test.csv", *QUICK)
    assert fitted.code == 0, fitted.err

    for to, more in [
        ("csv", []),
        ("csv", ["--replace"]),
        ("parquet", []),
        ("tsv", []),
        ("jsonl", []),
        ("csv", ["--action", "drop"]),
    ]:
        out = tmp_path / f"again{len(list(tmp_path.glob('again*')))}.{to}"
        done = labelloop("export", run, "--to", to, "--output", out, *more)
        assert done.code == 0, done.err
        fitted = labelloop("fit", out, "--output-dir", out.with_suffix(".run"), *QUICK)
        assert fitted.code == 0, fitted.err
        record = json.loads((out.with_suffix(".run") / "model.json").read_text())
        assert record["column_names"] == ["a", "b"]  # the new columns tell the label, so they are no features

    done = labelloop("export", run, "--to", "model", "--output", tmp_path / "model")
    assert done.code == 0, done.err
    files = {"model.safetensors", "model.json", "MODEL_CARD.md", "manifest.json"}
    assert {p.name for p in (tmp_path / "model").iterdir()} == files
    same = library.load_model(tmp_path / "model").predict_proba(X.astype(np.float32))
    np.testing.assert_array_equal(same, library.load_model(run).predict_proba(X.astype(np.float32)))
    out = tmp_path / "predictions.csv"
    assert labelloop("predict", tmp_path / "model", tmp_path / "rows.csv", "--output", out).code == 0
    assert len(out.read_text().splitlines()) == 61
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    for words in (
        "`rows.csv`, 60 rows",
        "40 noisy, 20 with both labels, 0 with only a clean label, 0 without a label",
        "`no`, `yes`",
        "2 columns: `a`, `b`",
        f"test rows, after the last epoch: {100 * last['test_accuracy']:.1f}%",
        'labelloop.load_model("this-folder")',
        '"epochs": 4',
        f"labelloop {library.__version__}",
    ):
        assert words in card, words


@pytest.mark.filterwarnings("ignore:.*not among the features")
def test_json_lines_in_out_and_in_again(labelloop, tmp_path):
    rows_of(tmp_path / "rows.csv")
    rows = pa.csv.read_csv(tmp_path / "rows.csv").to_pylist()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert labelloop("fit", tmp_path / "rows.jsonl", "--output-dir", tmp_path / "run", *QUICK).code == 0
    out = tmp_path / "new.jsonl"
    done = labelloop("export", tmp_path / "run", "--to", "jsonl", "--output", out)
    assert done.code == 0, done.err
    again = labelloop("fit", out, "--output-dir", tmp_path / "again", *QUICK)
    assert again.code == 0, again.err
    assert json.loads((tmp_path / "again" / "model.json").read_text())["column_names"] == ["a", "b"]
    assert labelloop("undo", tmp_path / "new.jsonl.undo.zip", "--output", tmp_path / "back.jsonl").code == 0
    assert (tmp_path / "back.jsonl").read_bytes() == (tmp_path / "rows.jsonl").read_bytes()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_correct_leaves_a_run_folder_to_export(labelloop, tmp_path):
    rows_of(tmp_path / "rows.csv", 200)
    run = tmp_path / "run"
    nowhere = labelloop("correct", tmp_path / "rows.csv", "--feature-columns", "a,b")
    assert nowhere.code == 2
    assert "--output-dir" in nowhere.err
    flags = ("--feature-columns", "a,b", "--output-dir", run, "--output", tmp_path / "labels.csv")
    assert labelloop("correct", tmp_path / "rows.csv", *flags).code == 0
    assert pq.read_table(run / "labels.parquet").num_rows == 200
    assert labelloop("correct", tmp_path / "rows.csv", "--feature-columns", "a,b", "--output-dir", run).code == 1
    out = tmp_path / "new.csv"
    done = labelloop("export", run, "--to", "csv", "--output", out)
    assert done.code == 0, done.err
    given, corrected = (pa.csv.read_csv(out)[name].to_pylist() for name in ("label", "corrected_label"))
    true = [NAMES[k % 2] for k in range(200)]
    assert sum(a == b for a, b in zip(given, true, strict=True)) == 160
    assert sum(a == b for a, b in zip(corrected, true, strict=True)) > 185
