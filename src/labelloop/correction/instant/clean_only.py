"""Components that know only the clean rows: logistic regression on the inputs, and on tables a forest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from labelloop.correction.instant.evidence import Evidence
from labelloop.correction.instant.forest import grow, votes
from labelloop.correction.instant.logistic import Array, fit_logistic, log_softmax
from labelloop.large_arrays import mean_and_deviation
from labelloop.types import Floats, Labels

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

TREES = 100
PRIOR_ROWS = 3.0  # rows spread over all classes that keep a learner of a few rows from being sure


@dataclass(frozen=True)
class CleanLogistic:
    """Logistic regression on standardised inputs."""

    weights: Array  # [D + 1, C]
    mean: Floats  # [D]
    scale: Floats  # [D]

    def about(self, evidence: Evidence, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        assert evidence.inputs is not None
        return np.exp(log_softmax(_columns(evidence.inputs[rows], self.mean, self.scale) @ self.weights)).astype(
            np.float32
        )


def _columns(inputs: Floats, mean: Floats, scale: Floats) -> Array:
    x = ((inputs - mean) / scale).clip(-10, 10)
    return np.hstack([x / np.sqrt(x.shape[1]), np.ones((len(x), 1))]).astype(np.float64)


def clean_logistic(evidence: Evidence, rows: Labels, strength: float) -> CleanLogistic:
    """Fits it to the clean rows."""
    assert evidence.inputs is not None
    mean, deviation = mean_and_deviation(evidence.inputs)
    scale = np.maximum(deviation, 1e-6)
    x = _columns(evidence.inputs[rows], mean, scale)
    centre = np.zeros((x.shape[1], evidence.num_classes))
    firm = np.append(np.full(x.shape[1] - 1, strength), 0.1)
    return CleanLogistic(fit_logistic(x, evidence.one_hot(evidence.clean[rows]), centre, firm), mean, scale)


@dataclass(frozen=True)
class CleanForest:
    """A forest of the clean rows, mixed with a few rows that say nothing."""

    forest: RandomForestClassifier
    sure: float

    def about(self, evidence: Evidence, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        assert evidence.inputs is not None
        said = np.full((len(rows), evidence.num_classes), (1 - self.sure) / evidence.num_classes, np.float32)
        if len(rows):
            said[:, self.forest.classes_] += self.sure * votes(self.forest, evidence.inputs[rows])
        return said


def clean_forest(evidence: Evidence, rows: Labels) -> CleanForest:
    """Fits it to the clean rows."""
    assert evidence.inputs is not None
    forest = grow(evidence.inputs[rows], evidence.clean[rows], TREES, evidence.seed, leaf=1, unseen=False)
    return CleanForest(forest, len(rows) / (len(rows) + PRIOR_ROWS))
