"""How intense the noise is: the score by finite differences, what is exact on average, and how far it is off."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.relabel import simulated_labels
from labelloop.relabel.noise_model import estimate_transition
from labelloop.relabel.relabel import relabel
from labelloop.relabel.simulated_labels import LEAST, Intensity, RightShare

MATRIX = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.3, 0.1, 0.6]])


def some(seed: int, rows: int, classes: int, sharp: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """P(y | x) of some rows, and true labels drawn from it."""
    rng = np.random.default_rng(seed)
    q = np.exp(sharp * rng.normal(size=(rows, classes)))
    q /= q.sum(axis=1, keepdims=True)
    return q, (rng.random((rows, 1)) > q.cumsum(axis=1)).sum(axis=1).clip(max=classes - 1)


def drawn(matrix: np.ndarray, true: np.ndarray, seed: int) -> np.ndarray:
    uniform = np.random.default_rng(seed).random((len(true), 1))
    return (uniform > matrix[true].cumsum(axis=1)).sum(axis=1).clip(max=len(matrix) - 1)


def test_the_score_is_the_derivative_of_the_log_likelihood():
    q, true = some(0, 40, 3)
    part = Intensity(MATRIX, q, drawn(MATRIX, true, 1), q[:5], true[:5])

    def likelihood(s: float) -> np.ndarray:
        scaled = np.eye(3) + s * (MATRIX - np.eye(3))
        return np.log((q @ scaled)[np.arange(40), part.given])

    for s in (0.3, 0.8, 1.2):
        slope = (likelihood(s + 1e-6) - likelihood(s - 1e-6)) / 2e-6
        np.testing.assert_allclose(part.scores(s)[0], slope, rtol=1e-5, atol=1e-7)


def test_on_average_the_scores_of_noisy_and_clean_rows_agree_whatever_the_predictions():
    """Exact: noisy and clean rows are the same ones, every label with its probability, and predictions are wrong."""
    _, true = some(2, 60, 3)
    wrong, _ = some(3, 60, 3)
    for s in (0.4, 1.0):
        scaled = np.eye(3) + s * (MATRIX - np.eye(3))
        expected = np.zeros(60)
        for k in range(3):
            part = Intensity(MATRIX, wrong, np.full(60, k), wrong, true)
            of_noisy, of_clean = part.scores(s)
            expected += scaled[true, k] * of_noisy
        np.testing.assert_allclose(expected, of_clean, atol=1e-10)


def test_the_score_of_right_predictions_is_zero_and_falls_by_the_information():
    q, _ = some(4, 50, 3)
    step, s = 1e-5, 0.7

    def mean_score(at: float) -> float:
        """The mean score at s = `at` of labels drawn with s = 0.7."""
        p, found = q @ (np.eye(3) + s * (MATRIX - np.eye(3))), 0.0
        for k in range(3):
            part = Intensity(MATRIX, q, np.full(50, k), q[:2], np.zeros(2, int))
            found += float((p[:, k] * part.scores(at)[0]).mean())
        return found

    information = Intensity(MATRIX, q, np.zeros(50, int), q[:2], np.zeros(2, int)).information(s)
    assert mean_score(s) == pytest.approx(0, abs=1e-12)
    assert (mean_score(s + step) - mean_score(s - step)) / (2 * step) == pytest.approx(-information, rel=1e-4)


@pytest.mark.parametrize("classes", [3, 8])
@pytest.mark.parametrize("bent", [1.0, 1.8], ids=["calibrated", "too sure"])
def test_the_share_is_found_within_its_error_where_a_fitted_matrix_is_not(classes, bent):
    """Labels 80% right, weak predictions, few rows: a matrix calls too many of them wrong, its intensity does not."""
    off, fitted, rows = [], [], 60 * classes
    matrix = np.full((classes, classes), 0.2 / (classes - 1)) + (0.8 - 0.2 / (classes - 1)) * np.eye(classes)
    for seed in range(60):
        q, true = some(seed, rows + 200, classes, 1.2)
        given = drawn(matrix, true, seed + 1000)
        said = q**bent / (q**bent).sum(axis=1, keepdims=True)
        halves, parts = np.arange(rows) % 2, []
        for half in (0, 1):
            rest = np.flatnonzero(halves != half)
            mine = np.flatnonzero(halves == half)
            learnt = estimate_transition(said[rest], given[rest], steps=50)
            parts.append(Intensity(learnt, said[mine], given[mine], said[rows:], true[rows:]))
        found = RightShare.of_parts(parts)
        off.append((found.value - 0.8) / found.error)
        whole = estimate_transition(said[:rows], given[:rows], steps=200)
        fitted.append(float((said[:rows] @ np.diag(whole)).mean()) - 0.8)
    low = np.mean(np.array(off) < -1.645)
    assert low <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 60), "too low in one run of twenty"
    assert abs(np.mean(off)) < 1
    assert np.mean(fitted) < -0.02, "what it is for"


def test_labels_that_are_all_right_have_no_intensity():
    q, true = some(5, 300, 3)
    part = Intensity(MATRIX, q[:200], true[:200], q[200:], true[200:])
    found = RightShare.of_parts([part])
    assert found.value > 1 - 2 * found.error
    certain = np.eye(3)[true]
    exact = RightShare.of_parts([Intensity(MATRIX, certain[:200], true[:200], certain[200:], true[200:])])
    assert exact.value == pytest.approx(1 - LEAST * part.wrong, abs=0.01)
    assert part.most == pytest.approx(1 / 0.4), "no entry of the matrix below zero"


def test_one_number_may_stand_for_a_matrix_with_few_rows_for_each_entry(monkeypatch):
    """The larger share counts, until there are enough rows for the matrix to be believed alone."""
    classes, count = 6, 400
    matrix = 0.75 * np.eye(classes) + 0.25 * np.roll(np.eye(classes), 1, axis=1)
    larger, level = [], []
    for seed in range(6):
        q, true = some(seed, count, classes, 2.0)
        given = drawn(matrix, true, seed + 500)
        clean = np.where(np.arange(count) < 60, true, -1)
        found = relabel(np.log(q).astype(np.float32), np.where(clean >= 0, -1, given), clean, classes, seed)
        asked = found.noise.validation, found.q, found.noise.transition
        few = RightShare.of(*asked)
        with monkeypatch.context() as patch:
            patch.setattr(simulated_labels, "ROWS_PER_ENTRY", 1)
            by_matrix = RightShare.of(*asked)
        larger.append(few.value > by_matrix.value)
        level.append(few.value == by_matrix.value)
    assert all(np.array(larger) | np.array(level))
    assert any(larger)
