"""Certificates from the front door: Python, `export` and `plan` with --max-error, and a refit with a random sample."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import labelloop
from labelloop.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A table of 900 rows, 260 of them verified, a fifth of the labels wrong."""
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=900)
    x = rng.normal(size=(900, 5)) + 2.2 * np.eye(3, 5)[true] * 1.5
    given = np.where(rng.random(900) < 0.2, (true + rng.integers(1, 3, 900)) % 3, true)
    folder = tmp_path_factory.mktemp("certified")
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", *"abcde", "label", "clean_label", "chosen_weight"])
        for i in range(900):
            clean = f"k{true[i]}" if i < 260 else ""
            writer.writerow([f"r{i}", *(f"{v:.4f}" for v in x[i]), f"k{given[i]}", clean, 1.0])
    command = ["correct", str(folder / "rows.csv"), "--output-dir", str(folder / "run"), "--no-report"]
    assert main([*command, "--feature-columns", "a,b,c,d,e"]) == 0
    return folder, x, given, true


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_python_and_folder_agree(world):
    folder, *_, true = world
    found = labelloop.certify(folder / "run", max_error=0.1)
    assert found.rows.any()
    assert not found.rows[:260].any(), "clean rows need no certificate"
    labels = [f"k{k}" for k in true]
    returned = labelloop.workflows.certify.read_run(folder / "run").labels["corrected_label"].to_pylist()
    wrong = np.array([a != b for a, b in zip(labels, returned, strict=True)])
    assert wrong[found.rows].mean() <= 0.1
    assert f"{found.rows.sum()} labels are certified: at most 10% of them are wrong, with 95% certainty" in repr(found)
    assert found.how == "measured"
    by_class = labelloop.certify(str(folder / "run"), max_error=0.1, by_class=True)
    assert [one["class"] for one in by_class.certificates] == ["k0", "k1", "k2"]
    weighted = labelloop.certify(folder / "run", max_error=0.1, clean_weight="chosen_weight")
    assert weighted.rows.any()
    with pytest.raises(labelloop.UsageError, match="has no column 'nothing'"):
        labelloop.certify(folder / "run", clean_weight="nothing")
    with pytest.raises(labelloop.UsageError, match="certify takes"):
        labelloop.certify(3)


def test_what_correct_returned_without_pairs(world):
    _, x, given, true = world
    y_clean = np.where(np.arange(900) < 260, true, -1)
    with pytest.warns(UserWarning, match="0 of 260 clean rows have a given label"):
        result = labelloop.correct(np.where(y_clean >= 0, -1, given), y_clean, embeddings=x)
    found = labelloop.certify(result, max_error=0.15)
    assert found.how == "bounded"
    assert found.rows.any()
    assert (result.corrected_labels != true)[found.rows].mean() <= 0.15
    assert "have no given labels" in found.notes[0]
    result.estimate["notes"].append("clean rows differ from the others: as `correct` warned")
    assert labelloop.certify(result, max_error=0.15).notes[0].startswith("clean rows differ")
    with pytest.raises(labelloop.UsageError, match="give the folder of a run"):
        labelloop.certify(result, clean_weight="w")


def test_export_only_certified_labels(world, tmp_path, capsys):
    folder, *_ = world
    certified = labelloop.certify(folder / "run", max_error=0.1).rows
    command = ["export", str(folder / "run"), "--to", "csv", "--max-error", "10%"]
    assert main([*command, "--output", str(tmp_path / "a.csv")]) == 0
    assert "labels are certified" in capsys.readouterr().out
    kept, rest = rows_of(tmp_path / "a.csv"), rows_of(tmp_path / "a.csv.review.csv")
    assert len(kept) == 260 + certified.sum()
    assert len(kept) + len(rest) == 900
    assert {row["key"] for row in kept}.isdisjoint(row["key"] for row in rest)
    assert all(row["clean_label"] == "" for row in rest)
    assert main([*command, "--output", str(tmp_path / "b.csv"), "--rest", "keep-given"]) == 0
    given = rows_of(tmp_path / "b.csv")
    assert len(given) == 900
    assert all(row["corrected_label"] == row["label"] for i, row in enumerate(given) if i >= 260 and not certified[i])
    assert main([*command, "--output", str(tmp_path / "c.csv"), "--rest", "drop", "--look", "1"]) == 0
    assert len(rows_of(tmp_path / "c.csv")) <= len(kept), "a first look of many spends half of the error probability"
    assert not (tmp_path / "c.csv.review.csv").exists()


def test_what_cannot_be_certified_is_refused_with_a_reason(world, tmp_path, capsys):
    folder, *_ = world
    command = ["export", str(folder / "run"), "--to", "csv", "--output", str(tmp_path / "a.csv")]
    assert main([*command, "--max-error", "0.1%"]) == 1
    assert "takes 2995 clean rows with a given label or more" in capsys.readouterr().out
    assert not (tmp_path / "a.csv").exists()
    assert main([*command, "--by-class"]) == 2
    assert "give --max-error as well" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--max-error", "two"])
    assert stopped.value.code == 2
    assert main(["export", str(folder / "run"), "--to", "issues", "--max-error", "10%", "--rest", "drop"]) == 2


def test_plan_a_random_sample_then_refit_with_it(world, tmp_path, capsys):
    folder, *_, true = world
    file = tmp_path / "verify.csv"
    command = ["plan", str(folder / "run"), "--max-error", "2%", "--count", "80", "--output", str(file)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "80 random rows to verify" in said
    assert "--random-sample" in said
    rows = rows_of(file)
    assert len(rows) == 80
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        names = {f"r{i}": f"k{true[i]}" for i in range(900)}
        number = "row" if "row" in rows[0] else "id"
        for row in rows:
            name = names[row["key"]] if "key" in row else f"k{true[int(row[number])]}"
            writer.writerow({**row, "clean_label": name})
    refit = ["refit", str(folder / "run"), "--clean-file", str(file), "--no-report"]
    assert main([*refit, "--output-dir", str(tmp_path / "new"), "--random-sample"]) == 0
    assert main([*refit, "--output-dir", str(tmp_path / "chosen")]) == 0
    more, same = (labelloop.certify(tmp_path / name, max_error=0.1) for name in ("new", "chosen"))
    assert more.certificates[0]["clean_rows"] > same.certificates[0]["clean_rows"]
