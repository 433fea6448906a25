"""How labels go wrong, estimated from noisy rows: numbers worked by hand, another solver, and known worlds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from labelloop.relabel.calibration import Observations
from labelloop.relabel.noise_model import (
    RowNoise,
    estimate_rate,
    estimate_row_noise,
    estimate_transition,
    label_posterior,
    transition_prior,
)
from labelloop.relabel.noise_posterior import estimate_noise
from labelloop.relabel.stacking import ValidationRows
from labelloop.types import MISSING

T = np.array([[0.7, 0.3, 0.0], [0.0, 0.6, 0.4], [0.1, 0.0, 0.9]])


def world(n: int = 4000, seed: int = 0, sharp: float = 2.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, true labels drawn from it, and given labels drawn through T."""
    rng = np.random.default_rng(seed)
    logits = sharp * rng.normal(size=(n, 3))
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    true = draw(q, rng)
    return q, true, draw(T[true], rng)


def log_likelihood(q: np.ndarray, transition: np.ndarray, given: np.ndarray) -> float:
    """Σ_i log Σ_y q_i(y) T[y, ỹ_i]."""
    return float(np.log((q * transition[:, given].T).sum(axis=1)).sum())


def draw(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.random((len(p), 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=p.shape[1] - 1)


def test_the_prior_by_hand():
    given = np.array([0, 0, 0, 1, -1])  # with one more each: 4, 2, 1
    prior = transition_prior(given, 3, rows=10, right=0.7)
    np.testing.assert_allclose(prior[0], [7, 3 * 2 / 3, 3 * 1 / 3])
    np.testing.assert_allclose(prior[2], [3 * 4 / 6, 3 * 2 / 6, 7])


def test_one_step_by_hand():
    q = np.array([[0.8, 0.2], [0.5, 0.5]])
    prior = np.array([[3.0, 1.0], [1.0, 3.0]])  # T begins at 3/4, 1/4
    found = estimate_transition(q, np.array([0, 1]), prior=prior, steps=1)
    # row 1: 0.8 * 3/4 to 0.2 * 1/4 is 12 to 1; row 2: 1/4 to 3/4
    np.testing.assert_allclose(found[0], np.array([3 + 12 / 13, 1 + 1 / 4]) / (4 + 12 / 13 + 1 / 4))
    np.testing.assert_allclose(found[1], np.array([1 + 1 / 13, 3 + 3 / 4]) / (4 + 1 / 13 + 3 / 4))


def test_the_posterior_by_hand():
    q = np.array([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]])
    found = label_posterior(q, np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([1, 0, -1]))
    np.testing.assert_allclose(found, [[0.08 / 0.20, 0.12 / 0.20], [0.72 / 0.80, 0.08 / 0.80], [0.3, 0.7]])


def test_the_matrix_is_found_again():
    q, _, given = world(20000)
    np.testing.assert_allclose(estimate_transition(q, given), T, atol=0.03)


def test_every_step_raises_the_likelihood():
    q, _, given = world(500)
    none = np.full((3, 3), 1e-9)
    found = [estimate_transition(q, given, prior=none + np.eye(3) * 1e-9, steps=k) for k in range(1, 30)]
    values = [log_likelihood(q, matrix, given) for matrix in found]
    assert (np.diff(values) > -1e-9).all()
    assert values[-1] > values[0] + 1


def test_another_solver_finds_the_same():
    q, _, given = world(300)
    prior = transition_prior(given, 3)

    def loss(flat):
        matrix = np.maximum(flat.reshape(3, 3), 1e-9)
        return -log_likelihood(q, matrix, given) - (prior * np.log(matrix)).sum()

    sums = {"type": "eq", "fun": lambda flat: flat.reshape(3, 3).sum(axis=1) - 1}
    solved = minimize(loss, np.full(9, 1 / 3), method="SLSQP", bounds=[(1e-6, 1)] * 9, constraints=sums)
    assert solved.success
    np.testing.assert_allclose(estimate_transition(q, given, steps=5000), solved.x.reshape(3, 3), atol=0.01)


def test_pairs_count_as_rows_whose_truth_is_known():
    q = np.full((4, 2), 0.5)
    pairs = np.array([[30.0, 10.0], [0.0, 60.0]])
    found = estimate_transition(q, np.full(4, -1), prior=np.full((2, 2), 1e-9), pairs=pairs)
    np.testing.assert_allclose(found, [[0.75, 0.25], [0, 1]], atol=1e-6)


def test_few_rows_leave_most_labels_right():
    q = np.array([[0.9, 0.1], [0.1, 0.9]])
    found = estimate_transition(q, np.array([1, 0]))
    assert (np.diag(found) > 0.5).all()


def test_no_label_and_a_class_that_nobody_has():
    prior = transition_prior(np.full(5, -1), 3)
    found = estimate_transition(np.full((5, 3), 1 / 3), np.full(5, -1))
    np.testing.assert_allclose(found, prior / prior.sum(axis=1, keepdims=True))
    found = estimate_transition(np.array([[0.5, 0.5, 0.0]] * 5), np.array([0, 1, 0, 1, 0]))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert (found > 0).all()


def test_row_noise_without_beta_is_a_matrix():
    q, _, given = world(50)
    log_p = np.log(q)
    noise = RowNoise(np.log(T + 1e-9), 0.0)
    np.testing.assert_allclose(noise.of_given(log_p, given), T[:, given].T, atol=1e-8)
    np.testing.assert_allclose(noise.posterior(q, log_p, given), label_posterior(q, T, given), atol=1e-6)
    np.testing.assert_allclose(noise.of_labels(log_p, given), T[given], atol=1e-8)


def test_a_label_drawn_from_the_row_alone_tells_nothing():
    q, _, given = world(50)
    noise = RowNoise(np.zeros((3, 3)), 1.0)
    np.testing.assert_allclose(noise.posterior(q, np.log(q), given), q)
    np.testing.assert_allclose(noise.of_given(np.log(q), given), np.tile(q[np.arange(50), given], (3, 1)).T)


def test_row_noise_by_hand():
    noise = RowNoise(np.log([[0.8, 0.2], [0.5, 0.5]]), 2.0)
    log_p = np.log([[0.6, 0.4]])
    np.testing.assert_allclose(noise.of_labels(log_p, np.array([0])), [[0.8 * 0.36 / 0.32, 0.2 * 0.16 / 0.32]])
    found = noise.of_given(log_p, np.array([1]))
    np.testing.assert_allclose(found, [[0.2 * 0.16 / 0.32, 0.16 / 0.52]])


def test_row_noise_has_the_right_slope(monkeypatch):
    from labelloop.relabel import noise_model as simulation

    q, _, given = world(40)
    log_p = np.log(np.random.default_rng(1).dirichlet(np.ones(3), 40))
    seen = []

    def look(loss, start, **_):
        point = start + np.random.default_rng(2).normal(size=start.shape)
        seen.append((loss(point)[1], approx_fprime(point, lambda at: loss(at)[0], 1e-6)))
        return start

    monkeypatch.setattr(simulation, "descend", look)
    estimate_row_noise(q, log_p, given)
    np.testing.assert_allclose(seen[0][0], seen[0][1], atol=1e-3)


@pytest.mark.parametrize("beta", [0.0, 0.8])
def test_row_noise_is_told_from_class_noise(beta):
    q, true, _ = world(6000)
    rng = np.random.default_rng(3)
    log_p = np.log(rng.dirichlet(np.ones(3), len(q)))
    law = RowNoise(np.log(0.6 * np.eye(3) + 0.4 / 3), beta)
    given = draw(law.of_labels(log_p, true), rng)
    found = estimate_row_noise(q, log_p, given)
    assert found.beta == pytest.approx(beta, abs=0.15)
    np.testing.assert_allclose(found.posterior(q, log_p, given), law.posterior(q, log_p, given), atol=0.1)


def test_with_many_classes_and_few_rows_one_rate_is_estimated():
    rng = np.random.default_rng(0)
    classes, rows = 40, 400  # a matrix would have 1,600 numbers
    true = rng.integers(classes, size=rows)
    given = np.where(rng.random(rows) < 0.3, rng.integers(classes, size=rows), true)
    q = 0.5 * np.eye(classes)[np.where(rng.random(rows) < 0.5, true, rng.integers(classes, size=rows))] + 0.5 / classes
    matrix = estimate_rate(q, given, np.zeros((classes, classes)))
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    assert np.diag(matrix).std() < 0.01
    assert 0.6 < np.diag(matrix).mean() < 0.8
    right = (label_posterior(q, matrix, given).argmax(axis=1) == true).mean()
    assert right >= (given == true).mean()


# --- which noise the noisy rows show ----------------------------------------------------------------------------------


def rows_of(follows_row: bool, rows: int = 3000, seed: int = 0) -> tuple[Observations, np.ndarray, np.ndarray]:
    """Rows with P(y | x), log P(ỹ | x) and given labels that follow the class alone, or what x looks like."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(3, 0.3), rows)
    true = (rng.random((rows, 1)) > q.cumsum(axis=1)).sum(axis=1).clip(max=2)
    looks = rng.dirichlet(np.full(3, 0.5), rows)  # what people would take the row for
    matrix = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])
    law = 0.5 * np.eye(3)[true] + 0.5 * looks if follows_row else matrix[true]
    given = (rng.random((rows, 1)) > law.cumsum(axis=1)).sum(axis=1).clip(max=2)
    log_given = np.log(0.5 * q + 0.5 * looks if follows_row else q @ matrix).astype(np.float32)
    clean = np.where(np.arange(rows) < 100, true, MISSING)
    sample = np.flatnonzero(clean == MISSING)
    return Observations(log_given, np.where(clean == MISSING, given, MISSING), clean, sample, 3), q, true


@pytest.mark.parametrize("follows_row", [True, False])
def test_both_estimates_count_alike_because_noisy_rows_do_not_show_which_is_right(follows_row):
    """Where labels follow what a row looks like, P(ỹ | x) explains them best, and yet they tell the class."""
    observed, q, true = rows_of(follows_row)
    noise = estimate_noise(ValidationRows.all_clean(observed, np.random.default_rng(0)), q.astype(np.float32))
    rows, given = observed.sample, observed.given[observed.sample]
    by_class = label_posterior(q[rows], noise.transition, given)
    by_row = noise.by_row.posterior(q[rows], observed.log_given(rows), given)
    found = noise.posterior_given(rows, q[rows], given)
    np.testing.assert_allclose(found, (by_class + by_row) / 2, atol=1e-6)
    right = [float((p.argmax(axis=1) == true[rows]).mean()) for p in (found, by_class, by_row, q[rows])]
    assert right[0] > right[3] + 0.03
    assert right[0] >= max(right[1:3]) - 0.03
    assert (right[2] < right[3] + 0.01) is follows_row  # alone, the estimate by row would give nothing
    laws = noise.label_probs(rows, true[rows])
    assert len(laws) == 2
    np.testing.assert_allclose(np.sum(laws, axis=(0, 2)), 2)


def test_in_later_rounds_the_given_label_is_predicted_by_the_first_scores():
    observed, _, _ = rows_of(True, rows=200)
    later = replace(observed, scores=np.zeros_like(observed.scores), first_scores=observed.scores)
    np.testing.assert_array_equal(later.log_given(np.arange(5)), observed.log_given(np.arange(5)))
    assert not np.array_equal(
        replace(later, first_scores=None).log_given(np.arange(5)), observed.log_given(np.arange(5))
    )
