"""What a given label adds to a prediction from the inputs, under two estimates of the noise.

One assumes that noise depends on the class alone, the other that it may depend on the row as well
(methods/closed_loop/simulation.py). Noisy rows and a few clean ones do not show which is right, so without pairs both
get the same weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelloop.large_arrays import by_chunks, soft_dtype
from labelloop.methods.closed_loop.combination import combine
from labelloop.methods.closed_loop.instant.components import EVERYBODY, Combined, Component, Judges
from labelloop.methods.closed_loop.instant.evidence import Evidence
from labelloop.methods.closed_loop.learners.logistic import Array, log_softmax
from labelloop.methods.closed_loop.simulation import (
    RowNoise,
    estimate_rate,
    estimate_row_noise,
    estimate_transition,
    label_posterior,
)
from labelloop.types import MISSING, Floats, Labels

ROW_CLASSES = 60  # with more classes, the estimate of row-dependent noise takes minutes
STEPS = 200
AGAIN = 10  # steps when starting from an estimate that differs by a few pairs
POWERS = np.geomspace(0.05, 1.0, 40)
Z_FLAT = 1.645  # one-sided 95%
BY_CLASS, BY_ROW = "given label, noise by class", "given label, noise by row"


@dataclass(frozen=True)
class Noise:
    """The estimated noise.

    Attributes:
        judges: The clean rows.
        transition: T[true, given] [C, C].
        without: T estimated without each fold of the paired rows.
        by_row: The estimate of row-dependent noise; None if there are many classes.
    """

    judges: Judges
    transition: Array
    without: list[Array]
    by_row: RowNoise | None

    def log_p(self, rows: Labels | slice) -> Array:
        """Log-probabilities of the given label for some rows [m, C]."""
        return _log_p(self.judges.evidence, rows)

    def components(self, q: Combined) -> list[Component]:
        """q(y | x) · P(ỹ | y, x) under each estimate, where q is P(y | x)."""
        given, rows = self.judges.given, self.judges.rows
        by_class = np.empty(q.unseen.shape)
        for k, matrix in enumerate(self.without):
            mine = self.judges.fold == k
            by_class[mine] = label_posterior(q.unseen[mine], matrix, given[mine])
        everyone = self.judges.evidence.given

        def of_class(some: Labels, fold: int) -> Floats:
            matrix = self.transition if fold == EVERYBODY else self.without[fold]
            return _floats(label_posterior(q.about(some, fold), matrix, everyone[some]))

        found = [Component(BY_CLASS, _floats(by_class), of_class)]
        if (by_row := self.by_row) is not None:

            def of_row(some: Labels, fold: int) -> Floats:
                return _floats(by_row.posterior(q.about(some, fold), self.log_p(some), everyone[some]))

            unseen = by_row.posterior(q.unseen, self.log_p(rows), given)
            found.append(Component(BY_ROW, _floats(unseen), of_row))
        return found

    def pooled(self, q: Combined) -> Combined:
        """The mean of both: without pairs nothing shows which of them is right."""
        found = self.components(q)
        equal = np.full(len(found), 1 / len(found))

        def about(rows: Labels, fold: int) -> Floats:
            return combine([component.about(rows, fold) for component in found], equal)

        everyone = np.arange(len(q.final))
        final = by_chunks(lambda rows: about(everyone[rows], EVERYBODY), q.final.shape, soft_dtype())
        unseen = combine([component.unseen for component in found], equal)
        return Combined(final, unseen, {component.name: 1 / len(found) for component in found}, about)

    def laws(self) -> list[Array]:
        """P(ỹ | y, x) of the judges under each estimate, [M, C] each."""
        labels = self.judges.labels
        found = [self.transition[labels]]
        if self.by_row is not None:
            found.append(self.by_row.of_labels(self.log_p(self.judges.rows), labels))
        return found

    def draw(self, rng: np.random.Generator) -> list[Labels]:
        """Given labels for the judges, drawn from each estimate; paired judges keep their real one."""
        given, last = self.judges.given, self.transition.shape[1] - 1
        drawn = [(rng.random((len(law), 1)) > law.cumsum(axis=1)).sum(axis=1).clip(max=last) for law in self.laws()]
        return [np.where(given != MISSING, given, labels) for labels in drawn]

    def believed(self, q_unseen: Floats, given: Labels) -> Floats:
        """The pooled posterior of the judges if these were their given labels [M, C]."""
        said = [label_posterior(q_unseen, self.transition, given)]
        if self.by_row is not None:
            said.append(self.by_row.posterior(q_unseen, self.log_p(self.judges.rows), given))
        return _floats(np.mean(said, axis=0))


def least_sharp(q_unseen: Floats, labels: Labels) -> float:
    """The smallest power τ of q that the clean rows do not rule out at the 95% level.

    Noise is estimated from the disagreement between given labels and q, so an overconfident q makes good labels look
    wrong. A few clean rows do not determine how confident q may be. The cautious choice is the flattest q that they
    allow, which implies the least noise: the held-out loss of q^τ may exceed the lowest loss by z² / 2.

    Args:
        q_unseen: P(y | x) of the clean rows, learnt without them [M, C].
        labels: Their clean labels [M].
    """
    losses = np.array([-np.log(np.maximum(_true(flatten(q_unseen, tau), labels), 1e-12)).sum() for tau in POWERS])
    return float(POWERS[np.flatnonzero(losses <= losses.min() + Z_FLAT**2 / 2)[0]])


def flatten(q: Floats, power: float) -> Floats:
    """q^τ, normalised [n, C]."""

    def raised(rows: slice) -> Array:
        part = np.maximum(q[rows].astype(np.float64), 1e-12) ** power
        return part / part.sum(axis=1, keepdims=True)

    return by_chunks(raised, q.shape)


def _true(q: Floats, labels: Labels) -> Floats:
    return q[np.arange(len(labels)), labels]


def _floats(values: Array) -> Floats:
    return values.astype(np.float32)


def estimate_noise(judges: Judges, q: Floats, *, by_row: bool = True) -> Noise:
    """Estimates the noise from the sampled noisy rows, and the matrix from the paired clean rows too.

    Args:
        judges: The clean rows.
        q: P(y | x) of all rows, from models that have not seen their given label [n, C].
        by_row: Whether to estimate row-dependent noise, too.
    """
    evidence = judges.evidence
    sample, classes = evidence.sample, evidence.num_classes
    beliefs, labels = q[sample].astype(np.float64), evidence.given[sample]
    true, given = judges.labels, judges.given

    def pairs(mask: NDArray[np.bool_]) -> Array:
        counts = np.zeros((classes, classes))
        chosen = mask & (given != MISSING)
        np.add.at(counts, (true[chosen], given[chosen]), 1)
        return counts

    paired, of_rows = given != MISSING, None
    if len(sample) < classes * classes:  # fewer rows than a matrix has numbers
        transition = estimate_rate(beliefs, labels, pairs(paired))
        without = [estimate_rate(beliefs, labels, pairs(judges.fold != k)) for k in judges.folds if paired.any()]
        return Noise(judges, transition, without or [transition] * len(judges.folds), None)
    transition = estimate_transition(beliefs, labels, pairs=pairs(paired), steps=STEPS)
    without = [transition] * len(judges.folds)
    if paired.any():
        without = [
            estimate_transition(beliefs, labels, pairs=pairs(judges.fold != k), start=transition, steps=AGAIN)
            for k in judges.folds
        ]
    if by_row and classes <= ROW_CLASSES:
        of_rows = estimate_row_noise(beliefs, _log_p(evidence, sample), labels, start=transition)
    return Noise(judges, transition, without, of_rows)


def _log_p(evidence: Evidence, rows: Labels | slice) -> Array:
    scores = evidence.scores[rows].astype(np.float64).reshape(-1, evidence.sources, evidence.num_classes)
    return np.mean([log_softmax(scores[:, s]) for s in range(evidence.sources)], axis=0)  # [m, C]
