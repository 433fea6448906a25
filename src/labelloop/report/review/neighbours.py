"""The clean rows nearest to a row, by the correction's inputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelloop.types import MISSING, Labels

NEAREST = 6


class Neighbours:
    """Finds the nearest clean rows by the angle between features.

    Args:
        features: The correction's inputs for every row [n, D].
        clean: Clean labels [n], -1 where missing.
    """

    def __init__(self, features: NDArray, clean: Labels) -> None:
        self.rows = np.flatnonzero(clean != MISSING)
        self._features = features
        self._clean = _unit(features[self.rows])  # [M, D]

    def nearest(self, row: int, count: int = NEAREST) -> list[int]:
        """The clean rows nearest to a row, nearest first, without the row itself."""
        likeness = self._clean @ _unit(self._features[row : row + 1])[0]
        likeness[self.rows == row] = -np.inf
        count = min(count, int((self.rows != row).sum()))
        best = np.argsort(-likeness, kind="stable")[:count]
        return [int(k) for k in self.rows[best]]


def _unit(values: NDArray) -> NDArray[np.float32]:
    wide = np.asarray(values, dtype=np.float32)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
