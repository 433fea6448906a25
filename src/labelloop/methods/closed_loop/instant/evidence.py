"""All that is known about the rows whose labels are corrected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from labelloop.large_arrays import by_chunks
from labelloop.methods.closed_loop.learners.clean_rows import Scale
from labelloop.methods.closed_loop.learners.logistic import Array
from labelloop.types import Floats, Labels

# The penalty on the weight of the constant column, so that a class without clean rows stays possible.
CONSTANT_STRENGTH = 0.1
FLOOR = 1e-5  # of a probability, before its logarithm


@dataclass(frozen=True)
class Inputs:
    """The rows themselves, for learners.

    Attributes:
        rows: Numbers [n, D].
        table: Whether they are columns of a table, which suit trees.
        again: Whether corrected labels teach learners a second time.
    """

    rows: Floats
    table: bool = False
    again: bool = True


@dataclass(frozen=True)
class Evidence:
    """All that is known about the rows.

    Attributes:
        scores: Log-probabilities of one or more sources side by side.
        given: Given labels, -1 where missing.
        clean: Clean labels, -1 where missing.
        sample: Positions of a sample of the rows that have only a given label.
        num_classes: C.
        inputs: The rows themselves as numbers, for learners of clean rows and corrected labels; None if not available.
        table: Whether the inputs are columns of a table, which suit trees.
        seed: For learners that use random numbers.
    """

    scores: NDArray[np.floating]  # [n, E]
    given: Labels  # [n]
    clean: Labels  # [n]
    sample: Labels  # [S]
    num_classes: int
    inputs: Floats | None = None  # [n, D]
    table: bool = False
    seed: int = 0

    @cached_property
    def scale(self) -> Scale:
        """Mean and deviation of the inputs, computed once for all learners."""
        assert self.inputs is not None
        return Scale.of(self.inputs)

    @property
    def sources(self) -> int:
        """How many sources the scores come from."""
        return self.scores.shape[1] // self.num_classes

    def columns(self, rows: Labels | slice) -> Array:
        """The scores of some rows and a last column of ones [m, E + 1]."""
        scores = self.scores[rows]
        return np.hstack([scores, np.ones((len(scores), 1))]).astype(np.float64)

    @property
    def centre(self) -> Array:
        """The weights [E + 1, C] that take the scores as they are: the geometric mean of their sources."""
        eyes = [np.eye(self.num_classes)] * self.sources
        return np.vstack([*eyes, np.zeros((1, self.num_classes))]) / max(self.sources, 1)

    def strength(self, columns: float) -> Array:
        """The penalty `columns` for every score, and a small one for the constant [E + 1]."""
        return np.append(np.full(self.scores.shape[1], columns), CONSTANT_STRENGTH)

    def one_hot(self, labels: Labels) -> Array:
        """One-hot rows [n, C]; zeros where the label is missing."""
        return np.eye(self.num_classes + 1, self.num_classes)[labels]  # -1 picks the last row, all zeros


def side_by_side(sources: Sequence[NDArray], dtype: DTypeLike | None = None) -> NDArray:
    """Log-probabilities of several sources in one array [n, E], each centred row by row."""

    def centred(rows: slice) -> NDArray:
        return np.hstack([part - part.mean(axis=1, keepdims=True) for part in (source[rows] for source in sources)])

    shape = (len(sources[0]), sum(source.shape[1] for source in sources))
    return by_chunks(centred, shape, dtype or np.result_type(*sources))


class Said(Protocol):
    """A fitted predictor of the true label."""

    def about(self, evidence: Evidence, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        ...
