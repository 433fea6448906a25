"""The default: rounds of cross-fitted networks. Everything that Proposition 1, the guard and a checkpoint promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from toys import new_folder, quiet, same_state, toy

from labelloop.errors import UsageError
from labelloop.methods import labelloop
from labelloop.methods.labelloop import Config, Corrector, fit, rows_worth_a_clean_one, settled
from labelloop.relabel.relabel import given_or
from labelloop.relabel.stacking import clean_loss, combine
from labelloop.runs.folder import RunFolder
from labelloop.splits import one_hot
from labelloop.training import cross_fit as cross_fit_file
from labelloop.training.cross_fit import Folds, Teaching, cross_fit
from labelloop.training.setup import resolve
from labelloop.types import MISSING, Correction, Problem


def tiny_config(problem: Problem, **changes: Any) -> Config:
    settings: dict[str, Any] = {
        "network": "mlp",
        "network_options": {"hidden": [8]},
        "epochs": 6,
        "batch_size": 32,
        "round_share": 0.34,
        "learners": "networks",
    }
    return resolve(Config(**(settings | changes)), problem)


def predictions(problem: Problem, seed: int, skill: float) -> Correction:
    """Log-probabilities that tell the true class of clean rows, and the given one of others, more or less well."""
    rng = np.random.default_rng(seed)
    found = []
    for rows, labels in ((problem.train, problem.train.labels), (problem.clean, problem.clean.clean_labels)):
        logits = rng.normal(size=(len(rows), problem.num_classes)) + skill * one_hot(labels, problem.num_classes)
        found.append((logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32))
    return Correction(*found)


def before_the_first_round(problem: Problem, learners: str = "networks", folds: int = 2) -> Corrector:
    return Corrector.of(problem, Folds.dealt(problem, 0, folds), tiny_config(problem, learners=learners), 0)


def teaching(targets: np.ndarray, folds: Folds, repeats: int) -> Teaching:
    return Teaching([targets[folds.taught(k)] for k in range(folds.count)], repeats)


# --- the combination over rounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("paired", "learners"), [(True, "all"), (True, "networks"), (False, "networks")])
def test_proposition_1_holds_over_rounds_on_the_clean_rows(paired, learners):
    """Eq. 5 never loses to the given label, to any round, or to the weights of the round before."""
    problem, _ = toy(n=120, m=40, paired=40 if paired else 0)
    corrector = before_the_first_round(problem, learners)
    before = np.inf
    for number, skill in enumerate((2.0, 0.5, 3.0)):
        corrector.next_round(predictions(problem, number, skill))
        shown = corrector.shown
        true = np.tile(problem.clean.clean_labels, len(shown))
        components = [one_hot(shown.ravel(), 3), *(part.of_clean for part in corrector.past)]
        loss = clean_loss(components, true, corrector.weights)
        each = [clean_loss([part], true, np.ones(1)) for part in components]
        assert loss <= min(each) + 1e-9
        assert loss <= before + 1e-9
        before = loss
    assert len(corrector.past) == 3


def test_the_prior_counts_as_ten_clean_rows_that_chose_the_newest_round():
    problem, _ = toy(n=100, m=30)
    corrector = before_the_first_round(problem)
    corrector.next_round(predictions(problem, 0, 1.0))
    corrector.next_round(predictions(problem, 1, 2.0))
    expected = (30 * corrector.weights + 10 * np.array([0, 0, 1])) / 40
    np.testing.assert_allclose(corrector.mixing, expected)


def test_drawn_given_labels_stay_the_same_in_all_rounds_and_real_ones_are_real():
    problem, _ = toy(n=100, m=30, paired=30)
    half = replace(problem.clean, labels=np.where(np.arange(30) % 2, problem.clean.labels, MISSING))
    problem = replace(problem, clean=half)
    corrector = before_the_first_round(problem)
    corrector.next_round(predictions(problem, 0, 1.0))
    first = corrector.shown.copy()
    corrector.next_round(predictions(problem, 1, 2.0))
    np.testing.assert_array_equal(corrector.shown, first)
    given = problem.clean.labels
    assert (first[:, given != MISSING] == given[given != MISSING]).all()
    assert (first != MISSING).all()


@pytest.mark.parametrize(("paired", "count"), [(True, 2), (False, 2), (False, 4)])
def test_what_teaches_a_network_is_corrected_without_the_clean_rows_that_it_predicts(paired, count):
    """Other clean labels in fold 0 change neither what teaches network 0 nor what Eq. 5 sees of fold 0."""
    problem, _ = toy(n=120, m=48, paired=48 if paired else 0)
    config = tiny_config(problem, learners="all" if paired else "networks")
    folds = Folds.dealt(problem, 0, count)
    other = problem.clean.clean_labels.copy()
    other[folds.clean == 0] = (other[folds.clean == 0] + 1) % 3
    changed = replace(problem, clean=replace(problem.clean, clean_labels=other))
    log_p, found = predictions(problem, 0, 1.0), []
    shown = problem.clean.labels[None] if paired else problem.clean.clean_labels[None]
    for each in (problem, changed):
        corrector = Corrector.of(each, folds, config, 0)
        corrector.shown = shown
        corrector.next_round(log_p)
        found.append(corrector.past[0])
    before, after = found
    of_fold = folds.clean == 0
    np.testing.assert_array_equal(after.of_networks[0], before.of_networks[0])
    np.testing.assert_array_equal(after.of_clean[of_fold], before.of_clean[of_fold])
    for k in range(1, count):
        assert not np.array_equal(after.of_networks[k], before.of_networks[k])
    assert not np.array_equal(after.of_clean[~of_fold], before.of_clean[~of_fold])


def test_each_network_is_taught_about_its_own_rows_and_expected_accuracy_is_a_mean_over_them():
    """By hand: three folds, so every row teaches two networks; a row that both are sure of counts as one."""
    problem, _ = toy(n=30, m=12)
    corrector = before_the_first_round(problem, folds=3)
    targets, _, record = corrector.next_round(predictions(problem, 0, 1.0))
    fold = Folds.dealt(problem, 0, 3).train
    assert [len(soft) for soft in targets] == [int((fold != k).sum()) for k in range(3)]
    np.testing.assert_allclose(
        record["expected_accuracy"], np.concatenate(targets).max(axis=1).mean(dtype=np.float64), rtol=1e-6
    )
    sure = [np.eye(3, dtype=np.float32)[np.zeros(len(soft), int)] for soft in targets]
    unsure = [np.full_like(soft, 1 / 3) for soft in targets]
    assert corrector.rows.expected_accuracy(sure) == 1.0
    assert corrector.rows.expected_accuracy([sure[0], *unsure[1:]]) == pytest.approx((20 * 1 + 40 / 3) / 60, rel=1e-6)


@pytest.mark.parametrize(("folds", "rows", "count"), [(0, 90, 4), (0, 6000, 2), (2, 90, 2), (5, 90, 5)])
def test_few_rows_are_dealt_into_four_folds(folds, rows, count):
    problem, _ = toy(n=rows, m=30)
    assert tiny_config(problem, folds=folds).folds_of(problem) == count


def test_images_are_dealt_into_two_folds_however_few():
    problem, _ = toy(n=90, m=30)
    images = replace(problem, train=replace(problem.train, inputs=np.zeros((90, 1, 4, 4), np.float32)))
    assert tiny_config(problem).folds_of(images) == 2


def test_the_labels_that_the_loop_ends_with_are_taught_by_all_clean_rows():
    problem, _ = toy(n=150, m=60, paired=60)
    corrector = before_the_first_round(problem)
    teaching, _, _ = corrector.next_round(predictions(problem, 0, 1.0))
    targets, returned = corrector.ended(problem, tiny_config(problem))
    fold = Folds.dealt(problem, 0, 2).train
    assert not any(np.array_equal(targets[fold != k], teaching[k]) for k in range(2))
    whole = corrector.rows.relabel(corrector.scores[0], corrector.scores[0])
    parts = [given_or(problem.train.labels, whole.posterior.final[corrector.rows.of_train])]
    parts.append(whole.posterior.final[corrector.rows.of_train])
    np.testing.assert_allclose(targets, combine(parts, corrector.mixing), atol=1e-6)
    assert returned.estimate["corrected_label_accuracy"]["rows"] == 60


@pytest.mark.parametrize("clean", [2, 3])
def test_with_fewer_than_four_clean_rows_there_is_one_round(clean):
    problem, _ = toy(n=90, m=clean)
    assert len(fit(problem, tiny_config(problem, rounds=3), quiet()).rounds) == 1


def test_labels_of_the_last_round_are_returned_after_the_guard():
    problem, _ = toy(n=150, m=60, paired=60)
    found = fit(problem, tiny_config(problem, rounds=1, learners="all"), quiet())
    assert found.returned.labels_from == "labelloop"
    assert found.returned.train.shape == found.targets.shape
    np.testing.assert_allclose(found.returned.train.sum(axis=1), 1, atol=1e-5)
    assert found.returned.guard["rows"] == 150
    assert any("a few points too high" in note for note in found.returned.estimate["notes"])
    assert found.returned.estimate["corrected_label_accuracy"]["rows"] == 60
    assert [one["round"] for one in found.rounds] == list(range(1, len(found.rounds) + 1))
    assert len(found.rounds[-1]["weights"]) == len(found.rounds) + 1
    assert found.returned.scores.train.shape[0] == 150


# --- how many rounds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "expected", "stops"),
    [
        ([0.5], [0.7], False),  # the first round is not compared
        ([0.5, 0.489], [0.7, 0.7], False),  # 100 rows gain 1.1 of log-likelihood
        ([0.5, 0.491], [0.7, 0.7], True),  # 0.9
        ([0.5, 0.5], [0.7, 0.706], False),  # the expected accuracy rises by 0.6 points
        ([0.5, 0.5], [0.7, 0.704], True),
        ([0.9, 0.5, 0.5], [0.6, 0.7, 0.7], True),  # only the last two count
    ],
)
def test_rounds_end_when_neither_clean_rows_nor_the_noise_model_gain(losses, expected, stops):
    rounds = [{"clean_loss": a, "expected_accuracy": b} for a, b in zip(losses, expected, strict=True)]
    assert settled(rounds, 100) is stops


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_there_is_a_setting_for_no_rounds_and_for_few(rounds, monkeypatch):
    problem, _ = toy(n=90, m=30)
    monkeypatch.setattr(labelloop, "settled", lambda rounds, rows: False)
    assert len(fit(problem, tiny_config(problem, rounds=rounds), quiet()).rounds) == rounds + 1


def test_networks_go_on_from_the_last_round_and_learn_its_targets(monkeypatch):
    problem, _ = toy(n=90, m=30)
    seen = []
    real = cross_fit

    def watch(problem, folds, teaching, config, runtime, networks):
        copied = [soft.copy() for soft in teaching.targets]
        seen.append((copied, teaching.repeats, [same.state_dict() for same in networks]))
        networks, log_p = real(problem, folds, teaching, config, runtime, networks)
        seen[-1] += ([network.state_dict() for network in networks],)
        return networks, log_p

    monkeypatch.setattr(labelloop, "cross_fit", watch)
    monkeypatch.setattr(labelloop, "settled", lambda rounds, rows: False)
    found = fit(problem, tiny_config(problem, rounds=1), quiet())
    (targets, repeats, start, made), (again, _, went_on, _) = seen
    fold = Folds.dealt(problem, quiet().seed, 4).train
    for k in range(4):
        np.testing.assert_array_equal(targets[k], one_hot(problem.train.labels[fold != k], 3))
    assert (repeats, start) == (labelloop.FIRST_REPEATS, [])
    assert all(same_state(a, b) for a, b in zip(made, went_on, strict=True))
    assert not any(np.array_equal(again[k], targets[k]) for k in range(4))
    assert not any(np.array_equal(found.targets[fold != k], again[k]) for k in range(4))


def test_a_value_that_does_not_fit_is_refused():
    for wrong in (
        {"rounds": -1},
        {"round_share": 0.0},
        {"round_share": 1.5},
        {"learners": "forest"},
        {"folds": 1},
        {"folds": -2},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Config(**wrong)


# --- predictions of rows that were not seen ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 4])
def test_a_row_is_predicted_by_a_network_that_has_seen_neither_its_target_nor_its_clean_label(count):
    """Other labels in fold 0 leave the predictions of fold 0 as they are, bit for bit, and change all others."""
    problem, _ = toy(n=80, m=30)
    config, folds = tiny_config(problem).in_a_round(), Folds.dealt(problem, 0, count)
    targets = one_hot(problem.train.labels, 3)
    _, before = cross_fit(problem, folds, teaching(targets, folds, 2), config, quiet())
    other = targets.copy()
    other[folds.train == 0] = np.roll(other[folds.train == 0], 1, axis=1)
    clean = problem.clean.clean_labels.copy()
    clean[folds.clean == 0] = (clean[folds.clean == 0] + 1) % 3
    changed = replace(problem, clean=replace(problem.clean, clean_labels=clean))
    _, after = cross_fit(changed, folds, teaching(other, folds, 2), config, quiet())
    for name, fold in (("train", folds.train), ("clean", folds.clean)):
        np.testing.assert_array_equal(getattr(after, name)[fold == 0], getattr(before, name)[fold == 0])
        for k in range(1, count):
            assert not np.array_equal(getattr(after, name)[fold == k], getattr(before, name)[fold == k])


@pytest.mark.parametrize("count", [2, 4])
def test_folds_of_clean_rows_have_their_share_of_every_class(count):
    problem, _ = toy(n=80, m=30)
    folds = Folds.dealt(problem, 0, count)
    for k in range(3):
        sizes = np.bincount(folds.clean[problem.clean.clean_labels == k], minlength=count)
        assert sizes.max() - sizes.min() <= 1
    assert np.bincount(folds.train).tolist() == [80 // count] * count


def test_rows_without_a_target_teach_nobody(monkeypatch):
    problem, _ = toy(n=80, m=30)
    targets = one_hot(problem.train.labels, 3)
    targets[::2] = 0
    counts = []
    monkeypatch.setattr(cross_fit_file, "train_epoch", lambda model, rows, *_: counts.append(len(rows)))
    folds = Folds.dealt(problem, 0, 2)
    cross_fit(problem, folds, teaching(targets, folds, 3), tiny_config(problem).in_a_round(), quiet())
    labelled = np.arange(80) % 2 == 1
    expected = [int((labelled & (folds.train != k)).sum()) + 3 * int((folds.clean != k).sum()) for k in range(2)]
    assert counts[:: len(counts) // 2] == expected


# --- clean rows in the final training ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "rows", "classes", "worth"),
    [(98, 98, 10, 1), (79, 98, 10, 2), (60, 98, 10, 3), (10, 98, 10, 4), (49, 98, 2, 4)],
)
def test_a_clean_row_is_worth_as_many_rows_as_their_labels_are_weak(right, rows, classes, worth):
    """By hand: a = 80 / 100, α = (0.8 · 10 - 1) / 9 = 0.778, 1 / α² = 1.65, so 2 rows; a = 0.61 gives 3.1, so 3."""
    assert rows_worth_a_clean_one(right, rows, classes) == worth


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_at", ["a round", "an epoch"])
def test_an_interrupted_run_resumes_to_the_same_result_bit_for_bit(tmp_path, monkeypatch, stop_at):
    problem, _ = toy(n=90, m=30)
    config = tiny_config(problem, rounds=2)
    monkeypatch.setattr(labelloop, "settled", lambda rounds, rows: False)
    whole = fit(problem, config, quiet())
    calls = []

    class Stopped(Exception):
        pass

    def stopping(name, after):
        real = getattr(labelloop, name)

        def call(*args, **kwargs):
            calls.append(name)
            if len(calls) > after:
                raise Stopped
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        if stop_at == "a round":
            patch.setattr(labelloop, "cross_fit", stopping("cross_fit", 2))
        else:
            patch.setattr(labelloop, "train_epoch", stopping("train_epoch", 3))
        with pytest.raises(Stopped):
            fit(problem, config, quiet(folder=new_folder(tmp_path / "run")))
    trained = []
    real = labelloop.cross_fit
    monkeypatch.setattr(labelloop, "cross_fit", lambda *args: trained.append(1) or real(*args))
    again = fit(problem, config, quiet(folder=RunFolder(tmp_path / "run", resume=True)))
    assert len(trained) == (1 if stop_at == "a round" else 0)  # finished rounds are not trained again
    assert same_state(again.model.state_dict(), whole.model.state_dict())
    np.testing.assert_array_equal(again.targets, whole.targets)
    np.testing.assert_array_equal(again.returned.train, whole.returned.train)
    assert (again.rounds, again.returned.guard) == (whole.rounds, whole.returned.guard)


def test_rows_without_a_given_label_get_one():
    problem, _ = toy(n=90, m=30)
    train = replace(problem.train, labels=np.where(np.arange(90) % 3, problem.train.labels, MISSING))
    found = fit(replace(problem, train=train), tiny_config(problem, rounds=1), quiet())
    np.testing.assert_allclose(found.returned.train.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found.targets.sum(axis=1), 1, atol=1e-5)
