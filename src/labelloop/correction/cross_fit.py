"""Judging a correction by held-out clean rows: each fold is corrected by what was learnt from the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from labelloop.splits import deal
from labelloop.types import MISSING, Floats, Labels

Correct = Callable[[Labels], Floats]  # clean labels [n], -1 where missing, to corrected soft labels of all rows [n, C]

MIN_CLEAN = 4  # with fewer, too few are left to learn from


def cross_fitted(correct: Correct, clean: Labels, given: Labels, rng: np.random.Generator) -> Floats:
    """Corrected soft labels of the clean rows, each learnt without its own fold; NaN in other rows [n, C].

    Args:
        correct: Corrects all rows, learning from the clean labels it is given.
        clean: Clean labels [n], -1 where missing.
        given: Given labels [n], -1 where missing; folds are stratified by class and by whether a row has one.
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
