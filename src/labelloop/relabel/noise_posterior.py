"""What a given label adds to a prediction from the inputs, under two estimates of the noise.

One assumes that noise depends on the class alone, the other that it may depend on the row as well
(relabel/noise_model.py). Noisy rows and a few clean ones do not show which is right, so without pairs both
get the same weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelloop.large_arrays import by_chunks, soft_dtype
from labelloop.relabel.calibration import Observations
from labelloop.relabel.learners.logistic import Array, log_softmax
from labelloop.relabel.noise_model import (
    RowNoise,
    estimate_rate,
    estimate_row_noise,
    estimate_transition,
    label_posterior,
)
from labelloop.relabel.stacking import EVERYBODY, Combined, Component, ValidationRows, combine
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
        validation: The clean rows.
        transition: T[true, given] [C, C].
        without: T estimated without each fold of the paired rows.
        by_row: The estimate of row-dependent noise; None if there are many classes.
    """

    validation: ValidationRows
    transition: Array
    without: list[Array]
    by_row: RowNoise | None

    def log_p(self, rows: Labels | slice) -> Array:
        """Log-probabilities of the given label for some rows [m, C]."""
        return _log_p(self.validation.observed, rows)

    def components(self, q: Combined) -> list[Component]:
        """q(y | x) · P(ỹ | y, x) under each estimate, where q is P(y | x)."""
        given, rows = self.validation.given, self.validation.rows
        by_class = np.empty(q.oof.shape)
        for k, matrix in enumerate(self.without):
            mine = self.validation.fold == k
            by_class[mine] = label_posterior(q.oof[mine], matrix, given[mine])
        everyone = self.validation.observed.given

        def of_class(some: Labels, fold: int) -> Floats:
            matrix = self.transition if fold == EVERYBODY else self.without[fold]
            return _floats(label_posterior(q.predict(some, fold), matrix, everyone[some]))

        found = [Component(BY_CLASS, _floats(by_class), of_class)]
        if (by_row := self.by_row) is not None:

            def of_row(some: Labels, fold: int) -> Floats:
                return _floats(by_row.posterior(q.predict(some, fold), self.log_p(some), everyone[some]))

            oof = by_row.posterior(q.oof, self.log_p(rows), given)
            found.append(Component(BY_ROW, _floats(oof), of_row))
        return found

    def pooled(self, q: Combined) -> Combined:
        """The mean of both: without pairs nothing shows which of them is right."""
        found = self.components(q)
        equal = np.full(len(found), 1 / len(found))

        def predict(rows: Labels, fold: int) -> Floats:
            return combine([component.predict(rows, fold) for component in found], equal)

        everyone = np.arange(len(q.final))
        final = by_chunks(lambda rows: predict(everyone[rows], EVERYBODY), q.final.shape, soft_dtype())
        oof = combine([component.oof for component in found], equal)
        return Combined(final, oof, {component.name: 1 / len(found) for component in found}, predict)

    def label_probs(self) -> list[Array]:
        """P(ỹ | y, x) of the validation rows under each estimate, [M, C] each."""
        labels = self.validation.labels
        found = [self.transition[labels]]
        if self.by_row is not None:
            found.append(self.by_row.of_labels(self.log_p(self.validation.rows), labels))
        return found

    def draw(self, rng: np.random.Generator) -> list[Labels]:
        """Given labels for the validation rows, drawn from each estimate; paired ones keep their real one."""
        given, last = self.validation.given, self.transition.shape[1] - 1
        drawn = [
            (rng.random((len(law), 1)) > law.cumsum(axis=1)).sum(axis=1).clip(max=last) for law in self.label_probs()
        ]
        return [np.where(given != MISSING, given, labels) for labels in drawn]

    def posterior_given(self, q_oof: Floats, given: Labels) -> Floats:
        """The pooled posterior of the validation rows if these were their given labels [M, C]."""
        posterior = [label_posterior(q_oof, self.transition, given)]
        if self.by_row is not None:
            posterior.append(self.by_row.posterior(q_oof, self.log_p(self.validation.rows), given))
        return _floats(np.mean(posterior, axis=0))


def least_sharp(q_oof: Floats, labels: Labels) -> float:
    """The smallest power τ of q that the clean rows do not rule out at the 95% level.

    Noise is estimated from the disagreement between given labels and q, so an overconfident q makes good labels look
    wrong. A few clean rows do not determine how confident q may be. The cautious choice is the flattest q that they
    allow, which implies the least noise: the held-out loss of q^τ may exceed the lowest loss by z² / 2.

    Args:
        q_oof: P(y | x) of the clean rows, learnt without them [M, C].
        labels: Their clean labels [M].
    """
    losses = np.array([-np.log(np.maximum(_true(flatten(q_oof, tau), labels), 1e-12)).sum() for tau in POWERS])
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


def estimate_noise(validation: ValidationRows, q: Floats) -> Noise:
    """Estimates the noise from the sampled noisy rows, and the matrix from the paired clean rows too.

    Args:
        validation: The clean rows.
        q: P(y | x) of all rows, from models that have not seen their given label [n, C].
    """
    observed = validation.observed
    sample, classes = observed.sample, observed.num_classes
    q_rows, labels = q[sample].astype(np.float64), observed.given[sample]
    true, given = validation.labels, validation.given

    def pairs(mask: NDArray[np.bool_]) -> Array:
        counts = np.zeros((classes, classes))
        chosen = mask & (given != MISSING)
        np.add.at(counts, (true[chosen], given[chosen]), 1)
        return counts

    paired, of_rows = given != MISSING, None
    if len(sample) < classes * classes:  # fewer rows than a matrix has numbers
        transition = estimate_rate(q_rows, labels, pairs(paired))
        without = [estimate_rate(q_rows, labels, pairs(validation.fold != k)) for k in validation.folds if paired.any()]
        return Noise(validation, transition, without or [transition] * len(validation.folds), None)
    transition = estimate_transition(q_rows, labels, pairs=pairs(paired), steps=STEPS)
    without = [transition] * len(validation.folds)
    if paired.any():
        without = [
            estimate_transition(q_rows, labels, pairs=pairs(validation.fold != k), start=transition, steps=AGAIN)
            for k in validation.folds
        ]
    if classes <= ROW_CLASSES:
        of_rows = estimate_row_noise(q_rows, _log_p(observed, sample), labels, start=transition)
    return Noise(validation, transition, without, of_rows)


def _log_p(observed: Observations, rows: Labels | slice) -> Array:
    scores = observed.scores[rows].astype(np.float64).reshape(-1, observed.sources, observed.num_classes)
    return np.mean([log_softmax(scores[:, s]) for s in range(observed.sources)], axis=0)  # [m, C]
