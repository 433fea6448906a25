"""Random forests, with a bound on their work and memory.

With many classes, splits are drawn at random (extremely randomised trees): searching for the best split takes ten times
as long, and the corrected labels are no better. The trees are scikit-learn's own. On small data, its forest spends most
of the time on checks and copies of settings for each tree, so the trees are grown here without them: the same trees,
bit for bit, in a fraction of the time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelloop.methods.closed_loop.learners.logistic import MANY, Array
from labelloop.types import Floats, Labels

# Trees x rows x classes. A split is weighed by every class, and a leaf holds a number for every class: 200 trees on
# 20,000 rows of ten classes are within the bound; 500 classes get fewer trees.
MOST_WORK = 40_000_000
DRAWN = 2  # times as much work where splits are drawn
FEWEST = 10  # trees
ENDLESS = np.iinfo(np.int32).max  # depth, and the range of a tree's seed


@dataclass(frozen=True)
class Forest:
    """Trees that vote with the share of every class in a leaf."""

    classes: Labels
    trees: list[Any]
    unseen: Array | None = None  # out-of-bag votes on its own rows; zeros if every tree has seen the row


def tree_count(wanted: int, rows: int, classes: int) -> int:
    """How many trees to grow, so that many classes take seconds and megabytes, not minutes and gigabytes."""
    most = MOST_WORK * DRAWN if classes > MANY else MOST_WORK
    return min(wanted, max(FEWEST, most // max(rows * classes, 1)))


def grow(inputs: Floats, labels: Labels, trees: int, seed: int, *, leaf: int, unseen: bool) -> Forest:
    """Fits a forest.

    Args:
        inputs: Rows [n, D].
        labels: Their labels [n].
        trees: How many trees.
        seed: Draws rows and columns for each.
        leaf: The fewest rows in a leaf.
        unseen: Whether to keep the out-of-bag votes.
    """
    classes, places = np.unique(labels, return_inverse=True)
    rows = np.ascontiguousarray(inputs, dtype=np.float32)
    seeds = np.random.RandomState(seed).randint(ENDLESS, size=trees)
    try:
        if not np.isfinite(rows).all():
            raise ValueError("cells without a number are left to scikit-learn")
        grown = [_grown(rows, places, len(classes), int(each), leaf) for each in seeds]
    except (ImportError, TypeError, ValueError):  # the parts of a tree are not a public interface and may change
        grown = _grown_by_scikit_learn(rows, labels, trees, seed, leaf)
    return Forest(classes, grown, _unseen(grown, rows, len(classes), seeds) if unseen else None)


def votes(forest: Forest, inputs: Floats) -> Array:
    """The votes of a forest on rows [n, its classes]."""
    rows = np.ascontiguousarray(inputs, dtype=np.float32)
    said = np.zeros((len(rows), len(forest.classes)))
    for tree in forest.trees:
        said += tree.predict(rows)
    return said / len(forest.trees)


def _grown_by_scikit_learn(inputs: Floats, labels: Labels, trees: int, seed: int, leaf: int) -> list[Any]:
    """The trees of scikit-learn's forest."""
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier  # slow to import, so only when asked for

    kind = ExtraTreesClassifier if len(np.unique(labels)) > MANY else RandomForestClassifier
    forest = kind(trees, min_samples_leaf=leaf, bootstrap=True, random_state=seed, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about threads, or many classes: users can do nothing about them
        return [tree.tree_ for tree in forest.fit(inputs, labels).estimators_]


def _grown(rows: Floats, places: Labels, num_classes: int, seed: int, leaf: int) -> Any:
    """One tree as scikit-learn's forest grows it: on a bootstrap sample, with √D columns tried for each split."""
    from sklearn.tree._criterion import Gini
    from sklearn.tree._splitter import BestSplitter, RandomSplitter
    from sklearn.tree._tree import DepthFirstTreeBuilder, Tree

    sizes = np.array([num_classes], dtype=np.intp)
    columns = max(1, int(np.sqrt(rows.shape[1])))
    random = np.random.RandomState(seed)
    kind = RandomSplitter if num_classes > MANY else BestSplitter
    splitter = kind(Gini(1, sizes), columns, leaf, 0.0, random, None)
    tree = Tree(rows.shape[1], sizes, 1)
    builder = DepthFirstTreeBuilder(splitter, max(2, 2 * leaf), leaf, 0.0, ENDLESS, 0.0)
    builder.build(tree, rows, places.astype(np.float64)[:, None], _drawn(len(rows), seed).astype(np.float64), None)
    return tree


def _drawn(rows: int, seed: int) -> Labels:
    """How often each row was drawn for the tree with this seed [n]."""
    return np.bincount(np.random.RandomState(seed).randint(0, rows, rows, dtype=np.int32), minlength=rows)


def _unseen(trees: list[Any], rows: Floats, num_classes: int, seeds: Labels) -> Array:
    said, count = np.zeros((len(rows), num_classes)), np.zeros((len(rows), 1))
    for tree, seed in zip(trees, seeds, strict=True):
        unseen = np.flatnonzero(_drawn(len(rows), int(seed)) == 0)
        said[unseen] += tree.predict(rows[unseen])
        count[unseen] += 1
    return said / np.maximum(count, 1)
