"""Judging a correction by held-out clean rows: each fold is corrected with the help of the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from labelloop.splits import deal
from labelloop.types import MISSING, Floats, Labels

Correct = Callable[[Labels], Floats]  # clean labels [n], -1 where missing, to corrected soft labels of all rows [n, C]

MIN_CLEAN = 4  # fewer leave too few to teach


def cross_fitted(correct: Correct, clean: Labels, given: Labels, rng: np.random.Generator) -> Floats:
    """What `correct` says of every clean row when its fold is not among the teachers; NaN in other rows [n, C].

    Args:
        correct: Corrects all rows with the help of the clean labels that it is shown.
        clean: Clean labels [n], -1 where missing.
        given: Given labels [n], -1 where missing; paired and unpaired rows are dealt out alike.
        rng: Deals the rows into folds.
    """
    rows = np.flatnonzero(clean != MISSING)
    fold = deal(2 * clean[rows] + (given[rows] != MISSING), rng)
    said = None
    for k in np.unique(fold):
        shown = clean.copy()
        shown[rows[fold == k]] = MISSING
        found = correct(shown)
        said = np.full_like(found, np.nan) if said is None else said
        said[rows[fold == k]] = found[rows[fold == k]]
    assert said is not None
    return said
