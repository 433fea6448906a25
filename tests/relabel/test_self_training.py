"""Learners taught a second time, by corrected labels: what they are taught, who judges them, and what it brings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from labelloop.relabel import calibration, correct_labels
from labelloop.relabel import relabel as correction
from labelloop.relabel import self_training as again
from labelloop.relabel.calibration import Inputs, Observations, families_without_given
from labelloop.relabel.learners.discriminant import Discriminant
from labelloop.relabel.noise_posterior import estimate_noise
from labelloop.relabel.self_training import Teaching, self_train, self_trained_scores
from labelloop.relabel.stacking import EVERYBODY, Combined, ValidationRows, best_of_each, combination

pytestmark = pytest.mark.slow

CLASSES = 3


def known(rows: int = 240, clean: int = 60, paired: int = 0, seed: int = 0, *, table: bool = True) -> Observations:
    """Three clouds of points, 30% of their given labels wrong, and weak scores."""
    rng = np.random.default_rng(seed)
    true = rng.integers(CLASSES, size=rows)
    given = np.where(rng.random(rows) < 0.3, (true + rng.integers(1, CLASSES, rows)) % CLASSES, true)
    inputs = (np.eye(CLASSES)[true] * 3 + rng.normal(size=(rows, CLASSES))).astype(np.float32)
    scores = (np.eye(CLASSES)[true] + rng.normal(size=(rows, CLASSES))).astype(np.float32)
    verified = np.where(np.arange(rows) < clean, true, -1)
    shown = np.where((verified >= 0) & (np.arange(rows) >= paired), -1, given)
    sample = np.flatnonzero((shown >= 0) & (verified < 0))
    return Observations(scores, shown, verified, sample, CLASSES, inputs=inputs, table=table, seed=seed)


def judges_of(observed: Observations) -> ValidationRows:
    return ValidationRows.all_clean(observed, np.random.default_rng(0))


def noise_only(validation: ValidationRows) -> Combined:
    learnt = best_of_each(validation, families_without_given(validation.observed), use_given=False)
    return combination(validation, learnt)


@pytest.mark.parametrize("paired", [0, 30])
def test_what_is_left_out_for_a_fold_is_what_its_rows_are_judged_by(paired):
    validation = judges_of(known(paired=paired))
    q = noise_only(validation)
    for posterior in (q, estimate_noise(validation, q.final).posterior(q)):
        for k in validation.folds:
            mine = validation.fold == k
            assert mine.any()
            np.testing.assert_allclose(posterior.predict(validation.rows[mine], k), posterior.oof[mine], atol=1e-4)
        np.testing.assert_array_equal(posterior.predict(np.arange(5, 9), EVERYBODY), posterior.final[5:9])


def stub(observed: Observations) -> Combined:
    """Soft labels that show which fold was left out: class k, or uniform where none was."""
    count = len(observed.given)
    uniform = np.full((count, CLASSES), 1 / CLASSES, np.float32)

    def without(rows, fold):
        return np.eye(CLASSES, dtype=np.float32)[np.full(len(rows), fold % CLASSES)]

    return Combined(uniform, uniform, {"stub": 1.0}, without)


def test_rows_teach_clean_labels_and_those_that_were_made_without_the_fold():
    observed = known()
    validation = judges_of(observed)
    lesson = Teaching(validation, stub(observed), np.arange(240), np.arange(240) % 4)
    mine, clean_rows = lesson.of_clean(1)
    assert set(mine) == set(validation.rows[validation.fold == 1])
    assert len(clean_rows) == 240 - len(mine)
    assert not set(mine) & set(clean_rows)
    taught = lesson.labels(clean_rows, 1)
    noisy = observed.clean[clean_rows] < 0
    np.testing.assert_array_equal(taught[noisy].argmax(axis=1), 1)
    np.testing.assert_array_equal(taught[~noisy].argmax(axis=1), observed.clean[clean_rows[~noisy]])
    np.testing.assert_allclose(lesson.labels(np.array([200]), EVERYBODY), [[1 / 3] * 3], atol=1e-6)


@pytest.mark.parametrize("table", [False, True])
def test_no_clean_row_is_scored_by_a_learner_that_knows_its_label(table):
    observed = known(table=table)
    validation = judges_of(observed)
    mine = validation.rows[validation.fold == 0]
    other = observed.clean.copy()
    other[mine] = (other[mine] + 1) % CLASSES

    def scores(clean):
        told = replace(observed, clean=clean)
        lesson = Teaching(replace(validation, observed=told), stub(told), np.arange(240), np.arange(240) % 4)
        return self_trained_scores(lesson)

    before, after = scores(observed.clean), scores(other)
    assert len(before) == len(after) == 1 + table
    for first, second in zip(before, after, strict=True):
        np.testing.assert_array_equal(first[mine], second[mine])
        assert (first[60:] != second[60:]).any()  # it did teach about the others


def test_clean_labels_without_meaning_teach_nothing_about_themselves():
    """Inputs, scores and labels of pure chance, each class a third: what judges itself would be right more often."""
    right = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        observed = replace(
            known(rows=400, clean=120, seed=seed),
            inputs=rng.normal(size=(400, 30)).astype(np.float32),
            scores=rng.normal(size=(400, CLASSES)).astype(np.float32),
            clean=np.append(rng.permutation(np.arange(120) % CLASSES), np.full(280, -1)),
            table=False,
        )
        validation = judges_of(observed)
        q = noise_only(validation)
        found = self_train(validation, q, estimate_noise(validation, q.final).posterior(q))
        right.append((found.oof.argmax(axis=1) == observed.clean[:120]).mean())
    assert np.mean(right) < 0.37  # with a fit on top of the learners' scores, 0.39


def test_the_weights_are_of_all_that_spoke():
    validation = judges_of(known())
    q = noise_only(validation)
    found = self_train(validation, q, estimate_noise(validation, q.final).posterior(q))
    assert sum(found.weights.values()) == pytest.approx(1)
    assert set(found.weights) == {"taught by corrected labels", *q.weights}


def test_a_discriminant_of_soft_labels_by_hand():
    """Classes at -1 and 1 with variance 1, and 1% of it more: the log-odds at x are 2 x / 1.01."""
    model = Discriminant().fit(np.array([[-2.0], [0], [0], [2]]), np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]]))
    odds = model.log_proba(np.array([[0.5], [-3.0]]))
    np.testing.assert_allclose(odds[:, 1] - odds[:, 0], [1 / 1.01, -6 / 1.01], atol=1e-9)
    soft = np.array([[1.0, 0], [0.5, 0.5], [0.5, 0.5], [0, 1]])
    model = Discriminant().fit(np.array([[-2.0], [0], [0], [2]]), soft)
    odds = model.log_proba(np.array([[1.0]]))
    np.testing.assert_allclose(odds[0, 1] - odds[0, 0], 2 / 1.01, atol=1e-9)  # again means of ±1 and (8 - 4) / 4


def noisy_digits(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows that look like another class go wrong most, towards that class."""
    inputs, true = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(true))[:900]
    inputs, true = inputs[rows].astype(np.float32), true[rows]
    lures = (inputs - inputs.mean(axis=0)) / (inputs.std(axis=0) + 1e-6) @ rng.normal(size=(64, 10)) / 8
    lures[np.arange(900), true] = -np.inf
    rank = np.argsort(np.argsort(lures.max(axis=1))) / 900
    given = np.where(rng.random(900) < 0.8 * rank, lures.argmax(axis=1), true)
    clean = np.where(np.arange(900) < 60, true, -1)
    return inputs, true, np.where(clean >= 0, -1, given), clean


