"""One experiment: the labels every method gets, what is recorded, the oracle, the logistic corrector."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from tiny_runs import tiny, without_clocks

from labelloop.bench.experiment import run_experiment
from labelloop.data.datasets import load_dataset
from labelloop.errors import DataError, UsageError
from labelloop.methods import METHODS, logistic
from labelloop.noise import realised_rate
from labelloop.seeds import stream
from labelloop.splits import clean_split, one_hot
from labelloop.training.runtime import Runtime
from labelloop.training.setup import resolve
from labelloop.types import MISSING, Problem, Rows, Truth
from labelloop.workflows.compose import noisy_problem, shown_to

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", limit=300)


def same_network(first, second):
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# --- the labels every method gets -------------------------------------------------------------------------------------


def test_every_method_gets_the_same_noisy_labels():
    records = [run_experiment(tiny(method), progress=False) for method in ("cross-entropy", "labelloop", "oracle")]
    assert len({record["noisy_labels_sha256"] for record in records}) == 1
    assert len({record["realised_rate"] for record in records}) == 1
    changed = [run_experiment(tiny(**change), progress=False) for change in ({"seed": 1}, {"rate": 0.2}, {"clean": 50})]
    assert len({record["noisy_labels_sha256"] for record in (records[0], *changed)}) == 4


@pytest.mark.parametrize("noise", ["symmetric", "pair", "instance"])
def test_a_rows_label_depends_on_neither_method_nor_clean_rows(noise, digits):
    labels = {}
    for method in ("closed-loop", "fine-tune"):
        for clean in (40, 60):
            problem, _, noisy = noisy_problem(tiny(method, noise=noise, clean=clean), digits)
            labels[method, clean] = noisy.labels
            assert (noisy.labels[problem.train.index] == problem.train.labels).all()
    first = labels["closed-loop", 40]
    assert len(labels) == 4
    assert all((other == first).all() for other in labels.values())


def test_the_clean_rows_are_drawn_before_any_label_is_corrupted(digits):
    expected = clean_split(digits.labels, 60, stream(0, "clean-split"))
    for noise, rate in (("symmetric", 0.0), ("symmetric", 0.9), ("instance", 0.4)):
        problem, _, _ = noisy_problem(tiny(noise=noise, rate=rate), digits)
        assert (problem.train.index == expected[0]).all()
        assert (problem.clean.index == expected[1]).all()
        assert (problem.clean.clean_labels == digits.labels[expected[1]]).all()
        counts = np.bincount(problem.clean.clean_labels, minlength=10)
        assert np.abs(counts - 0.2 * np.bincount(digits.labels)).max() <= 1  # each class in proportion


def test_paired_clean_rows_have_a_noisy_label(digits):
    unpaired, _, _ = noisy_problem(tiny(), digits)
    paired, _, noisy = noisy_problem(tiny(paired=True), digits)
    assert (unpaired.clean.labels == MISSING).all()
    assert (paired.clean.labels == noisy.labels[paired.clean.index]).all()
    assert (paired.clean.labels != paired.clean.clean_labels).any()


def test_without_noise_the_labels_are_those_of_the_data_set(digits):
    problem, _, noisy = noisy_problem(tiny(noise="none"), digits)
    assert (problem.train.labels == digits.labels[problem.train.index]).all()
    assert noisy.rate == 0


# --- the record -------------------------------------------------------------------------------------------------------


def test_the_record_says_all_of_every_epoch(digits):
    record = run_experiment(tiny("closed-loop"), progress=False)
    problem, truth, _ = noisy_problem(tiny(), digits)
    assert record["nominal_rate"] == 0.3
    assert record["realised_rate"] == realised_rate(truth.train_labels, problem.train.labels)
    assert (record["train_rows"], record["clean_rows_count"]) == (240, 60)
    assert record["data"]["fingerprint"] == digits.fingerprint
    assert [row["epoch"] for row in record["history"]] == [1, 2]
    for row in record["history"]:
        assert row["given_label_accuracy"] == pytest.approx(1 - record["realised_rate"])
        for key in ("test_accuracy", "corrected_label_accuracy", "changed_labels", "good_labels_broken"):
            assert 0 <= row[key] <= 1
        assert row["corrected_label_nll"] > 0
        assert 0 <= row["corrected_label_ece"] <= 1
        assert row["changed_label_accuracy"] is None or row["changed_labels"] > 0
        assert {"train", "evaluate"} <= set(row["seconds"])
        assert all(seconds >= 0 for seconds in row["seconds"].values())
        assert 10 < row["peak_memory_mib"] < 100_000
    weights = record["history"][-1]["weights"]
    assert sum(weights) == pytest.approx(1, abs=1e-6)
    corrected = [row for row in record["history"] if "corrector" in row["seconds"]]
    assert len(corrected) == len(record["rounds"]) == 1
    assert {"extract", "combination", "update"} <= set(corrected[0]["seconds"])
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_the_record_is_the_same_with_and_without_a_folder_and_again(tmp_path):
    experiment = tiny("closed-loop")
    first = run_experiment(experiment, progress=False)
    second = run_experiment(experiment, tmp_path / "run", progress=False)
    assert without_clocks(first) == without_clocks(second)


def test_what_nobody_knows_is_null_not_nan(monkeypatch):
    """A data set like Clothing1M: noisy labels, true ones only where verified."""
    data = load_dataset("digits", limit=300)
    clean = np.arange(0, 300, 5)
    true = np.full(300, MISSING)
    true[clean] = data.labels[clean]
    given = np.where(true == MISSING, (data.labels + 1) % 10, MISSING)
    partly = replace(data, labels=true, given_labels=given, clean_index=clean)
    monkeypatch.setattr("labelloop.workflows.noise.load_dataset", lambda *_, **__: partly)
    record = run_experiment(tiny("closed-loop", noise="none", clean=0), progress=False)
    assert record["realised_rate"] is None
    assert record["history"][-1]["corrected_label_accuracy"] is None
    assert record["train_rows"] == 240
    json.dumps(record, allow_nan=False)
    with pytest.raises(UsageError, match="which this data set does not have"):
        run_experiment(tiny("oracle", noise="none", clean=0), progress=False)


# --- the oracle -------------------------------------------------------------------------------------------------------


def test_only_the_oracle_is_shown_the_true_labels(digits):
    problem, truth, _ = noisy_problem(tiny(), digits)
    for name, method in METHODS.items():
        shown = shown_to(name, problem, truth)
        assert method.is_oracle == (name == "oracle")
        if name != "oracle":
            assert shown is problem
    shown = shown_to("oracle", problem, truth)
    assert (shown.train.labels == digits.labels[shown.train.index]).all()
    assert shown.clean is problem.clean
    assert (problem.train.labels != shown.train.labels).any()


def test_the_oracle_is_cross_entropy_on_data_without_noise():
    oracle = run_experiment(tiny("oracle"), progress=False)
    clean = run_experiment(tiny("cross-entropy", noise="none"), progress=False)
    noisy = run_experiment(tiny("cross-entropy"), progress=False)
    accuracies = [[row["test_accuracy"] for row in run["history"]] for run in (oracle, clean, noisy)]
    assert accuracies[0] == accuracies[1] != accuracies[2]
    assert oracle["history"][-1]["corrected_label_accuracy"] == 1
    assert oracle["realised_rate"] == noisy["realised_rate"] > 0  # of the labels that the others got


def test_there_is_no_oracle_outside_experiments(command, tmp_path):
    from labelloop.workflows.fit import fit

    with pytest.raises(UsageError, match="only `labelloop bench`"):
        fit(np.zeros((9, 2)), np.arange(9) % 3, np.arange(9) % 3, method="oracle")


# --- the logistic corrector -------------------------------------------------------------------------------------------


def blobs(paired: bool, noise: float, rows: int = 600) -> tuple[Problem, Truth]:
    """Three overlapping clouds; the first 100 rows are clean."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, rows)
    inputs = (np.eye(3)[true] * 1.5 + rng.normal(size=(rows, 3))).astype(np.float32)
    given = np.where(rng.random(rows) < noise, (true + 1) % 3, true)
    clean, train = np.arange(100), np.arange(100, rows)
    nothing = np.full(rows, MISSING)
    problem = Problem(
        Rows(inputs, train, given[train], nothing[train]),
        Rows(inputs, clean, given[clean] if paired else nothing[clean], true[clean]),
        ("a", "b", "c"),
    )
    return problem, Truth(true[train])


