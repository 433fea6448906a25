"""The scale of columns, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np

from labelloop.relabel.calibration import Scale


def test_columns_are_centred_divided_by_their_deviation_and_by_the_root_of_their_number():
    scale = Scale(np.array([1.0, 2.0, 0.0, 0.0]), np.array([2.0, 4.0, 0.5, 1e-6]))
    found = scale.with_constant(np.array([[3.0, 10.0, -1.0, 0.0], [1.0, 2.0, 0.0, 1.0]]))
    # (3 - 1) / 2 = 1, (10 - 2) / 4 = 2, -1 / 0.5 = -2; a million is cut to 10; all by sqrt(4) = 2; a column of ones
    assert found.tolist() == [[0.5, 1.0, -1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 5.0, 1.0]]


def test_a_constant_column_is_not_divided_by_zero():
    scale = Scale.of(np.array([[1.0, 5.0], [3.0, 5.0]], dtype=np.float32))
    assert scale.mean.tolist() == [2.0, 5.0]
    assert np.allclose(scale.deviation, [1.0, 1e-6], rtol=1e-6)
