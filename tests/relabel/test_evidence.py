"""The columns and penalties of instant correction, for two sources and two classes, written out."""

from __future__ import annotations

import numpy as np

from labelloop.relabel.calibration import Observations

SCORES = np.log([[0.5, 0.5, 0.25, 0.75], [0.9, 0.1, 0.2, 0.8]])
EVIDENCE = Observations(SCORES, np.array([0, -1]), np.array([-1, 1]), np.arange(1), 2)


def test_the_centre_is_the_mean_of_the_sources():
    assert EVIDENCE.sources == 2
    assert EVIDENCE.centre.tolist() == [[0.5, 0.0], [0.0, 0.5], [0.5, 0.0], [0.0, 0.5], [0.0, 0.0]]
    geometric = np.sqrt(np.exp(SCORES[0, :2]) * np.exp(SCORES[0, 2:]))
    np.testing.assert_allclose(np.exp(EVIDENCE.columns(np.array([0])) @ EVIDENCE.centre)[0], geometric)


def test_columns_end_in_a_one_with_a_small_penalty_and_a_missing_label_is_no_class():
    assert EVIDENCE.columns(np.arange(2))[:, -1].tolist() == [1.0, 1.0]
    assert EVIDENCE.strength(3.0).tolist() == [3.0, 3.0, 3.0, 3.0, 0.1]
    assert EVIDENCE.one_hot(EVIDENCE.given).tolist() == [[1.0, 0.0], [0.0, 0.0]]
