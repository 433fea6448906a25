"""Learners that are taught a second time: by the labels that were corrected once, instead of the given ones.

This is the closed loop without a network. The clean rows of a fold are predicted by learners that were taught without
them, by labels that were corrected without them; only the estimate of the noise has seen all clean rows. What the
learners say is taken as it is: a fit on top would learn from the scores of other folds, which this fold has taught.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from labelloop.large_arrays import by_chunks, put
from labelloop.methods.closed_loop.instant.components import (
    EVERYBODY,
    Combined,
    Component,
    Judges,
    best_of_each,
    combination,
)
from labelloop.methods.closed_loop.instant.evidence import FLOOR, side_by_side
from labelloop.methods.closed_loop.instant.opinions import as_they_are
from labelloop.methods.closed_loop.learners.columns import MOST_SCORES
from labelloop.methods.closed_loop.learners.discriminant import fit_discriminant
from labelloop.methods.closed_loop.learners.logistic import MANY, Array
from labelloop.methods.closed_loop.learners.trees import forest_scores
from labelloop.seeds import integer, stream
from labelloop.types import MISSING, Floats, Labels

MOST = 10_000  # rows to learn from, besides the clean ones
FOLDS = 4  # of all rows: a row is predicted by learners that have not learnt its own label
TREES = 200
UNSEEN_TREES = 74  # of a forest for clean rows, as many as the 200 / e that vote on other rows without having seen them
AGAIN, BEFORE = "taught again", "taught by given labels"


@dataclass(frozen=True)
class Lesson:
    """What learners are taught.

    Attributes:
        judges: The clean rows.
        said: Soft labels of all rows, corrected once.
        rows: Positions of the rows to learn from, ascending; all clean rows are among them.
        fold: Folds of all rows [n].
    """

    judges: Judges
    said: Combined
    rows: Labels
    fold: Labels

    def labels(self, rows: Labels, without: int) -> Array:
        """What some rows teach: their clean label, else a corrected one that was made without a fold [m, C]."""
        found = self.said.about(rows, without).astype(np.float64)
        clean = self.judges.evidence.clean[rows]
        found[clean != MISSING] = np.eye(found.shape[1])[clean[clean != MISSING]]
        return found

    def of_clean(self, k: int) -> tuple[Labels, Labels]:
        """The clean rows of a fold, and the rows that teach about them."""
        mine = self.judges.teachers[self.judges.teacher_fold == k]
        return mine, np.setdiff1d(self.rows, mine)


def teach_again(judges: Judges, q: Combined, said: Combined) -> Combined:
    """P(y | x) once more: `q`, combined with the geometric mean of `q` and learners that the corrected labels teach.

    Args:
        judges: The clean rows, with what is known about all rows.
        q: P(y | x), learnt from given labels and clean rows.
        said: P(y | x, ỹ), which teaches.
    """
    evidence = judges.evidence
    before = by_chunks(lambda rows: _log(q.final[rows]), q.final.shape)
    put(before, judges.rows, _log(q.unseen))
    scores = side_by_side([before, *scores_again(_lesson(judges, said))], np.float32)
    informed = replace(judges, evidence=replace(evidence, scores=scores), learnt={})
    learnt = best_of_each(informed, {AGAIN: [as_they_are]}, use_given=False)
    found = combination(informed, [*learnt, Component(BEFORE, q.unseen, q.about)])
    weights = {AGAIN: found.weights[AGAIN]} | {
        name: found.weights[BEFORE] * weight for name, weight in q.weights.items()
    }
    return replace(found, weights=weights)


def scores_again(lesson: Lesson) -> list[Floats]:
    """Out-of-sample log-probabilities of the true label, one array [n, C] per learner."""
    evidence = lesson.judges.evidence
    found = [_discriminants(lesson)]
    if evidence.table and evidence.num_classes <= MANY and len(evidence.given) * evidence.num_classes <= MOST_SCORES:
        found.append(_forests(lesson))
    return found


def _lesson(judges: Judges, said: Combined) -> Lesson:
    evidence = judges.evidence
    others = np.flatnonzero(evidence.clean == MISSING)
    some = stream(evidence.seed, "taught-again").permutation(others)[:MOST]
    fold = stream(evidence.seed, "taught-again-folds").permutation(len(evidence.given)) % FOLDS
    return Lesson(judges, said, np.sort(np.concatenate([some, judges.teachers])), fold)


def _discriminants(lesson: Lesson) -> Floats:
    evidence = lesson.judges.evidence
    assert evidence.inputs is not None
    inputs, scale = evidence.inputs, evidence.scale

    def fitted(rows: Labels, without: int) -> Callable[[Floats], Array]:
        model = fit_discriminant(scale.standardised(inputs[rows]), lesson.labels(rows, without))
        return lambda some: model(scale.standardised(some))

    models = [fitted(lesson.rows[lesson.fold[lesson.rows] != f], EVERYBODY) for f in range(FOLDS)]

    def scored(rows: slice) -> Array:
        some, fold = inputs[rows], lesson.fold[rows]
        found = np.empty((len(some), evidence.num_classes))
        for f, model in enumerate(models):
            found[fold == f] = model(some[fold == f])
        return found

    out = by_chunks(scored, (len(inputs), evidence.num_classes), width=inputs.shape[1])
    for k in lesson.judges.folds:
        mine, teachers = lesson.of_clean(k)
        put(out, mine, fitted(teachers, k)(inputs[mine]))
    return out


def _forests(lesson: Lesson) -> Floats:
    evidence = lesson.judges.evidence
    assert evidence.inputs is not None
    inputs, classes, seed = evidence.inputs, evidence.num_classes, integer(evidence.seed, "forest-again") % 2**31
    labels = np.full(len(inputs), MISSING)
    labels[lesson.rows] = lesson.labels(lesson.rows, EVERYBODY).argmax(axis=1)
    out = forest_scores(inputs, labels, classes, seed, TREES).astype(np.float32)
    for k in lesson.judges.folds:
        mine, teachers = lesson.of_clean(k)
        both = np.concatenate([mine, teachers])
        of_both = np.append(np.full(len(mine), MISSING), lesson.labels(teachers, k).argmax(axis=1))
        out[mine] = forest_scores(inputs[both], of_both, classes, seed, UNSEEN_TREES, counted=1.0)[: len(mine)]
    return out


def _log(p: Floats) -> Floats:
    return np.log(np.maximum(p, FLOOR))
