"""What correction does to each class, counted on cross-fitted clean rows."""

from __future__ import annotations

import numpy as np

from labelloop.types import MISSING, Floats, Labels


def by_class(said: Floats, given: Labels, clean: Labels) -> list[dict[str, int]]:
    """For every true class: how many given labels are good and were broken, and how many are wrong and were fixed.

    Args:
        said: Cross-fitted soft labels of the clean rows [M, C].
        given: Their given labels [M], -1 where missing.
        clean: Their clean labels [M].
    """
    known = (given != MISSING) & ~np.isnan(said).any(axis=1)
    right, was_right = np.nan_to_num(said).argmax(axis=1) == clean, given == clean
    found = []
    for k in range(said.shape[1]):
        mine = known & (clean == k)
        good, wrong = mine & was_right, mine & ~was_right
        counts = {"good": good, "broken": good & ~right, "wrong": wrong, "fixed": wrong & right}
        found.append({name: int(rows.sum()) for name, rows in counts.items()})
    return found


def alternatives(given: Labels, clean: Labels, num_classes: int) -> dict[str, float]:
    """How often simple alternatives are right on the same clean rows: the given label, and the most common class."""
    known = given != MISSING
    found = {"the given labels as they are": float((given == clean)[known].mean())} if known.any() else {}
    if len(clean):
        found["the most common class for all"] = float(np.bincount(clean, minlength=num_classes).max() / len(clean))
    return found
