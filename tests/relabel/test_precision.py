"""With many classes fits are computed in single precision: they must end where double precision ends."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from labelloop.relabel.calibration import Observations, clean_logistic, shared_calibrator
from labelloop.relabel.learners import logistic

CLASSES = 40
RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, CLASSES, 400)
INPUTS = (RNG.normal(size=(CLASSES, 8))[TRUTH] + 0.5 * RNG.normal(size=(400, 8))).astype(np.float32)
GIVEN = np.where(RNG.random(400) < 0.3, RNG.integers(0, CLASSES, 400), TRUTH)
SCORES = RNG.normal(size=(400, 2 * CLASSES)) + 3 * np.tile(np.eye(CLASSES)[TRUTH], 2)


def of_inputs():
    everyone = np.arange(400)
    observed = Observations(SCORES, GIVEN, TRUTH, everyone[:0], CLASSES, INPUTS)
    return clean_logistic(observed, everyone[:200], 0.1).predict(observed, everyone[200:], use_given=False)


def of_scores():
    everyone = np.arange(400)
    observed = Observations(SCORES, GIVEN, TRUTH, everyone[:0], CLASSES)
    return shared_calibrator(observed, everyone[:200], 1, use_given=True).predict(
        observed, everyone[200:], use_given=True
    )


@pytest.mark.parametrize("fitted", [of_inputs, of_scores])
def test_single_precision_ends_where_double_precision_ends(fitted, monkeypatch):
    assert logistic.precision(logistic.MANY) is np.float64
    assert logistic.precision(CLASSES) is np.float32
    single = fitted()
    monkeypatch.setattr(logistic, "MANY", CLASSES)
    double = fitted()
    assert not (single == double).all(), "both were computed in the same precision"
    np.testing.assert_allclose(single, double, atol=0.01)
    assert abs((single.argmax(axis=1) == TRUTH[200:]).mean() - (double.argmax(axis=1) == TRUTH[200:]).mean()) <= 0.005


def test_fits_take_one_thread_and_leave_the_others_as_they_were():
    def most():
        return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

    seen = []

    def loss(x):
        seen.append(most())
        return float(x @ x), 2 * x

    before = most()
    with threadpool_limits(2, user_api="blas"):
        usual = most()
        np.testing.assert_allclose(logistic.descend(loss, np.ones(3)), 0, atol=1e-6)
        assert most() == usual
    assert set(seen) == {1}
    assert most() == before
