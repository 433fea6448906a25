"""The noise matrix of a run, estimated from the corrected probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelloop.types import MISSING, Floats, Labels

CHUNK = 1 << 16  # rows at a time: targets may be a file larger than memory


def label_counts(given: Labels, targets: Floats, num_classes: int) -> NDArray[np.float64]:
    """How many rows of each true class came with each given label: [true, given].

    The true class comes from the corrected probabilities, so the counts are only as good as they are. Rows without a
    given label and test rows do not count.

    Args:
        given: Given labels [n], -1 where missing.
        targets: Corrected soft labels [n, C]; NaN where there are none.
        num_classes: C.
    """
    counts = np.zeros((num_classes, num_classes))
    for start in range(0, len(given), CHUNK):
        labels, soft = given[start : start + CHUNK], targets[start : start + CHUNK]
        counted = (labels != MISSING) & ~np.isnan(soft[:, 0])
        np.add.at(counts.T, labels[counted], soft[counted].astype(np.float64))
    return counts


def noise_matrix(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same as shares of each true class: rows sum to 1. A class without rows has a row of NaN."""
    totals = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)
