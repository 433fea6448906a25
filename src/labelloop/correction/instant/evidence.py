"""All that is known of the rows whose labels are corrected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from labelloop.methods.closed_loop.learners.clean_rows import Scale
from labelloop.methods.closed_loop.learners.logistic import Array
from labelloop.types import Floats, Labels

# How firmly the weight of the constant column is held at zero; it keeps a class without clean rows possible.
CONSTANT_STRENGTH = 0.1


@dataclass(frozen=True)
class Evidence:
    """All that is known of the rows.

    Attributes:
        scores: Log-probabilities of one or more sources side by side.
        given: Given labels, -1 where missing.
        clean: Clean labels, -1 where missing.
        sample: Positions of some rows that have only a given label.
        num_classes: C.
        inputs: The rows themselves as numbers, for learners of the clean rows alone; None if they are not at hand.
        table: Whether the inputs are columns of a table, which trees suit.
        seed: For learners that draw.
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
        """Mean and deviation of the inputs, found once for all learners."""
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
        """The weights [E + 1, C] that believe the scores: the geometric mean of their sources."""
        eyes = [np.eye(self.num_classes)] * self.sources
        return np.vstack([*eyes, np.zeros((1, self.num_classes))]) / max(self.sources, 1)

    def strength(self, columns: float) -> Array:
        """`columns` for every score, little for the constant [E + 1]."""
        return np.append(np.full(self.scores.shape[1], columns), CONSTANT_STRENGTH)

    def one_hot(self, labels: Labels) -> Array:
        """One-hot rows [n, C]; zeros where the label is missing."""
        return np.eye(self.num_classes + 1, self.num_classes)[labels]  # -1 picks the last row, all zeros


class Said(Protocol):
    """A fitted way to say what the true label is."""

    def about(self, evidence: Evidence, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        ...
