"""What a given label adds to a prediction from the inputs, under two estimates of the noise.

One assumes that noise depends on the class alone, the other that it may depend on the row as well
(relabel/noise_model.py). Without pairs nothing shows which of them is right: a model of P(ỹ | x) fits the noisy rows
equally well whether the given label tells more than x does or not. So both get the same weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.noise_model import (
    RowNoise,
    draw_labels,
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
    by_row: RowNoise | None = None

    def log_p(self, rows: Labels | slice) -> Array:
        """Log-probabilities of the given label for some rows [m, C]."""
        return self.validation.observed.log_given(rows)

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

    def posterior(self, q: Combined) -> Combined:
        """P(y | x, ỹ), the mean over both estimates, where q is P(y | x)."""
        found = self.components(q)
        equal = np.full(len(found), 1 / len(found))

        def predict(rows: Labels, fold: int) -> Floats:
            return combine([component.predict(rows, fold) for component in found], equal)

        oof = combine([component.oof for component in found], equal)
        return Combined.of(predict, oof, {component.name: 1 / len(found) for component in found}, q.final.shape)

    def label_probs(self, rows: Labels, labels: Labels) -> list[Array]:
        """P(ỹ | y, x) of rows whose true label is known, under each estimate, [m, C] each."""
        found = [self.transition[labels]]
        return found if self.by_row is None else [*found, self.by_row.of_labels(self.log_p(rows), labels)]

    def draw(self, rng: np.random.Generator) -> list[Labels]:
        """Given labels for the validation rows, drawn from each estimate."""
        validation = self.validation
        return [draw_labels(law, rng) for law in self.label_probs(validation.rows, validation.labels)]

    def posterior_given(self, rows: Labels, q: Floats, given: Labels) -> Floats:
        """P(y | x, ỹ) of some rows if these were their given labels, where q is P(y | x) [m, C]."""
        by_class = label_posterior(q, self.transition, given)
        if self.by_row is None:
            return _floats(by_class)
        return _floats((by_class + self.by_row.posterior(q, self.log_p(rows), given)) / 2)


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

    paired, few = given != MISSING, len(sample) < classes * classes  # fewer rows than a matrix has numbers

    def fitted(mask: NDArray[np.bool_], start: Array | None = None) -> Array:
        pairs, chosen = np.zeros((classes, classes)), mask & paired
        np.add.at(pairs, (true[chosen], given[chosen]), 1)
        if few:
            return estimate_rate(q_rows, labels, pairs)
        return estimate_transition(q_rows, labels, pairs=pairs, start=start, steps=STEPS if start is None else AGAIN)

    transition = fitted(paired)
    without = [fitted(validation.fold != k, transition) if paired.any() else transition for k in validation.folds]
    if few or classes > ROW_CLASSES:
        return Noise(validation, transition, without)
    by_row = estimate_row_noise(q_rows, observed.log_given(sample), labels, start=transition)
    return Noise(validation, transition, without, by_row)
