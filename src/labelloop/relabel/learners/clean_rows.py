"""Learners of the clean rows alone: logistic regression on standardised inputs, and for tables a forest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labelloop.large_arrays import mean_and_deviation
from labelloop.relabel.learners.logistic import Array, fit_logistic, log_softmax
from labelloop.relabel.learners.trees import Forest, grow, votes
from labelloop.types import Floats, Labels

STRENGTHS = (0.01, 0.1, 1.0)  # of the penalty on the weights
CONSTANT_STRENGTH = 0.1
TREES = 100
PRIOR_ROWS = 3.0  # prior rows, spread over all classes, that keep a learner of a few rows from overconfidence


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of every column of all rows [D]."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, inputs: Floats) -> Scale:
        """Mean and deviation of these rows."""
        mean, deviation = mean_and_deviation(inputs)
        return cls(mean, np.maximum(deviation, 1e-6))

    def standardised(self, inputs: Floats) -> Array:
        """Standardised columns [n, D]."""
        return ((inputs - self.mean) / self.deviation).clip(-10, 10)

    def __call__(self, inputs: Floats) -> Array:
        """The same and a last column of ones [n, D + 1], so that a penalty means the same for any D."""
        x = self.standardised(inputs)
        return np.hstack([x / np.sqrt(x.shape[1]), np.ones((len(x), 1))]).astype(np.float64)


@dataclass(frozen=True)
class CleanLogistic:
    """Logistic regression."""

    weights: Array  # [D + 1, C]
    scale: Scale

    def __call__(self, inputs: Floats) -> Floats:
        """Probabilities [n, C]."""
        return np.exp(log_softmax(self.scale(inputs) @ self.weights)).astype(np.float32)


def clean_logistic(inputs: Floats, labels: Labels, num_classes: int, strength: float, scale: Scale) -> CleanLogistic:
    """Fits it to clean rows."""
    x = scale(inputs)
    centre = np.zeros((x.shape[1], num_classes))
    firm = np.append(np.full(x.shape[1] - 1, strength), CONSTANT_STRENGTH)
    return CleanLogistic(fit_logistic(x, np.eye(num_classes)[labels], centre, firm), scale)


@dataclass(frozen=True)
class CleanForest:
    """A forest, mixed with a few prior rows spread over all classes."""

    forest: Forest
    num_classes: int
    sure: float

    def __call__(self, inputs: Floats) -> Floats:
        """Probabilities [n, C]."""
        scores = np.full((len(inputs), self.num_classes), (1 - self.sure) / self.num_classes, np.float32)
        if len(inputs):
            scores[:, self.forest.classes] += self.sure * votes(self.forest, inputs)
        return scores


def clean_forest(inputs: Floats, labels: Labels, num_classes: int, seed: int) -> CleanForest:
    """Fits it to clean rows."""
    forest = grow(inputs, labels, TREES, seed, leaf=1, oob=False)
    return CleanForest(forest, num_classes, len(labels) / (len(labels) + PRIOR_ROWS))
