"""Labels made after the loop from rows with both labels: who judges whom, and what is returned."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_rows import QUICK as LOOP
from small_rows import SmallRows, quick_fit, same_result, small_rows
from tiny_runs import tiny, without_clocks

from labelloop import LabelLoopClassifier
from labelloop.bench.experiment import run_experiment
from labelloop.errors import DataError, UsageError
from labelloop.methods.closed_loop import halves
from labelloop.methods.closed_loop.one_correction import estimate_held_out
from labelloop.types import Problem, Rows
from labelloop.workflows.compose import load_data, noisy_problem
from labelloop.workflows.refit import corrected
from labelloop.workflows.stored_run import read_stored_run

QUICK = LOOP | {"final_labels": "held_out", "beliefs": "all"}


def paired_rows() -> SmallRows:
    """One label in eight is wrong; rows 0-39 have both labels, 280-299 none."""
    rows, rng = small_rows(300), np.random.default_rng(1)
    y = np.where(rng.random(300) < 0.125, (rows.true + 1) % 3, rows.true)
    y[280:] = -1
    return SmallRows(rows.X, y, np.where(np.arange(300) < 40, rows.true, -1), rows.true)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run whose network memorises its labels, in which the loop changes no label."""
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


def train_with(patch, train_epoch):
    patch.setattr(halves, "train_epoch", train_epoch)


@pytest.mark.parametrize("simulation", ["posterior", "by_row"])
def test_no_row_is_judged_by_a_network_that_has_seen_it(monkeypatch, simulation):
    rows, taught, asked = paired_rows(), {}, []
    train, extract = halves.train_epoch, halves.extract

    def watch(model, of, *rest):
        taught.setdefault(id(rest[3]), (of, rest[3]))  # by optimiser, which is kept: the networks are two
        return train(model, of, *rest)

    def fitted(model, of, runtime):
        asked.append(of.index)
        return extract(model, of, runtime)

    train_with(monkeypatch, watch)
    monkeypatch.setattr(halves, "extract", fitted)
    quick_fit(rows, config=QUICK | {"simulation": simulation})
    assert len(taught) == 2
    each = len(asked) // 2  # of a network: an epoch's sample, epoch by epoch, then noisy rows and clean rows
    assert sorted(np.concatenate([*asked[each - 2 : each], *asked[-2:]])) == list(range(300)), "each row is asked once"
    for number, (clean_rows, _) in enumerate(taught.values()):
        those = np.concatenate(asked[number * each : (number + 1) * each])
        assert not np.isin(clean_rows.index, those).any()
        assert (rows.y_clean[clean_rows.index] < 0).all(), "clean rows teach no network"
        np.testing.assert_array_equal(clean_rows.labels, rows.y[clean_rows.index])


def test_the_labels_of_the_start_are_those_that_are_returned(monkeypatch):
    """The half-networks of the loop are trained once; nothing is trained after the loop."""
    rows, trained = paired_rows(), []
    train = halves.train_epoch

    def watch(model, of, *rest):
        trained.append(len(of))
        return train(model, of, *rest)

    train_with(monkeypatch, watch)
    result = quick_fit(rows, config=QUICK | {"simulation": "by_row"})
    assert len(trained) == 2 * QUICK["warm_up"]
    assert result.labels_from == "held-out networks"


def test_few_pairs_are_judged_through_the_estimated_noise():
    rows = paired_rows()
    y = np.where(np.arange(300) < 21, -1, rows.y)  # 19 pairs are left
    result = quick_fit(rows, y=y, config=QUICK)
    assert result.labels_from == "held-out networks"
    assert "estimated noise" in " ".join(result.estimate["notes"])
    noisy = (y >= 0) & (rows.y_clean < 0)
    assert (result.corrected_labels == rows.true)[noisy].mean() >= (y == rows.true)[noisy].mean()
    assert "clean rows" in result.record.about["guard"]["line"]


def test_few_labels_leave_it_to_the_loop():
    rows = paired_rows()
    y = np.where(np.arange(300) < 55, rows.y, -1)  # 15 noisy rows
    assert quick_fit(rows, y=y, config=QUICK).labels_from == "closed-loop"


def test_the_better_labels_are_handed_back():
    labels = np.array([0, 1] * 15)
    problem = Problem(Rows(None, labels[:0], labels[:0], labels[:0]), Rows(None, labels, labels, labels), ("a", "b"))
    said = np.eye(2)[np.where(np.arange(30) < 3, 1 - labels, labels)]  # 27 of 30
    found = estimate_held_out(problem, said, {"corrected_label_accuracy": {"value": 0.95, "low": 0.85}})
    assert found is not None
    assert found["corrected_label_accuracy"]["value"] == 0.9
    assert "95.0% right" in found["notes"][0]
    assert estimate_held_out(problem, said, {"corrected_label_accuracy": {"value": 0.97, "low": 0.91}}) is None
    alone = estimate_held_out(problem, said, {"corrected_label_accuracy": None})
    assert alone is not None
    assert "cannot be judged" in alone["notes"][0]


