"""What is said before a command begins, and after it ends."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa

from labelloop.cli import main
from labelloop.data.readers import read_table
from labelloop.relabel.bounds import InputsAlone
from labelloop.relabel.estimate import alternatives, by_class, estimate, estimate_lines
from labelloop.workflows.summary import CLASSES, CorrectedRows, result_text, schema_text


def rows(path, count=40):
    lines = ["id,x,when,note,label,clean_label"]
    for i in range(count):
        label = ["cat", "dog"][i % 2]
        lines.append(f"r{i},{i % 2},{1 + i % 28:02d}/02/2024,word {i},{label},{label if i < 8 else ''}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_dry_run_says_what_was_understood_and_writes_nothing(tmp_path, capsys):
    path = rows(tmp_path / "rows.csv")
    for command in ("fit", "correct"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert main([command, str(path), "--output-dir", str(tmp_path / "run"), "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert "given label: 'label' (guessed by its name)" in said
        assert "clean label: 'clean_label' (guessed by its name)" in said
        assert "'when' (date dd/mm/yyyy, as year, month, day, weekday)" in said
        assert "left out: 'note' (40 different values in 40 rows that share no words, like ids)" in said
        assert "2 classes; given labels: 40, clean labels: 8, both: 8" in said
        assert "read as missing: 0 given labels and 32 clean labels (blank)" in said
        assert said.rstrip().endswith("(--dry-run)")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert main([command, str(path), "--dry-run"]) == 0, "which needs no folder"
        assert capsys.readouterr().out == said
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_dry_run_on_unreadable_images_writes_nothing(tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / "a.png").write_bytes(b"no picture")
    assert main(["fit", str(tmp_path / "images"), "--output-dir", str(tmp_path / "run"), "--dry-run"]) == 1
    assert "2 of 2 images cannot be read (100.0%)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


def test_many_classes_are_not_listed_one_by_one(tmp_path):
    lines = ["x,label", *(f"{i},c{i % 500}" for i in range(1500))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    text = schema_text(read_table(tmp_path / "rows.csv"))
    assert f"... and {500 - CLASSES} smaller classes" in text
    assert len(text) < 3000


def test_a_class_that_shrinks_or_vanishes_is_loud():
    given = ["a"] * 10 + ["b"] * 10 + ["c"] * 10
    corrected = ["a"] * 17 + ["b"] * 3 + ["a"] * 10
    clean = np.arange(30) == 0
    changed = np.array([g != c for g, c in zip(given, corrected, strict=True)])
    labels = pa.table({"given_label": given, "corrected_label": corrected, "verified": clean, "changed": changed})
    text = result_text(labels, ["a", "b", "c"], {})
    assert "CLASS b SHRANK: from 10 rows to 3" in text
    assert "CLASS c IS GONE: 10 rows had it as given label" in text
    assert "CLASS a" not in text
    assert "look at these rows before you use the labels" in text


def test_of_many_classes_that_shrink_a_few_are_named():
    given, corrected = [f"{row % 40:02d}" for row in range(400)], ["00"] * 400
    labels = pa.table(
        {"given_label": given, "corrected_label": corrected, "verified": [False] * 400, "changed": [True] * 400}
    )
    text = result_text(labels, [f"{k:02d}" for k in range(40)], {})
    assert text.count("IS GONE") == 10
    assert "and 29 more such classes; look at these rows" in text


def test_clean_rows_are_no_corrections():
    labels = pa.table(
        {
            "given_label": ["a", "a", "b"],
            "corrected_label": ["b", "b", "b"],
            "verified": [True, False, False],
            "changed": [False, True, False],
        }
    )
    assert result_text(labels, ["a", "b"], {}).startswith("1 given label was corrected (not counting 1 clean row)")


def test_what_happens_to_each_class():
    given, clean = np.array([0, 0, 1, 1, -1]), np.array([0, 1, 1, 1, 0])
    said = np.eye(2)[[1, 1, 1, 0, 0]].astype(np.float32)
    counts = [{key: one[key] for key in ("good", "broken", "wrong", "fixed")} for one in by_class(said, given, clean)]
    assert counts == [
        {"good": 1, "broken": 1, "wrong": 0, "fixed": 0},
        {"good": 2, "broken": 1, "wrong": 1, "fixed": 1},
    ]
    found = alternatives(given, clean, 2)
    assert found == {"the given labels as they are": 0.75, "the most common class for all": 0.6}


def test_classes_at_risk_stand_first_and_one_estimate_is_told():
    share = {"value": 0.8, "low": 0.7, "high": 0.9, "rows": 30}
    labels = pa.table(
        {
            "given_label": ["NJ", "NY", "NY"],
            "corrected_label": ["NY", "NY", "NY"],
            "verified": [False, True, False],
            "changed": [True, False, False],
        }
    )
    counts = {"good": 1, "broken": 0, "wrong": 0, "fixed": 0, "clean_rows": 1}
    by_class = [
        {**counts, "precision": None, "recall": None, "given_precision": None, "given_recall": None},
        {**counts, "precision": share, "recall": share, "given_precision": share, "given_recall": share},
    ]
    estimate = {
        "at_risk": [{"class": 0, "why": "no clean row, and labels move away from it", "verify": 5}],
        "given_label_accuracy": share,
        "by_class": by_class,
    }
    lines = result_text(labels, ["NJ", "NY"], estimate).splitlines()
    assert lines[:2] == ["CLASSES AT RISK", "  NJ: no clean row, and labels move away from it; verify 5 of its rows"]
    assert lines[2] == "1 given label was corrected (not counting 1 clean row)"
    assert lines[3] == "wrong as given: 20.0% (10.0 to 30.0%)"
    assert "80% (70-90)" in lines[6]
    unseen = [{key: one[key] for key in counts} for one in by_class]  # counts of clean rows are shown, none as a dash
    text = result_text(labels, ["NJ", "NY"], {**estimate, "by_class": unseen})
    assert "0 of 1" in text
    assert "0 of 0" not in text
    old = result_text(labels, ["NJ", "NY"], {"by_class": None})  # of an earlier version
    assert old.startswith("1 given label was corrected")


def test_bounds_without_pairs_are_named_and_no_value_between_them_is_shown():
    """The estimate, the line that sums it up and the summary say the same."""
    rng = np.random.default_rng(0)
    given, clean = np.full(12, -1), rng.integers(2, size=12)
    noisy = rng.integers(2, size=40)
    alone = InputsAlone(noisy, np.full(40, 0.8), clean, np.full(12, 0.8), noisy, noisy)
    found = estimate(np.eye(2, dtype=np.float32)[clean], given, clean, alone=alone)
    names, no = ["a", "b"] * 20, [False] * 40
    labels = pa.table({"given_label": names, "corrected_label": names, "verified": no, "changed": no})
    arrays = dict.fromkeys(("corrected_labels", "corrected_proba", "label_score", "predicted_proba"), np.zeros(0))
    result = CorrectedRows(labels=labels, classes=np.array(["a", "b"]), estimate=found, **arrays)
    low, high = (100 * found["corrected_label_accuracy"][end] for end in ("low", "high"))
    assert f"right: {low:.1f} to {high:.1f}% (95% bounds without pairs)" in repr(result)
    assert any(f"{low:.1f}% to {high:.1f}% (95% bounds without pairs" in line for line in estimate_lines(found))
    said = result_text(result.labels, ["a", "b"], found)
    assert f"wrong as given: {100 - high:.1f} to {100 - low:.1f}% (95% bounds without pairs)" in said
