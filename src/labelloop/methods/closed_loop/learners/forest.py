"""Random forests of scikit-learn, with a bound on their work and memory, and without its notes to developers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from labelloop.types import Floats, Labels

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

# Trees x rows x classes. A split is weighed by every class, and a leaf holds a number for every class: 200 trees on
# 20,000 rows of ten classes are within the bound, 500 classes are given fewer trees.
MOST_WORK = 40_000_000
FEWEST = 10  # trees


def tree_count(wanted: int, rows: int, classes: int) -> int:
    """How many trees to grow, so that many classes take seconds and megabytes, not minutes and gigabytes."""
    return min(wanted, max(FEWEST, MOST_WORK // max(rows * classes, 1)))


def grow(inputs: Floats, labels: Labels, trees: int, seed: int, *, leaf: int, unseen: bool) -> RandomForestClassifier:
    """Fits a forest.

    Args:
        inputs: Rows [n, D].
        labels: Their labels [n].
        trees: How many trees.
        seed: Draws rows and columns for each.
        leaf: The fewest rows in a leaf.
        unseen: Whether to keep what trees say of the rows they have not seen.
    """
    from sklearn.ensemble import RandomForestClassifier  # slow to import, so only when asked for

    forest = RandomForestClassifier(trees, min_samples_leaf=leaf, oob_score=unseen, random_state=seed, n_jobs=1)
    with _quiet():
        return forest.fit(inputs, labels)


def votes(forest: RandomForestClassifier, inputs: Floats) -> Floats:
    """What a forest says of rows [n, its classes]."""
    with _quiet():
        return np.asarray(forest.predict_proba(inputs))


@contextmanager
def _quiet() -> Iterator[None]:
    """Its warnings are about threads, or doubt that many classes are classes: users can do nothing about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
