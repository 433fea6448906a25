"""The noise matrix that the descent of `noise_model` starts from, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labelloop.relabel import calibration as opinions
from labelloop.relabel.calibration import Observations

CLASSES = 3
CLEAN = np.arange(4)  # rows 0 to 3 are clean, 4 and 5 only have a given label
SCORES = np.log(np.array([[0.6, 0.2, 0.2]] * 4 + [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]))


@pytest.fixture
def start(monkeypatch):
    """The matrix where the descent starts, for these given labels."""

    def found(given: list[int]) -> np.ndarray:
        starts = []
        monkeypatch.setattr(opinions, "descend", lambda loss, first: starts.append(first) or first)
        monkeypatch.setattr(opinions, "fit_logistic", lambda x, targets, centre, firm: centre)
        clean = np.array([0, 0, 0, 1, -1, -1])
        observed = Observations(SCORES, np.array(given), clean, np.array([4, 5]), CLASSES)
        opinions.noise_model(observed, CLEAN, influence=1.0, strength=1.0)
        return np.exp(starts[0][-CLASSES * CLASSES :].reshape(CLASSES, CLASSES))

    return found


def test_with_pairs_it_counts_them_on_top_of_five_prior_rows(start):
    # Class 0 was given as 0 twice and as 1 once, class 1 as 1 once. Half of all given labels are 0, half are 1, so
    # each row has a prior of 2.5, 2.5 and 0 rows: (4.5, 3.5, 0) / 8, (2.5, 3.5, 0) / 6 and (2.5, 2.5, 0) / 5.
    expected = [[4.5 / 8, 3.5 / 8, 1e-4], [2.5 / 6, 3.5 / 6, 1e-4], [0.5, 0.5, 1e-4]]
    np.testing.assert_allclose(start([0, 0, 1, 1, 0, 1]), expected, rtol=1e-12)


def test_without_pairs_it_counts_what_the_scores_say_of_the_noisy_rows(start):
    # Row 4 (0.5, 0.25, 0.25) was given as 0, row 5 (0.25, 0.5, 0.25) as 1, and the prior is the same as above.
    expected = [[3 / 5.75, 2.75 / 5.75, 1e-4], [2.75 / 5.75, 3 / 5.75, 1e-4], [0.5, 0.5, 1e-4]]
    np.testing.assert_allclose(start([-1, -1, -1, -1, 0, 1]), expected, rtol=1e-12)


def test_a_recalibration_is_fitted_once_for_each_strength_and_anew_for_other_scores(monkeypatch):
    fits, fit = [], opinions.fit_logistic
    monkeypatch.setattr(opinions, "fit_logistic", lambda *given: fits.append(given) or fit(*given))
    observed = Observations(
        SCORES, np.array([0, 0, 1, 1, 0, 1]), np.array([0, 0, 0, 1, -1, -1]), np.arange(4, 6), CLASSES
    )
    weights = [opinions.recalibrated(observed, CLEAN, strength).weights for strength in (1.0, 1.0, 2.0)]
    assert len(fits) == 2
    assert weights[0] is weights[1]
    assert (weights[0] != weights[2]).any()
    opinions.noise_model(observed, CLEAN, influence=1.0, strength=1.0)
    assert len(fits) == 2
    for other in (replace(observed, scores=SCORES[:, ::-1]), replace(observed, clean=np.array([1, 1, 1, 0, -1, -1]))):
        assert (opinions.recalibrated(other, CLEAN, 1.0).weights != weights[0]).any()
    opinions.recalibrated(observed, CLEAN[:3], 1.0)
    assert len(fits) == 5
