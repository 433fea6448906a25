"""What a noise returns, and the realised noise rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelloop.errors import DataError
from labelloop.types import MISSING, Labels


@dataclass(frozen=True)
class Noisy:
    """Noisy labels and the distribution they were drawn from.

    Attributes:
        labels: The noisy labels; -1 where there was no label.
        matrix: `matrix[true, noisy]`, rows sum to 1; None if the distribution differs from row to row or is unknown.
        probabilities: The distribution of each row; rows sum to 1, and are all zero where there is no label. None if
            `matrix` is enough, or the distribution is unknown.
        rate: The nominal rate: the one asked for, or that of the matrix or of the recorded labels.
    """

    labels: Labels  # [N]
    matrix: NDArray[np.float64] | None  # [C, C]
    probabilities: NDArray[np.float64] | None  # [N, C]
    rate: float


def realised_rate(true: ArrayLike, noisy: ArrayLike) -> float:
    """The share of wrong labels among the rows that have both labels; NaN if there are none."""
    true, noisy = np.asarray(true), np.asarray(noisy)
    if true.shape != noisy.shape:
        raise DataError(
            f"true labels of shape {true.shape} and noisy labels of shape {noisy.shape}: give one of each per row"
        )
    both = (true != MISSING) & (noisy != MISSING)
    return float(np.mean(true[both] != noisy[both])) if both.any() else float("nan")
