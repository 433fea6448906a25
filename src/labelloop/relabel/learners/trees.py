"""Forests and boosted trees: out-of-sample scores of the given label from the learners that do best on tables.

A forest scores a row by the trees that have not seen it (out of bag), so one fit is enough; boosting is cross-fitted.
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
from threadpoolctl import threadpool_limits

from labelloop.relabel.learners.logistic import MANY, Array
from labelloop.types import MISSING, Floats, Labels

# Trees x rows x classes. A split is weighed by every class, and a leaf holds a number for every class: 200 trees on
# 20,000 rows of ten classes are within the bound; 500 classes get fewer trees.
MOST_WORK = 40_000_000
DRAWN = 2  # times as much work where splits are drawn
FEWEST = 10  # trees
ENDLESS = np.iinfo(np.int32).max  # depth, and the range of a tree's seed

TREES = 200
LEAF = 3  # rows: smaller leaves repeat single wrong labels
MOST = 20_000  # rows to learn from: more change little and take minutes
FOLDS = 4
BOOSTED_CLASSES = 4  # boosting grows a tree for every class and step: with more classes it takes minutes
BOOSTED_ROWS = 400  # with fewer rows, boosting does worse than the forest
STEPS = 60
OOB_SHARE = float(np.exp(-1))  # about the share of the trees that have not seen a row
SMOOTH = 1.0  # prior trees, which vote with the frequencies of the given labels


@dataclass(frozen=True)
class Forest:
    """Trees that vote with the share of every class in a leaf."""

    classes: Labels
    trees: list[Any]
    oob: Array | None = None  # out-of-bag votes on its own rows; zeros if every tree has seen the row


def tree_count(wanted: int, rows: int, classes: int) -> int:
    """How many trees to grow, so that many classes take seconds and megabytes, not minutes and gigabytes."""
    most = MOST_WORK * DRAWN if classes > MANY else MOST_WORK
    return min(wanted, max(FEWEST, most // max(rows * classes, 1)))


def grow(inputs: Floats, labels: Labels, trees: int, seed: int, *, leaf: int, oob: bool) -> Forest:
    """Fits a forest.

    Args:
        inputs: Rows [n, D].
        labels: Their labels [n].
        trees: How many trees.
        seed: Draws rows and columns for each.
        leaf: The fewest rows in a leaf.
        oob: Whether to keep the out-of-bag votes.
    """
    classes, places = np.unique(labels, return_inverse=True)
    rows = np.ascontiguousarray(inputs, dtype=np.float32)
    seeds = np.random.RandomState(seed).randint(ENDLESS, size=trees).tolist()
    drawn = _drawn(len(rows), seeds)
    try:
        if not np.isfinite(rows).all():
            raise ValueError("cells without a number are left to scikit-learn")
        grown = _grown(rows, places, len(classes), seeds, leaf, drawn)
    except (ImportError, TypeError, ValueError):  # the parts of a tree are not a public interface and may change
        grown = _grown_by_scikit_learn(rows, labels, trees, seed, leaf)
    return Forest(classes, grown, _oob_votes(grown, rows, len(classes), drawn) if oob else None)


def votes(forest: Forest, inputs: Floats) -> Array:
    """The votes of a forest on rows [n, its classes]."""
    rows = np.ascontiguousarray(inputs, dtype=np.float32)
    scores = np.zeros((len(rows), len(forest.classes)))
    for tree in forest.trees:
        scores += tree.predict(rows)
    return scores / len(forest.trees)


def _grown_by_scikit_learn(inputs: Floats, labels: Labels, trees: int, seed: int, leaf: int) -> list[Any]:
    """The trees of scikit-learn's forest."""
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier  # slow to import, so only when asked for

    kind = ExtraTreesClassifier if len(np.unique(labels)) > MANY else RandomForestClassifier
    forest = kind(trees, min_samples_leaf=leaf, bootstrap=True, random_state=seed, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about threads, or many classes: users can do nothing about them
        return [tree.tree_ for tree in forest.fit(inputs, labels).estimators_]


def _grown(
    rows: Floats, places: Labels, num_classes: int, seeds: list[int], leaf: int, drawn: list[Labels]
) -> list[Any]:
    """Trees as scikit-learn's forest grows them: on bootstrap samples, with √D columns tried for each split."""
    from sklearn.tree._criterion import Gini
    from sklearn.tree._splitter import BestSplitter, RandomSplitter
    from sklearn.tree._tree import DepthFirstTreeBuilder, Tree

    sizes, wanted = np.array([num_classes], dtype=np.intp), places.astype(np.float64)[:, None]
    width, columns = rows.shape[1], max(1, int(np.sqrt(rows.shape[1])))
    kind = RandomSplitter if num_classes > MANY else BestSplitter
    random = np.random.RandomState(0)  # seeded anew for every tree, which is faster than a new one
    splitter = kind(Gini(1, sizes), columns, leaf, 0.0, random, None)
    builder = DepthFirstTreeBuilder(splitter, max(2, 2 * leaf), leaf, 0.0, ENDLESS, 0.0)
    grown = []
    for seed, times in zip(seeds, drawn, strict=True):
        random.seed(seed)
        tree = Tree(width, sizes, 1)
        builder.build(tree, rows, wanted, times.astype(np.float64), None)
        grown.append(tree)
    return grown


def _drawn(rows: int, seeds: list[int]) -> list[Labels]:
    """How often each row was drawn for the trees with these seeds, [n] each."""
    random, found = np.random.RandomState(0), []
    for seed in seeds:
        random.seed(seed)
        found.append(np.bincount(random.randint(0, rows, rows, dtype=np.int32), minlength=rows))
    return found


def _oob_votes(trees: list[Any], rows: Floats, num_classes: int, drawn: list[Labels]) -> Array:
    scores, count = np.zeros((len(rows), num_classes)), np.zeros((len(rows), 1))
    for tree, times in zip(trees, drawn, strict=True):
        oob = np.flatnonzero(times == 0)
        scores[oob] += tree.predict(rows[oob])
        count[oob] += 1
    return scores / np.maximum(count, 1)


def forest_scores(
    inputs: Floats, given: Labels, num_classes: int, seed: int, trees: int = TREES, counted: float = OOB_SHARE
) -> Array:
    """Log-probabilities of the given label, each row's from trees that have not seen it [n, C].

    Args:
        inputs: Rows [n, D].
        given: Given labels [n], -1 where missing; such rows are scored but not learnt from.
        num_classes: C.
        seed: Draws rows and columns for each tree.
        trees: How many trees to grow, at most.
        counted: The share of the trees whose votes count against the prior ones.
    """
    labelled = np.flatnonzero(given != MISSING)
    base = (np.bincount(given[labelled], minlength=num_classes) + 1) / (len(labelled) + num_classes)
    labelled = np.sort(np.random.default_rng(seed).permutation(labelled)[:MOST])
    trees = tree_count(trees, len(labelled), num_classes)
    forest = grow(inputs[labelled], given[labelled], trees, seed, leaf=LEAF, oob=True)
    scores = np.tile(SMOOTH * base, (len(inputs), 1))
    others = np.setdiff1d(np.arange(len(inputs)), labelled)
    votes_count = trees * counted
    assert forest.oob is not None
    scores[np.ix_(labelled, forest.classes)] += votes_count * forest.oob
    if len(others):
        scores[np.ix_(others, forest.classes)] += votes_count * votes(forest, inputs[others])
    return np.log(scores / scores.sum(axis=1, keepdims=True))


def boosted_scores(inputs: Floats, given: Labels, num_classes: int, rng: np.random.Generator) -> Array | None:
    """The same from boosted trees of the other folds; None where they would be slow or weak."""
    labelled = given != MISSING
    if labelled.sum() < BOOSTED_ROWS or not 1 < len(np.unique(given[labelled])) <= BOOSTED_CLASSES:
        return None
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import, so only when asked for

    fold = rng.permutation(len(inputs)) % FOLDS
    scores = np.full((len(inputs), num_classes), 1e-4)
    for k in range(FOLDS):
        mine, others = np.flatnonzero(fold == k), np.flatnonzero(labelled & (fold != k))
        model = HistGradientBoostingClassifier(
            max_iter=STEPS, early_stopping=False, random_state=int(rng.integers(2**31))
        )
        if len(np.unique(given[others])) < 2:  # all rows of another class are in this fold
            scores[mine, given[others[0]]] += 1
            continue
        with threadpool_limits(1):  # threads that wait for each other take a hundred times as long on a busy machine
            model.fit(inputs[others], given[others])
            scores[np.ix_(mine, model.classes_)] += model.predict_proba(inputs[mine])
    return np.log(scores / scores.sum(axis=1, keepdims=True))
