"""Out-of-sample scores of the given label on tables, from the learners that do best there: a forest and boosted trees.

The forest scores a row by the trees that have not seen it (out of bag), so one fit is enough; boosting is cross-fitted.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from labelloop.methods.closed_loop.learners.forest import grow, tree_count, votes
from labelloop.methods.closed_loop.learners.logistic import Array
from labelloop.types import MISSING, Floats, Labels

TREES = 200
LEAF = 3  # rows: smaller leaves repeat single wrong labels
MOST = 20_000  # rows to learn from: more change little and take minutes
FOLDS = 4
BOOSTED_CLASSES = 4  # boosting grows a tree for every class and step: with more classes it takes minutes
BOOSTED_ROWS = 400  # with fewer rows, boosting does worse than the forest
STEPS = 60
UNSEEN = float(np.exp(-1))  # about the share of the trees that have not seen a row
SMOOTH = 1.0  # prior trees, which vote with the frequencies of the given labels


def forest_scores(
    inputs: Floats, given: Labels, num_classes: int, seed: int, trees: int = TREES, counted: float = UNSEEN
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
    forest = grow(inputs[labelled], given[labelled], trees, seed, leaf=LEAF, unseen=True)
    said = np.tile(SMOOTH * base, (len(inputs), 1))
    others = np.setdiff1d(np.arange(len(inputs)), labelled)
    votes_count = trees * counted
    assert forest.unseen is not None
    said[np.ix_(labelled, forest.classes)] += votes_count * forest.unseen
    if len(others):
        said[np.ix_(others, forest.classes)] += votes_count * votes(forest, inputs[others])
    return np.log(said / said.sum(axis=1, keepdims=True))


def boosted_scores(inputs: Floats, given: Labels, num_classes: int, rng: np.random.Generator) -> Array | None:
    """The same from boosted trees of the other folds; None where they would be slow or weak."""
    labelled = given != MISSING
    if labelled.sum() < BOOSTED_ROWS or len(np.unique(given[labelled])) > BOOSTED_CLASSES:
        return None
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import, so only when asked for

    fold = rng.permutation(len(inputs)) % FOLDS
    scores = np.full((len(inputs), num_classes), 1e-4)
    for k in range(FOLDS):
        mine, others = np.flatnonzero(fold == k), np.flatnonzero(labelled & (fold != k))
        model = HistGradientBoostingClassifier(
            max_iter=STEPS, early_stopping=False, random_state=int(rng.integers(2**31))
        )
        with threadpool_limits(1):  # threads that wait for each other take a hundred times as long on a busy machine
            model.fit(inputs[others], given[others])
            scores[np.ix_(mine, model.classes_)] += model.predict_proba(inputs[mine])
    return np.log(scores / scores.sum(axis=1, keepdims=True))
