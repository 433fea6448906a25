"""Small worlds in which the best possible correction is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NUM_CLASSES = 4
MATRIX = np.array([[0.7, 0.3, 0, 0], [0, 0.5, 0.3, 0.2], [0, 0, 0.9, 0.1], [0.25, 0.25, 0, 0.5]])  # [true, noisy]


@dataclass(frozen=True)
class World:
    """Rows drawn from a known law.

    Attributes:
        probabilities: What a perfect model of the given label would say [n, C].
        posterior: The law of the true label given all that is known of a row [n, C].
    """

    embeddings: np.ndarray
    probabilities: np.ndarray
    given: np.ndarray
    true: np.ndarray
    posterior: np.ndarray

    def clean(self, count: int, seed: int = 0) -> np.ndarray:
        """Clean labels of some random rows, -1 elsewhere."""
        rows = np.random.default_rng(seed).permutation(len(self.true))[:count]
        labels = np.full(len(self.true), -1)
        labels[rows] = self.true[rows]
        return labels

    def accuracy(self, labels: np.ndarray, clean: np.ndarray) -> float:
        """On the rows that were not verified."""
        return float((labels == self.true)[clean < 0].mean())


def class_conditional(n: int = 6000, seed: int = 0, matrix: np.ndarray = MATRIX) -> World:
    """Gaussian classes, and labels that depend on the class alone."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(NUM_CLASSES, 5)) * 1.2
    true = rng.integers(NUM_CLASSES, size=n)
    x = centres[true] + rng.normal(size=(n, 5))
    q = np.exp(-0.5 * ((x[:, None] - centres) ** 2).sum(axis=2))
    q /= q.sum(axis=1, keepdims=True)  # [n, C] p(true | x)
    given = (rng.random((n, 1)) > matrix[true].cumsum(axis=1)).sum(axis=1).clip(max=NUM_CLASSES - 1)
    posterior = q * matrix[:, given].T
    return World(x, q @ matrix, given, true, posterior / posterior.sum(axis=1, keepdims=True))


def worthless_labels(n: int = 6000, seed: int = 0) -> World:
    """Labels that a model of the inputs draws: they look as good as any, and tell nothing that the inputs do not."""
    world = class_conditional(n, seed, np.eye(NUM_CLASSES))
    p = world.probabilities
    given = (np.random.default_rng(seed + 1).random((n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=NUM_CLASSES - 1)
    return World(world.embeddings, p, given, world.true, p)
