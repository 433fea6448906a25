"""What a noise returns, and how much of it came true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelloop.errors import DataError
from labelloop.types import MISSING, Labels


@dataclass(frozen=True)
class Noisy:
    """Noisy labels and the law they were drawn from.

    Attributes:
        labels: The noisy labels; a row without a label has none here either.
        matrix: `matrix[true, noisy]`, rows sum to 1; None where the law differs from row to row or is unknown.
        probabilities: One law per row; rows sum to 1, except that a row without a label is all zero. None where
            `matrix` says it all, or the law is unknown.
        rate: The nominal rate: the one asked for, or the one that the matrix or the record brings with it.
    """

    labels: Labels  # [N]
    matrix: NDArray[np.float64] | None  # [C, C]
    probabilities: NDArray[np.float64] | None  # [N, C]
    rate: float


def realised_rate(true: ArrayLike, noisy: ArrayLike) -> float:
    """The share of wrong labels among the rows that have both; NaN where no row has."""
    true, noisy = np.asarray(true), np.asarray(noisy)
    if true.shape != noisy.shape:
        raise DataError(
            f"true labels of shape {true.shape} and noisy labels of shape {noisy.shape}: give one of each per row"
        )
    both = (true != MISSING) & (noisy != MISSING)
    return float(np.mean(true[both] != noisy[both])) if both.any() else float("nan")
