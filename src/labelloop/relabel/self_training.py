"""Self-training: learners are trained again, on labels that were corrected once, instead of the given ones.

This is the closed loop without a network. The clean rows of a fold are predicted by learners trained without them, on
labels corrected without them; only the noise estimate has seen all clean rows. The learners' predictions are used as
they are: a calibrator on top would be fitted to the scores of other folds, whose learners were trained on this fold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from labelloop.large_arrays import by_chunks
from labelloop.relabel.calibration import side_by_side, uncalibrated
from labelloop.relabel.learners import LEARNERS, MOST_SCORES, Learner
from labelloop.relabel.learners.logistic import MANY, Array
from labelloop.relabel.learners.trees import forest_scores
from labelloop.relabel.stacking import EVERYBODY, Combined, Component, ValidationRows, best_of_each, combination
from labelloop.seeds import integer, stream
from labelloop.types import FLOOR, MISSING, Floats, Labels

MOST = 10_000  # rows to learn from, besides the clean ones
FOLDS = 4  # of all rows: a row is predicted by learners that have not learnt its own label
TREES = 200
OOF_TREES = 74  # of a forest for clean rows, as many as the 200 / e that vote on other rows without having seen them
SELF_TRAINED, BEFORE = "taught by corrected labels", "taught by given labels"


@dataclass(frozen=True)
class Teaching:
    """What learners are taught.

    Attributes:
        validation: The clean rows.
        posterior: Soft labels of all rows, corrected once.
        rows: Positions of the rows to learn from, ascending; all clean rows are among them.
        fold: Folds of all rows [n].
    """

    validation: ValidationRows
    posterior: Combined
    rows: Labels
    fold: Labels

    def labels(self, rows: Labels, without: int) -> Array:
        """What some rows teach: their clean label, else a corrected one that was made without a fold [m, C]."""
        found = self.posterior.predict(rows, without).astype(np.float64)
        clean = self.validation.observed.clean[rows]
        found[clean != MISSING] = np.eye(found.shape[1])[clean[clean != MISSING]]
        return found

    def of_clean(self, k: int) -> tuple[Labels, Labels]:
        """The clean rows of a fold, and the rows that teach about them."""
        mine = self.validation.clean_rows[self.validation.clean_fold == k]
        return mine, np.setdiff1d(self.rows, mine)


def self_train(validation: ValidationRows, q: Combined, posterior: Combined) -> Combined:
    """P(y | x) once more: `q`, combined with the geometric mean of `q` and learners that the corrected labels teach.

    Args:
        validation: The clean rows, with what is known about all rows.
        q: P(y | x), learnt from given labels and clean rows.
        posterior: P(y | x, ỹ), which teaches.
    """
    observed = validation.observed
    before = by_chunks(lambda rows: _log(q.final[rows]), q.final.shape)
    before[validation.rows] = _log(q.oof)
    scores = side_by_side([before, *self_trained_scores(_teaching(validation, posterior))], np.float32)
    informed = replace(validation, observed=replace(observed, scores=scores), learnt={})
    learnt = best_of_each(informed, {SELF_TRAINED: [uncalibrated]}, use_given=False)
    found = combination(informed, [*learnt, Component(BEFORE, q.oof, q.predict)])
    weights = {SELF_TRAINED: found.weights[SELF_TRAINED]} | {
        name: found.weights[BEFORE] * weight for name, weight in q.weights.items()
    }
    return replace(found, weights=weights)


def self_trained_scores(teaching: Teaching) -> list[Floats]:
    """Out-of-sample log-probabilities of the true label, one array [n, C] per learner."""
    observed = teaching.validation.observed
    found = [_cross_fitted(teaching, learner) for learner in LEARNERS.values()]
    if observed.table and observed.num_classes <= MANY and len(observed.given) * observed.num_classes <= MOST_SCORES:
        found.append(_forests(teaching))
    return found


def _teaching(validation: ValidationRows, posterior: Combined) -> Teaching:
    observed = validation.observed
    others = np.flatnonzero(observed.clean == MISSING)
    some = stream(observed.seed, "taught-again").permutation(others)[:MOST]
    fold = stream(observed.seed, "taught-again-folds").permutation(len(observed.given)) % FOLDS
    return Teaching(validation, posterior, np.sort(np.concatenate([some, validation.clean_rows])), fold)


def _cross_fitted(teaching: Teaching, learner: type[Learner]) -> Floats:
    """Out-of-fold log-probabilities of a learner that corrected labels teach [n, C]."""
    observed = teaching.validation.observed
    assert observed.inputs is not None
    inputs, scale = observed.inputs, observed.scale

    def fit_on(rows: Labels, without: int) -> Callable[[Floats], Array]:
        model = learner().fit(scale.standardised(inputs[rows]), teaching.labels(rows, without))
        return lambda some: model.log_proba(scale.standardised(some))

    models = [fit_on(teaching.rows[teaching.fold[teaching.rows] != f], EVERYBODY) for f in range(FOLDS)]

    def scored(rows: slice) -> Array:
        some, fold = inputs[rows], teaching.fold[rows]
        found = np.empty((len(some), observed.num_classes))
        for f, model in enumerate(models):
            found[fold == f] = model(some[fold == f])
        return found

    out = by_chunks(scored, (len(inputs), observed.num_classes), width=inputs.shape[1])
    for k in teaching.validation.folds:
        mine, clean_rows = teaching.of_clean(k)
        out[mine] = fit_on(clean_rows, k)(inputs[mine])
    return out


def _forests(teaching: Teaching) -> Floats:
    observed = teaching.validation.observed
    assert observed.inputs is not None
    inputs, classes, seed = observed.inputs, observed.num_classes, integer(observed.seed, "forest-again") % 2**31
    labels = np.full(len(inputs), MISSING)
    labels[teaching.rows] = teaching.labels(teaching.rows, EVERYBODY).argmax(axis=1)
    out = forest_scores(inputs, labels, classes, seed, TREES).astype(np.float32)
    for k in teaching.validation.folds:
        mine, clean_rows = teaching.of_clean(k)
        both = np.concatenate([mine, clean_rows])
        of_both = np.append(np.full(len(mine), MISSING), teaching.labels(clean_rows, k).argmax(axis=1))
        out[mine] = forest_scores(inputs[both], of_both, classes, seed, OOF_TREES, counted=1.0)[: len(mine)]
    return out


def _log(p: Floats) -> Floats:
    return np.log(np.maximum(p, FLOOR))