def fit_logistic(problem, truth=None, **changes):
    settings = {"epochs": 8, "warm_up": 4, "network_options": {"hidden": [16]}, "batch_size": 32} | changes
    runtime = Runtime(device="cpu", truth=truth, progress=False)
    fitted = logistic.fit(problem, resolve(logistic.Config(**settings), problem), runtime)
    return fitted, runtime.history


@pytest.mark.parametrize("paired", [False, True])
def test_the_logistic_corrector_mends_more_than_it_breaks(paired):
    problem, truth = blobs(paired, noise=0.3)
    fitted, history = fit_logistic(problem, truth)
    assert [row["stage"] for row in history] == ["warm-up"] * 4 + ["corrected labels"] * 8
    before, after = history[3]["corrected_label_accuracy"], history[4]["corrected_label_accuracy"]
    assert before == history[0]["given_label_accuracy"]
    assert after > before + (0.05 if paired else 0.01)
    assert history[-1]["corrected_label_accuracy"] == after  # corrected once
    assert len(fitted.rounds) == 1
    assert fitted.rounds[0]["epoch"] == 4


def test_a_real_noisy_label_teaches_more_than_an_expected_one():
    accuracies = [
        fit_logistic(*blobs(paired, noise=0.3))[1][-1]["corrected_label_accuracy"] for paired in (False, True)
    ]
    assert accuracies[1] > accuracies[0]


