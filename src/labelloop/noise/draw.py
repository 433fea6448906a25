"""What all noises share: checks of their arguments, the one place where labels are drawn, and what they return."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelloop.errors import DataError, UsageError
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


def checked_labels(labels: ArrayLike, num_classes: int, what: str = "label") -> Labels:
    """The labels as int64 [N], each 0..num_classes-1 or missing."""
    if isinstance(num_classes, bool) or not isinstance(num_classes, numbers.Integral) or num_classes < 2:
        raise UsageError(f"num_classes is {num_classes!r}: noise needs a whole number of at least 2 classes")
    given = np.asarray(labels)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and len(given)):
        raise DataError(f"{what}s are {given.dtype} of shape {given.shape}: give one whole number per row")
    bad = np.flatnonzero((given != MISSING) & ((given < 0) | (given >= num_classes)))
    if len(bad):
        raise DataError(
            f"row {bad[0]}: {what} {given[bad[0]]} is outside 0..{num_classes - 1} ({len(bad)} such rows): "
            f"renumber the classes, or use {MISSING} for a missing label"
        )
    return given.astype(np.int64)


def checked_rate(rate: Any) -> float:
    """The rate as a float in [0, 1]."""
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real) or not 0 <= float(rate) <= 1:
        raise UsageError(f"noise rate is {rate!r}: give a number from 0 to 1, such as 0.4")
    return float(rate)


def changes_nothing(rate: Any, source: str) -> bool:
    """For a noise with a fixed rate: whether the caller switched it on (1 or None) or off (0)."""
    if rate is None or checked_rate(rate) == 1:
        return False
    if rate == 0:
        return True
    raise UsageError(
        f"noise rate is {rate!r}, but {source} sets the rate: give 1 to use it as it is, or 0 for no noise"
    )


def checked_matrix(matrix: ArrayLike, num_classes: int) -> NDArray[np.float64]:
    """The matrix as float64 [C, C] with rows that sum to 1."""
    try:
        checked = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"noise matrix is not a table of numbers ({error}): give {num_classes} rows") from error
    if checked.shape != (num_classes, num_classes):
        raise UsageError(
            f"noise matrix has shape {checked.shape}, but there are {num_classes} classes: give a row of each"
        )
    for row, entries in enumerate(checked):
        if not np.isfinite(entries).all() or (entries < 0).any() or abs(entries.sum() - 1) > 1e-6:
            shown = f"it is {entries.tolist()}, which sums to {entries.sum():.6g}"
            raise UsageError(f"noise matrix, row {row}: give probabilities that sum to 1; {shown}")
    return checked


def checked_rng(rng: Any) -> np.random.Generator:
    """The generator; anything else, such as a seed, is refused."""
    if not isinstance(rng, np.random.Generator):
        raise UsageError(f"rng is {rng!r}: give a generator, such as labelloop.seeds.stream(seed, 'noise')")
    return rng


def draw(labels: Labels, laws: NDArray[np.float64], uniform: NDArray[np.float64]) -> Labels:
    """Draws a label from each row of `laws` [N, C]; a missing label stays missing."""
    cumulative = laws.cumsum(axis=1)  # [N, C]
    # Rounding may leave a row's sum just below 1. Compared with that sum, a class of probability 0 is never drawn.
    drawn = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(axis=1)  # [N]
    return np.where(labels == MISSING, MISSING, drawn).astype(np.int64)