def test_labels_that_were_taught_again_are_better(monkeypatch):
    inputs, true, given, clean = noisy_digits(1)

    def right() -> float:
        found = correct_labels(given, clean, 10, embeddings=inputs, table=True).targets
        return float((found.argmax(axis=1) == true)[clean < 0].mean())

    twice = right()
    monkeypatch.setattr(correction, "self_train", lambda validation, q, posterior: q)
    once = right()
    assert once > (given == true)[clean < 0].mean() + 0.1
    assert twice > once + 0.05


def test_fewer_than_twenty_clean_rows_teach_once(monkeypatch):
    inputs, _, given, clean = noisy_digits(1)
    asked = []
    monkeypatch.setattr(
        correction, "self_train", lambda validation, q, posterior: asked.append(len(validation.rows)) or q
    )
    few = np.where(np.arange(900) < 19, clean, -1)
    correct_labels(given, few, 10, embeddings=inputs, table=True)
    correct_labels(given, clean, 10, pred_probs=np.full((900, 10), 0.1, np.float32))  # no inputs, no learners
    assert not asked
    correct_labels(given, clean, 10, embeddings=inputs, table=True)
    assert asked == [60]


def test_only_some_rows_are_learnt_from_where_there_are_many(monkeypatch):
    monkeypatch.setattr(again, "MOST", 50)
    observed = known()
    lesson = again._teaching(judges_of(observed), stub(observed))
    assert len(lesson.rows) == 110
    assert set(range(60)) <= set(lesson.rows)
    assert all(len(scores) == 240 and np.isfinite(scores).all() for scores in self_trained_scores(lesson))


def test_learners_of_the_clean_rows_alone_are_fitted_once_for_all_rounds(monkeypatch):
    """A second round with other scores gives bit for bit what it gives without the fits of the first."""
    inputs, _, given, clean = noisy_digits(1)
    first, second = np.random.default_rng(0).normal(size=(2, 900, 10)).astype(np.float32)
    counts, fit, kept = [], calibration.CleanOnly, {}
    monkeypatch.setattr(calibration, "CleanOnly", lambda predict: counts.append(1) or fit(predict))
    correction.relabel(first, given, clean, 10, inputs=Inputs(inputs), clean_fits=kept)
    assert len(counts) == len(kept) >= 15  # three strengths, without each of five folds
    found = correction.relabel(second, given, clean, 10, inputs=Inputs(inputs), clean_fits=kept)
    fresh = len(kept)
    counts.clear()
    again = correction.relabel(second, given, clean, 10, inputs=Inputs(inputs))
    assert fresh < len(counts) + 6
    np.testing.assert_array_equal(found.posterior.final, again.posterior.final)
