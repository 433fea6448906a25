"""Out-of-sample scores from embeddings in closed form: linear discriminants, cross-fitted over folds of the rows.

One pass over the rows gives the sums of every fold; a fold is then scored by the discriminant of all the others.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from labelloop.large_arrays import by_chunks, mean_and_deviation, row_chunks
from labelloop.relabel.learners.logistic import Array, log_softmax
from labelloop.types import MISSING, Floats, Labels

FOLDS = 4
SHRINKAGE = 0.01  # of the covariance towards a multiple of the identity, so that it can be inverted


def discriminant_scores(embeddings: Floats, given: Labels, num_classes: int, rng: np.random.Generator) -> Array:
    """Log-probabilities of the given label, each row's learnt from the other folds [n, C].

    Args:
        embeddings: Features [n, D].
        given: Given labels [n], -1 where missing; such rows are scored but not learnt from.
        num_classes: C.
        rng: Deals the rows into folds.
    """
    mean, deviation = mean_and_deviation(embeddings)
    mean, scale = mean.astype(np.float32), np.maximum(deviation, 1e-6).astype(np.float32)
    fold = rng.permutation(len(embeddings)) % FOLDS
    width = embeddings.shape[1]
    counts = np.zeros((FOLDS, num_classes))
    sums, squares = np.zeros((FOLDS, num_classes, width)), np.zeros((FOLDS, width, width))
    for rows in row_chunks(len(embeddings), width):
        x = (np.asarray(embeddings[rows], np.float32) - mean) / scale
        for k in range(FOLDS):
            mine = np.flatnonzero((given[rows] != MISSING) & (fold[rows] == k))
            one_hot = np.eye(num_classes, dtype=np.float32)[given[rows][mine]]  # [m, C]
            counts[k] += one_hot.sum(axis=0, dtype=np.float64)
            sums[k] += one_hot.T @ x[mine]
            squares[k] += x[mine].T @ x[mine]
    fitted = [
        _discriminant(*(np.delete(parts, k, axis=0).sum(axis=0) for parts in (counts, sums, squares)))
        for k in range(FOLDS)
    ]

    def scored(rows: slice) -> Array:
        x = (np.asarray(embeddings[rows], np.float32) - mean) / scale
        scores = np.empty((len(x), num_classes))
        for k, (weights, bias) in enumerate(fitted):
            mine = np.flatnonzero(fold[rows] == k)
            scores[mine] = log_softmax(x[mine] @ weights + bias)
        return scores

    return by_chunks(scored, (len(embeddings), num_classes), np.float64, width=width)


class Discriminant:
    """The discriminant of rows with soft labels, as a learner."""

    def fit(self, inputs: Array, soft_targets: Array) -> Self:
        """Estimates it from standardised rows [n, D] and soft labels [n, C]."""
        self._weights, self._bias = _discriminant(soft_targets.sum(axis=0), soft_targets.T @ inputs, inputs.T @ inputs)
        return self

    def log_proba(self, inputs: Array) -> Array:
        """Log-probabilities of rows [n, C]."""
        return log_softmax(inputs @ self._weights + self._bias)


def _discriminant(counts: Array, sums: Array, squares: Array) -> tuple[Array, Array]:
    """Weights [D, C] and bias [C] of the classes' common-covariance Gaussians."""
    means = sums / np.maximum(counts, 1)[:, None]  # [C, D]
    total = max(counts.sum(), 1.0)
    within = (squares - (means * counts[:, None]).T @ means) / total  # [D, D]
    within += SHRINKAGE * max(np.trace(within) / len(within), 1e-6) * np.eye(len(within))
    weights = np.linalg.solve(within, means.T)  # [D, C]
    # One more row for every class, so that a class without rows stays possible.
    return weights, np.log((counts + 1) / (total + len(counts))) - 0.5 * (means.T * weights).sum(axis=0)
