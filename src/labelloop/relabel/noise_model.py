"""The noisy label of a clean row, simulated with noise that is estimated from the noisy rows themselves.

The paper gives the correction network f_n(x), which contains nothing about y beyond x. Here the noisy label is drawn
given the *clean* one, from P(ỹ | y) or P(ỹ | y, x). Both can be estimated from rows that have only a given label, once
q(y | x) is known: the likelihood of a row is Σ_y q(y | x) P(ỹ | y, x). Pure numpy and scipy; no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelloop.relabel.learners.logistic import Array, descend
from labelloop.types import MISSING, Floats, Labels

TINY = 1e-300
PRIOR_ROWS = 5.0  # prior rows for each row of the matrix
PRIOR_RIGHT = 0.7  # the share of these whose label is right
STEPS = 500
RATE_STEPS = 30
TOLERANCE = 1e-7  # of the log-likelihood of a row; a smaller gain ends EM
BETA_SCALE = 1.0  # standard deviation of the prior of β


def transition_prior(given: Labels, num_classes: int, rows: float = PRIOR_ROWS, right: float = PRIOR_RIGHT) -> Array:
    """Prior counts [C, C], added to those of the data: most labels are right, wrong ones follow the label frequencies.

    Args:
        given: Given labels [n], -1 where missing.
        num_classes: C.
        rows: Prior rows for each true class.
        right: The share of them whose given label is the true one.
    """
    known = np.bincount(given[given != MISSING], minlength=num_classes) + 1.0  # one more, so that no label is ruled out
    others = np.tile(known, (num_classes, 1)) * (1 - np.eye(num_classes))  # [C, C]
    others /= np.maximum(others.sum(axis=1, keepdims=True), TINY)
    return rows * (right * np.eye(num_classes) + (1 - right) * others)


def label_posterior(q: Array | Floats, transition: Array, given: Labels) -> Array:
    """P(y | x, ỹ) ∝ q(y | x) T[y, ỹ] of every row [n, C]; q itself where no label is given."""
    return _posterior(np.asarray(q, np.float64), transition[:, given].T, given)


def estimate_transition(
    q: Array | Floats,
    given: Labels,
    *,
    prior: Array | None = None,
    pairs: Array | None = None,
    start: Array | None = None,
    steps: int = STEPS,
) -> Array:
    """The matrix T[y, ỹ] of highest posterior given the labels, by EM; every step raises the posterior of T.

    Args:
        q: P(y | x) of every row, from a model that has not seen its given label [n, C].
        given: Given labels [n], -1 where missing; such rows are ignored.
        prior: Counts [C, C] to begin with; `transition_prior` by default.
        pairs: Counts [true, given] of rows where both labels are known [C, C].
        start: T [C, C] to begin with; the prior and the pairs by default.
        steps: The maximum number of steps.

    Returns:
        T [C, C]; rows sum to 1.
    """
    num_classes = q.shape[1]
    prior = transition_prior(given, num_classes) if prior is None else prior
    fixed = prior if pairs is None else prior + pairs
    seen = np.flatnonzero(given != MISSING)
    order = seen[np.argsort(given[seen], kind="stable")]
    q_rows, labels = np.asarray(q[order], np.float64), given[order]
    by_label = _Counts(labels, num_classes)
    transition = fixed / fixed.sum(axis=1, keepdims=True) if start is None else start
    best = -np.inf
    for _ in range(steps):
        joint = q_rows * transition[:, labels].T  # [n, C]
        likelihood = np.maximum(joint.sum(axis=1, keepdims=True), TINY)
        value = float((fixed * np.log(np.maximum(transition, TINY))).sum()) + float(np.log(likelihood).sum())
        if value - best < TOLERANCE * max(len(order), 1):
            break
        best = value
        counts = fixed + by_label(joint / likelihood)
        transition = counts / counts.sum(axis=1, keepdims=True)
    return transition


def estimate_rate(q: Array | Floats, given: Labels, pairs: Array) -> Array:
    """The same with one unknown, the share of labels that are right; wrong ones follow the label frequencies.

    A matrix has C numbers for every class. A class with fewer rows than that would fit its own rows too closely.
    """
    num_classes = q.shape[1]
    matrix = transition_prior(given, num_classes, rows=1.0)
    known = given[given != MISSING]
    q_rows, total = q[given != MISSING], len(known) + pairs.sum() + PRIOR_ROWS
    for _ in range(RATE_STEPS):
        right = np.trace(pairs) + PRIOR_ROWS * PRIOR_RIGHT
        right += label_posterior(q_rows, matrix, known)[np.arange(len(known)), known].sum()
        matrix = transition_prior(given, num_classes, rows=1.0, right=float(right / total))
    return matrix


@dataclass(frozen=True)
class RowNoise:
    """Noise that may depend on the row: P(ỹ | y, x) ∝ exp(A[y, ỹ] + β log p(ỹ | x)).

    With β = 0 it is a transition matrix; with constant A and β = 1, the given label adds nothing to p.

    Attributes:
        matrix: A [C, C].
        beta: β.
    """

    matrix: Array
    beta: float

    def of_given(self, log_p: Array | Floats, given: Labels) -> Array:
        """P(ỹ_i | y, x_i) for every y [n, C]; 1 where no label is given."""
        lik = _RowTerms(self, np.asarray(log_p, np.float64), given).likelihood
        return np.where((given != MISSING)[:, None], lik, 1.0)

    def of_labels(self, log_p: Array | Floats, labels: Labels) -> Array:
        """P(· | y_i, x_i) of rows whose true label is known [n, C]: what a noisy label is drawn from."""
        logits = self.matrix[labels] + self.beta * np.asarray(log_p, np.float64)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def posterior(self, q: Array | Floats, log_p: Array | Floats, given: Labels) -> Array:
        """P(y | x, ỹ) of every row [n, C]; q itself where no label is given."""
        return _posterior(np.asarray(q, np.float64), self.of_given(log_p, given), given)


def estimate_row_noise(
    q: Array | Floats, log_p: Array | Floats, given: Labels, *, start: Array | None = None, prior: Array | None = None
) -> RowNoise:
    """The A and β of highest posterior given the labels.

    Args:
        q: P(y | x) of every row [n, C], as in `estimate_transition`.
        log_p: log P(ỹ | x), from a model that has not seen the row's given label [n, C].
        given: Given labels [n], -1 where missing.
        start: T [C, C] to begin with; that of EM by default.
        prior: Counts [C, C] of softmax(A); `transition_prior` by default.
    """
    num_classes = q.shape[1]
    prior = transition_prior(given, num_classes) if prior is None else prior
    start = estimate_transition(q, given, prior=prior) if start is None else start
    seen = given != MISSING
    q_rows, log_p, labels = np.asarray(q[seen], np.float64), np.asarray(log_p[seen], np.float64), given[seen]
    one_hot_counts = _Counts(labels, num_classes)

    def loss(flat: Array) -> tuple[float, Array]:
        noise = RowNoise(flat[:-1].reshape(num_classes, num_classes), float(flat[-1]))
        terms = _RowTerms(noise, log_p, labels)
        joint = q_rows * terms.likelihood
        likelihood = np.maximum(joint.sum(axis=1, keepdims=True), TINY)
        per_z = joint / likelihood / terms.normaliser  # R / Z [n, C]
        log_prior = np.log(np.maximum(terms.odds / terms.odds.sum(axis=1, keepdims=True), TINY))
        value = np.log(likelihood).sum() + (prior * log_prior).sum() - 0.5 * (noise.beta / BETA_SCALE) ** 2
        slope = one_hot_counts(joint / likelihood) - terms.odds * (per_z.T @ terms.tilt)
        slope += prior - prior.sum(axis=1, keepdims=True) * np.exp(log_prior)
        expected = (log_p * terms.tilt * (per_z @ terms.odds)).sum()
        slope_beta = log_p[np.arange(len(labels)), labels].sum() - expected - noise.beta / BETA_SCALE**2
        return -float(value), -np.append(slope.ravel(), slope_beta)

    first = np.append(np.log(np.maximum(start, 1e-6)).ravel(), 0.0)
    found = descend(loss, first, maxiter=200, maxcor=10, ftol=1e-8)
    return RowNoise(found[:-1].reshape(num_classes, num_classes), float(found[-1]))


class _RowTerms:
    """exp(A), exp(β log p), the sums of their products and P(ỹ_i | y, x_i): the terms of `RowNoise` for some rows."""

    def __init__(self, noise: RowNoise, log_p: Array, given: Labels) -> None:
        self.odds = np.exp(noise.matrix - noise.matrix.max(axis=1, keepdims=True))  # [C, C]
        tilt = noise.beta * log_p
        self.tilt = np.exp(tilt - tilt.max(axis=1, keepdims=True))  # [n, C]
        self.normaliser = np.maximum(self.tilt @ self.odds.T, TINY)  # Z [n, C]
        mine = self.tilt[np.arange(len(given)), given][:, None]  # [n, 1]
        self.likelihood = self.odds[:, given].T * mine / self.normaliser  # [n, C]


class _Counts:
    """Sums of rows [n, C] by given label, as [C true, C given]."""

    def __init__(self, labels: Labels, num_classes: int) -> None:
        self.order = np.argsort(labels, kind="stable")
        self.present, self.starts = np.unique(labels[self.order], return_index=True)
        self.num_classes = num_classes

    def __call__(self, weights: Array) -> Array:
        counts = np.zeros((self.num_classes, self.num_classes))
        if len(self.order):
            counts[:, self.present] = np.add.reduceat(weights[self.order], self.starts, axis=0).T
        return counts


def _posterior(q: Array, likelihood: Array, given: Labels) -> Array:
    joint = np.where((given != MISSING)[:, None], q * likelihood, q)
    total = joint.sum(axis=1, keepdims=True)
    return np.where(total > TINY, joint / np.maximum(total, TINY), q)


def draw_labels(probabilities: NDArray[np.floating], rng: np.random.Generator) -> Labels:
    """A label for every row, drawn from its row of probabilities [n, C]."""
    edges = probabilities.cumsum(axis=1, dtype=np.float64)
    uniform = rng.random((len(probabilities), 1)) * edges[:, -1:]
    return (uniform >= edges).sum(axis=1).clip(max=probabilities.shape[1] - 1)
