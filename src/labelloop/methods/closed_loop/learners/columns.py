"""Inputs that are columns of numbers, and what learners of their given labels say of every row."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelloop.methods.closed_loop.learners.discriminant import discriminant_scores
from labelloop.methods.closed_loop.learners.logistic import Array
from labelloop.methods.closed_loop.learners.trees import boosted_scores, forest_scores
from labelloop.seeds import integer, stream
from labelloop.training.setup import NARROW
from labelloop.types import Floats, Labels

WIDEST = 2048  # columns that a discriminant is made of
TABLE, ARRAY = "table_inputs", "inputs"


def suit_trees(columns: int, named: bool) -> bool:
    """Whether inputs are columns of a table, with names of their own or few, which trees suit."""
    return named or columns < NARROW


def kind_of_inputs(inputs: Any, normalise: str) -> str | None:
    """TABLE for columns of a table, ARRAY for others, None for what is no columns of numbers, or too many.

    Args:
        inputs: Those of a problem.
        normalise: As configured; "columns" is what `fit` sets for columns with names of their own.
    """
    if not isinstance(inputs, np.ndarray) or inputs.ndim != 2 or inputs.shape[1] > WIDEST:
        return None
    return TABLE if suit_trees(inputs.shape[1], normalise == "columns") else ARRAY


def column_scores(inputs: Floats, given: Labels, num_classes: int, table: bool, seed: int) -> list[Array]:
    """Out-of-sample scores of the given label from columns of numbers, one a learner [n, C].

    Args:
        inputs: The columns [n, D].
        given: Given labels [n], -1 where missing.
        num_classes: C.
        table: Whether trees suit them.
        seed: Deals rows into folds.
    """
    found = [discriminant_scores(inputs, given, num_classes, stream(seed, "discriminant-folds"))]
    if table:
        found.append(forest_scores(inputs, given, num_classes, integer(seed, "forest") % 2**31))
        boosted = boosted_scores(inputs, given, num_classes, stream(seed, "boosting-folds"))
        found += [] if boosted is None else [boosted]
    return found
