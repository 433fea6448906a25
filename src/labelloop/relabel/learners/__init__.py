"""Learners without a network, for inputs that are columns of numbers: of the given labels, and of the clean rows."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from labelloop.relabel.learners.discriminant import Discriminant, discriminant_scores
from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.learners.trees import boosted_scores, forest_scores
from labelloop.seeds import integer, stream
from labelloop.types import NARROW, Floats, Labels

WIDEST = 2048  # the most columns for a discriminant
MOST_SCORES = 50_000_000  # rows times classes: beyond this, only networks and discriminants of a sample learn
TABLE, ARRAY = "table_inputs", "inputs"


class Learner(Protocol):
    """A model of rows of numbers. Relabelling cross-fits it, so it needs no folds of its own."""

    def fit(self, inputs: Array, soft_targets: Array) -> Self:
        """Learns from standardised rows [n, D] and soft labels that sum to 1 [n, C]."""

    def log_proba(self, inputs: Array) -> Array:
        """Log-probabilities of rows that it may not have seen [n, C]."""


LEARNERS: dict[str, type[Learner]] = {
    "discriminant": Discriminant,  # corrected labels teach all of these: self_training.py
}


def suit_trees(columns: int, named: bool) -> bool:
    """Whether inputs suit trees: columns of a table, which have names or are few."""
    return named or columns < NARROW


def kind_of_inputs(inputs: Any, normalise: str) -> str | None:
    """TABLE for columns of a table, ARRAY for other columns of numbers, None for anything else or too many columns.

    Args:
        inputs: The inputs of a problem.
        normalise: As configured; `fit` sets "columns" for columns with names.
    """
    if not isinstance(inputs, np.ndarray) or inputs.ndim != 2 or inputs.shape[1] > WIDEST:
        return None
    return TABLE if suit_trees(inputs.shape[1], normalise == "columns") else ARRAY


def column_scores(inputs: Floats, given: Labels, num_classes: int, table: bool, seed: int) -> list[Array]:
    """Out-of-sample scores of the given label from columns of numbers, one array [n, C] per learner.

    Args:
        inputs: The columns [n, D].
        given: Given labels [n], -1 where missing.
        num_classes: C.
        table: Whether they suit trees.
        seed: Deals rows into folds.
    """
    found = [discriminant_scores(inputs, given, num_classes, stream(seed, "discriminant-folds"))]
    if table:
        found.append(forest_scores(inputs, given, num_classes, integer(seed, "forest") % 2**31))
        boosted = boosted_scores(inputs, given, num_classes, stream(seed, "boosting-folds"))
        found += [] if boosted is None else [boosted]
    return found
