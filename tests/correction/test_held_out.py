"""Labels made after the loop from rows with both labels: who judges whom, and what is handed back."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from labelloop.experiments import finish as finish_module
from small_rows import QUICK, SmallRows, quick_fit, same_result, small_rows

from labelloop import LabelLoopClassifier
from labelloop.correction.judge import judge_finished
from labelloop.correction.stored_run import read_stored_run
from labelloop.errors import DataError
from labelloop.methods import METHODS
from labelloop.types import Problem, Rows
from labelloop.workflows.refit import corrected


def paired_rows() -> SmallRows:
    """One label in eight is wrong; rows 0-39 have both labels, 280-299 none."""
    rows, rng = small_rows(300), np.random.default_rng(1)
    y = np.where(rng.random(300) < 0.125, (rows.true + 1) % 3, rows.true)
    y[280:] = -1
    return SmallRows(rows.X, y, np.where(np.arange(300) < 40, rows.true, -1), rows.true)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run whose network learns by heart, in which the loop changes no label."""
    folder = tmp_path_factory.mktemp("finish") / "run"
    rows = paired_rows()
    config = QUICK | {"epochs": 30, "warm_up": 10, "correct_every": 10, "network_options": {"hidden": [64]}}
    return rows, quick_fit(rows, config=config, output_dir=folder), folder


def test_light_noise_is_corrected_and_the_estimate_judges_what_is_handed_back(finished):
    rows, result, _ = finished
    assert result.labels_from == "held-out networks"
    noisy = (rows.y >= 0) & (rows.y_clean < 0)
    before, after = ((labels == rows.true)[noisy].mean() for labels in (rows.y, result.corrected_labels))
    assert after > before + 0.05
    estimate = result.estimate["corrected_label_accuracy"]
    assert estimate["rows"] == 40
    assert estimate["low"] <= after <= estimate["high"]
    assert "had not seen the row" in result.estimate["notes"][0]
    assert result.estimate["loop_label_accuracy"]["value"] <= estimate["value"]
    assert not any("first correction" in note or "not calibrated" in note for note in result.estimate["notes"])
    assert (result.corrected_labels[280:] == rows.true[280:]).mean() > 0.8, "rows without a label get one"


def test_all_that_is_stored_agrees(finished):
    _, result, folder = finished
    table = pq.read_table(folder / "labels.parquet")
    np.testing.assert_array_equal(table["corrected_label"].to_numpy(), result.corrected_labels)
    np.testing.assert_array_equal(np.load(folder / "targets.npy"), result.corrected_proba)
    run = json.loads((folder / "run.json").read_text())
    assert run["labels_from"] == "held-out networks"
    assert run["estimate"] == result.estimate
    stored = read_stored_run(folder)
    assert stored.instant
    np.testing.assert_array_equal(corrected(stored)[0], result.corrected_proba)


def train_with(patch, fit):
    patch.setitem(METHODS, "cross-entropy", replace(METHODS["cross-entropy"], fit=fit))


def test_no_row_is_judged_by_a_network_that_has_seen_it(monkeypatch):
    rows, taught, asked = paired_rows(), [], []
    train, extract = METHODS["cross-entropy"].fit, finish_module.extract

    def fit_noisy(problem, config, runtime):
        assert config.epochs == QUICK["warm_up"]
        taught.append(problem.train)
        return train(problem, config, runtime)

    def ask(model, of, runtime):
        asked.append(of.index)
        return extract(model, of, runtime)

    train_with(monkeypatch, fit_noisy)
    monkeypatch.setattr(finish_module, "extract", ask)
    quick_fit(rows)
    assert len(taught) == len(asked) == 2
    assert sorted(np.concatenate(asked)) == list(range(300))
    for teachers, those in zip(taught, asked, strict=True):
        assert not np.isin(teachers.index, those).any()
        assert (rows.y_clean[teachers.index] < 0).all(), "clean rows teach no network"
        np.testing.assert_array_equal(teachers.labels, rows.y[teachers.index])


def test_few_pairs_leave_the_labels_to_the_loop():
    rows = paired_rows()
    y = np.where(np.arange(300) < 21, -1, rows.y)  # 19 pairs are left
    assert quick_fit(rows, y=y).labels_from == "closed-loop"


def test_the_better_labels_are_handed_back():
    labels = np.array([0, 1] * 15)
    problem = Problem(Rows(None, labels[:0], labels[:0], labels[:0]), Rows(None, labels, labels, labels), ("a", "b"))
    said = np.eye(2)[np.where(np.arange(30) < 3, 1 - labels, labels)]  # 27 of 30
    found = judge_finished(problem, said, {"corrected_label_accuracy": {"value": 0.9}})
    assert found is not None
    assert found["corrected_label_accuracy"]["value"] == 0.9
    assert "90.0% right" in found["notes"][0]
    assert judge_finished(problem, said, {"corrected_label_accuracy": {"value": 0.91}}) is None
    alone = judge_finished(problem, said, {"corrected_label_accuracy": None})
    assert alone is not None
    assert "cannot be judged" in alone["notes"][0]


def test_a_network_that_breaks_down_costs_no_run(monkeypatch):
    def broken(*_):
        raise DataError("training broke down")

    train_with(monkeypatch, broken)
    with pytest.warns(UserWarning, match="those of the loop alone"):
        assert quick_fit(paired_rows()).labels_from == "closed-loop"


def test_interrupted_after_the_loop_it_is_resumed_to_the_same(tmp_path, monkeypatch):
    rows = paired_rows()
    whole = quick_fit(rows)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        train_with(patch, stop)
        with pytest.raises(KeyboardInterrupt):
            quick_fit(rows, output_dir=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "interrupted"
    assert same_result(quick_fit(rows, output_dir=tmp_path / "run", resume=True), whole)


def test_the_estimator_has_the_same_labels():
    rows = paired_rows()
    result = quick_fit(rows)
    found = LabelLoopClassifier(config=QUICK, random_state=0).fit(rows.X, rows.y, rows.y_clean)
    assert found.labels_from_ == result.labels_from == "held-out networks"
    np.testing.assert_array_equal(found.corrected_labels_, result.corrected_labels)
    np.testing.assert_array_equal(found.corrected_proba_, result.corrected_proba)
    np.testing.assert_array_equal(found.label_quality_, result.label_score)
    assert found.estimate_ == result.estimate
