"""Out-of-sample scores from embeddings in closed form: linear discriminants, cross-fitted over folds of the rows.

One pass over the rows gives the sums of every fold; a fold is then scored by the discriminant of all the others.
"""

from __future__ import annotations

import numpy as np

from labelloop.correction.instant.logistic import Array, log_softmax
from labelloop.types import MISSING, Floats, Labels

FOLDS = 4
SHRINKAGE = 0.01  # of the covariance towards a multiple of the identity, so that it can be inverted


def discriminant_scores(embeddings: Floats, given: Labels, num_classes: int, rng: np.random.Generator) -> Array:
    """Log-probabilities of the given label, for every row from rows of other folds [n, C].

    Args:
        embeddings: Features [n, D].
        given: Given labels [n], -1 where missing; such rows are scored and teach nothing.
        num_classes: C.
        rng: Deals the rows into folds.
    """
    x = np.asarray(embeddings, np.float32)
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-6)
    fold = rng.permutation(len(x)) % FOLDS
    labelled = given != MISSING
    counts, sums, squares = [], [], []  # a fold each: [C], [C, D], [D, D]
    for k in range(FOLDS):
        mine = np.flatnonzero(labelled & (fold == k))
        one_hot = np.eye(num_classes, dtype=np.float32)[given[mine]]  # [m, C]
        counts.append(one_hot.sum(axis=0, dtype=np.float64))
        sums.append((one_hot.T @ x[mine]).astype(np.float64))
        squares.append((x[mine].T @ x[mine]).astype(np.float64))
    scores = np.empty((len(x), num_classes))
    for k in range(FOLDS):
        weights, bias = _discriminant(
            *(np.sum([part for j, part in enumerate(parts) if j != k], axis=0) for parts in (counts, sums, squares))
        )
        mine = np.flatnonzero(fold == k)
        scores[mine] = log_softmax(x[mine] @ weights + bias)
    return scores


def _discriminant(counts: Array, sums: Array, squares: Array) -> tuple[Array, Array]:
    """Weights [D, C] and bias [C] of the classes' common-covariance Gaussians."""
    means = sums / np.maximum(counts, 1)[:, None]  # [C, D]
    total = max(counts.sum(), 1.0)
    within = (squares - (means * counts[:, None]).T @ means) / total  # [D, D]
    within += SHRINKAGE * max(np.trace(within) / len(within), 1e-6) * np.eye(len(within))
    weights = np.linalg.solve(within, means.T)  # [D, C]
    # One row more for every class keeps a class that no row has possible.
    return weights, np.log((counts + 1) / (total + len(counts))) - 0.5 * (means.T * weights).sum(axis=0)
