"""Fits of instant correction: their slopes against differences, and a bias against the equation it solves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, brentq

from labelloop.relabel import calibration as fits
from labelloop.relabel import calibration as opinions
from labelloop.relabel.calibration import Observations

CLASSES, ROWS, SOURCES = 3, 12, 2


@pytest.fixture
def observed():
    rng = np.random.default_rng(0)
    posterior = np.log(rng.dirichlet(np.ones(CLASSES), (ROWS, SOURCES))).reshape(ROWS, -1)
    given, clean = rng.integers(0, CLASSES, ROWS), rng.integers(0, CLASSES, ROWS)
    return Observations(posterior, given, np.where(np.arange(ROWS) < 8, clean, -1), np.arange(8, ROWS), CLASSES)


def check_slope(module, monkeypatch, fit) -> None:
    """Fits, and compares the slope of the loss with differences at a point that is no optimum."""
    losses = []
    monkeypatch.setattr(module, "descend", lambda loss, start: losses.append((loss, start)) or start)
    fit()
    ((loss, start),) = losses
    point = start + np.random.default_rng(1).normal(0, 0.3, len(start))
    value, slope = loss(point)
    assert np.isfinite(value)
    np.testing.assert_allclose(slope, approx_fprime(point, lambda flat: loss(flat)[0], 1e-7), atol=1e-4)


@pytest.mark.parametrize("use_given", [True, False])
def test_the_slope_of_the_structured_corrector(observed, monkeypatch, use_given):
    check_slope(fits, monkeypatch, lambda: fits.shared_calibrator(observed, np.arange(8), 0.5, use_given=use_given))


def test_the_slope_of_the_noise_model(observed, monkeypatch):
    check_slope(opinions, monkeypatch, lambda: opinions.noise_model(observed, np.arange(8), 2.0, 0.5))


def test_where_scores_are_equal_the_bias_follows_the_clean_rows():
    # Three of four clean rows are of class 0, and every score is L = log ½. Then logits are ±(b + L d) for a bias ±b
    # and a deviation ±d of the slopes. Where the slope vanishes, 4 p - 3 = -b and L (4 p - 3) = -d, so that d = L b and
    # p = σ(2 b (1 + L²)): one equation for b.
    level, clean = np.log(0.5), np.array([0, 0, 0, 1])
    observed = Observations(np.full((4, 2), level), clean, clean, np.arange(0), 2)
    bias = brentq(lambda b: 4 / (1 + np.exp(-2 * b * (1 + level**2))) - 3 + b, 0, 3)
    found = fits.shared_calibrator(observed, np.arange(4), 1.0, use_given=False)
    np.testing.assert_allclose(found.bias, [bias, -bias], atol=1e-4)
    np.testing.assert_allclose(found.slopes, [[1 + level * bias, 1 - level * bias]], atol=1e-4)
    probability = found.predict(observed, np.arange(4), use_given=False)[:, 0]
    np.testing.assert_allclose(probability, (3 - bias) / 4, atol=1e-4)