def test_the_columns_hold_the_label_or_what_is_expected_of_it():
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], np.float32))
    columns = logistic.columns(np.array([2, MISSING]), logits)
    np.testing.assert_allclose(columns[0], [0, 0, 1, *np.log([0.7, 0.2, 0.1])], atol=1e-6)
    np.testing.assert_allclose(columns[1], [0.1, 0.6, 0.3, *np.log([0.1, 0.6, 0.3])], atol=1e-6)


def test_the_second_network_is_that_of_cross_entropy_on_the_corrected_labels():
    problem, _ = blobs(True, noise=0.0)
    fitted, _ = fit_logistic(problem)
    hard = one_hot(fitted.targets.argmax(axis=1), 3)
    config = METHODS["cross-entropy"].config(epochs=8, network_options={"hidden": [16]}, batch_size=32)
    from labelloop.training.epoch import train_epoch
    from labelloop.training.setup import new_classifier, new_optimizer

    config, runtime = resolve(config, problem), Runtime(device="cpu", progress=False)
    model = new_classifier(config, problem, 0)
    optimizer = new_optimizer(model, config)
    for epoch in runtime.epochs(8):
        train_epoch(model, problem.train, fitted.targets, fitted.targets, 0.0, optimizer, config, runtime, epoch)
    assert same_network(model, fitted.model)
    assert (hard.argmax(axis=1) == problem.train.labels).mean() > 0.95


def test_a_class_without_clean_rows_gets_nothing_and_one_class_is_refused():
    problem, _ = blobs(False, noise=0.2)
    keep = np.flatnonzero(problem.clean.clean_labels != 2)
    two = Rows(problem.clean.inputs, *(part[keep] for part in rows_of(problem.clean)))
    fitted, _ = fit_logistic(Problem(problem.train, two, problem.class_names))
    np.testing.assert_allclose(fitted.targets.sum(axis=1), 1, atol=1e-5)
    assert (fitted.targets[:, 2] == 0).all()
    keep = np.flatnonzero(problem.clean.clean_labels == 2)
    one = Rows(problem.clean.inputs, *(part[keep] for part in rows_of(problem.clean)))
    with pytest.raises(DataError, match="at least two classes"):
        fit_logistic(Problem(problem.train, one, problem.class_names))


def rows_of(rows):
    return rows.index, rows.labels, rows.clean_labels


@pytest.mark.parametrize(("key", "value"), [("warm_up", 0), ("penalty", 0.0)])
def test_settings_of_the_logistic_corrector_that_make_no_sense(key, value):
    with pytest.raises(UsageError, match=key):
        logistic.Config(**{key: value})


def test_an_experiment_is_plain_data():
    experiment = tiny("closed-loop", name="a")
    assert type(experiment)(**json.loads(json.dumps(asdict(experiment)))) == experiment


def test_a_bench_measures_the_labels_that_a_method_returns():
    record = run_experiment(tiny("closed-loop", paired=True, rate=0.2), progress=False)
    measured = dict(record["handed_back"])
    assert measured.pop("labels_from") == "closed-loop"
    assert len(measured) >= 7
    last = record["history"][-1]
    assert measured == {key: last[key] for key in measured}, "the loop returns what it trained on last"
    assert "handed_back" not in run_experiment(tiny("cross-entropy"), progress=False)
