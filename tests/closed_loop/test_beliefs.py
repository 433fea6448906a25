"""q(y | x) from what a network of the given labels says: the identity without evidence, the truth with enough of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize_scalar
from scipy.special import log_softmax, softmax

from labelloop.methods.closed_loop import beliefs as module
from labelloop.methods.closed_loop.beliefs import beliefs, fit_beliefs


def opinions(rows: int, classes: int = 4, seed: int = 0) -> np.ndarray:
    return log_softmax(np.random.default_rng(seed).normal(size=(rows, classes)) * 2, axis=1)


def test_without_rows_the_given_label_is_believed():
    log_p = opinions(6)
    coefficients = fit_beliefs(np.empty((0, 4)), np.empty(0, np.int64))
    np.testing.assert_allclose(coefficients, np.eye(5, 4), atol=1e-12)
    np.testing.assert_allclose(beliefs(log_p, coefficients), np.exp(log_p), atol=1e-12)


def test_rows_of_one_class_do_not_rule_the_others_out():
    log_p = opinions(50)
    coefficients = fit_beliefs(log_p[log_p.argmax(axis=1) == 0][:3], np.zeros(3, np.int64))
    q = beliefs(opinions(50, seed=1), coefficients)
    assert len(np.unique(q.argmax(axis=1))) == 4
    assert (q.argmax(axis=1) == opinions(50, seed=1).argmax(axis=1)).mean() > 0.7


def test_it_finds_the_regression_that_the_labels_come_from():
    rng, log_p = np.random.default_rng(3), opinions(50000)
    truth = np.concatenate([np.eye(4)[[1, 0, 2, 3]] * 1.3, [[0.5, -0.5, 0.2, 0.0]]])  # two classes exchanged
    q = softmax(log_p @ truth[:-1] + truth[-1], axis=1)
    labels = (rng.random((len(q), 1)) >= q.cumsum(axis=1)).sum(axis=1).clip(max=3)
    np.testing.assert_allclose(beliefs(log_p, fit_beliefs(log_p, labels)), q, atol=0.06)


def test_a_few_rows_tell_how_much_flatter_the_noise_makes_the_network():
    """With 40% of labels replaced at random, a handful of clean rows is enough to undo the flattening."""
    rng = np.random.default_rng(0)
    q = softmax(rng.normal(size=(3000, 4)) * 4, axis=1)
    truth = (rng.random((3000, 1)) >= q.cumsum(axis=1)).sum(axis=1).clip(max=3)
    log_p = np.log(0.6 * q + 0.1)
    few = fit_beliefs(log_p[:10], truth[:10])
    assert np.diag(few).mean() > 1.5

    def loss(said):
        return -np.log(said[np.arange(3000), truth]).mean()

    assert loss(beliefs(log_p, few)) < loss(np.exp(log_p)) - 0.1


@pytest.mark.parametrize("widest", [32, 2], ids=["full", "diagonal"])
def test_it_is_the_minimum_of_the_written_out_loss(widest, monkeypatch):
    monkeypatch.setattr(module, "WIDEST", widest)
    log_p, labels = opinions(40), np.random.default_rng(1).integers(4, size=40)
    found = fit_beliefs(log_p, labels)
    free = np.ones((5, 4), bool)
    if widest == 2:
        free = np.eye(5, 4, dtype=bool) | (np.arange(5) == 4)[:, None]
        assert (found[~free] == 0).all()

    def loss(flat):
        coefficients = np.eye(5, 4)
        coefficients[free] = flat
        log_q = log_softmax(log_p @ coefficients[:-1] + coefficients[-1], axis=1)
        fit = -log_q[np.arange(40), labels].sum()

        def with_scale(scale):  # the penalty at the best common scale
            moved = (coefficients - scale * np.eye(5, 4))[free]
            return 0.5 * module.PENALTY * (moved**2).sum() + 0.5 * module.SCALE_PENALTY * (scale - 1) ** 2

        return fit + minimize_scalar(with_scale, tol=1e-12).fun

    assert np.abs(approx_fprime(found[free], loss, 1e-5)).max() < 0.05