def test_interrupted_after_the_loop_it_is_resumed_to_the_same(tmp_path, monkeypatch):
    rows = paired_rows()
    whole = quick_fit(rows, config=QUICK)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        train_with(patch, stop)
        with pytest.raises(KeyboardInterrupt):
            quick_fit(rows, config=QUICK, output_dir=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "interrupted"
    assert same_result(quick_fit(rows, config=QUICK, output_dir=tmp_path / "run", resume=True), whole)


def test_the_estimator_has_the_same_labels():
    rows = paired_rows()
    result = quick_fit(rows, config=QUICK)
    found = LabelLoopClassifier(config=QUICK, random_state=0).fit(rows.X, rows.y, rows.y_clean)
    assert found.labels_from_ == result.labels_from == "held-out networks"
    np.testing.assert_array_equal(found.corrected_labels_, result.corrected_labels)
    np.testing.assert_array_equal(found.corrected_proba_, result.corrected_proba)
    np.testing.assert_array_equal(found.label_quality_, result.label_score)
    assert found.estimate_ == result.estimate


def test_the_paper_hands_back_the_labels_of_its_loop(monkeypatch):
    def no_further_network(*_):
        raise AssertionError

    train_with(monkeypatch, no_further_network)
    rows = paired_rows()
    result = quick_fit(rows, config=QUICK | {"final_labels": "loop", "simulation": "posterior"})
    assert result.labels_from == "closed-loop"
    assert quick_fit(rows, recipe="paper", config=LOOP | {"network": "mlp"}).config.final_labels == "loop"
    with pytest.raises(UsageError, match="held_out"):
        quick_fit(rows, config=QUICK | {"final_labels": "heldout"})


def test_a_bench_measures_the_labels_that_fit_hands_back():
    config = QUICK | {"final_labels": "held_out"}
    chosen, kept = (
        run_experiment(tiny("closed-loop", paired=True, clean=60, rate=0.2, config=config | change), progress=False)
        for change in ({}, {"final_labels": "loop"})
    )
    assert without_clocks(chosen)["history"] == without_clocks(kept)["history"], "the loop itself is the same"
    assert kept["handed_back"]["labels_from"] == "closed-loop"
    last = kept["history"][-1]
    measured = {key: value for key, value in kept["handed_back"].items() if key != "labels_from"}
    assert len(measured) >= 7
    assert measured == {key: last[key] for key in measured}
    data = load_data(tiny("closed-loop", paired=True, clean=60, rate=0.2))
    problem, _, _ = noisy_problem(tiny("closed-loop", paired=True, clean=60, rate=0.2), data)
    y, y_clean = np.full((2, len(data)), -1)
    y[problem.train.index], y[problem.clean.index] = problem.train.labels, problem.clean.labels
    y_clean[problem.clean.index] = problem.clean.clean_labels
    fitted = quick_fit(SmallRows(data.inputs, y, y_clean, data.labels), config=config)
    assert fitted.labels_from == chosen["handed_back"]["labels_from"] == "held-out networks"
    right = (fitted.corrected_labels == data.labels)[problem.train.index].mean()
    assert chosen["handed_back"]["corrected_label_accuracy"] == pytest.approx(right)
    assert chosen["estimate"] == fitted.estimate


def test_runs_that_return_other_labels_have_other_keys():
    paired, unpaired = (
        {tiny("closed-loop", paired=paired, config={"final_labels": choice}).key for choice in ("loop", "held_out")}
        for paired in (True, False)
    )
    assert len(paired) == len(unpaired) == 2


def test_a_network_that_breaks_down_after_the_loop_costs_no_run(monkeypatch):
    def broken(*_):
        raise DataError("training broke down")

    train_with(monkeypatch, broken)
    with pytest.warns(UserWarning, match="the labels are the loop.s own"):
        found = quick_fit(paired_rows(), config=QUICK | {"simulation": "posterior"})
    assert found.labels_from == "closed-loop"


@pytest.mark.parametrize("simulation", ["transition", "by_row"])
def test_the_stored_scores_give_the_same_labels_again(tmp_path, simulation):
    rows = paired_rows()
    y = np.where(rows.y_clean >= 0, -1, rows.y)  # unpaired: the labels are the noise model's
    result = quick_fit(rows, y=y, config=QUICK | {"simulation": simulation}, output_dir=tmp_path / "run")
    assert result.labels_from == "held-out networks"
    np.testing.assert_array_equal(corrected(read_stored_run(tmp_path / "run"))[0], result.corrected_proba)
