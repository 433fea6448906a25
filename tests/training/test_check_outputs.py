"""Outputs of a network that are not finite stop a run."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.errors import DataError
from labelloop.training.runtime import Runtime


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_enough(bad):
    good, broken = np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32)
    broken[1, 0] = bad
    Runtime(progress=False).check_outputs(4, good, good)
    with pytest.raises(DataError, match="after epoch 4 the network's outputs are not finite"):
        Runtime(progress=False).check_outputs(4, good, broken)
