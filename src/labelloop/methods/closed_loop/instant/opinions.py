"""Models of a row's true label given its scores and its given label, learnt from clean rows.

All have the form logits = scores · weights + (a row of numbers for the given label), so they can be compared, combined,
and applied to rows without a given label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labelloop.methods.closed_loop.instant.evidence import Evidence
from labelloop.methods.closed_loop.learners.logistic import Array, descend, fit_logistic, log_softmax
from labelloop.types import MISSING, Floats, Labels

# Prior rows for each row of the noise matrix; they make the given label uninformative.
PRIOR_ROWS = 5.0


@dataclass(frozen=True)
class Opinion:
    """A fitted linear predictor of the true label."""

    weights: Array  # [E, C]
    of_given: Array  # [C given, C] what a given label adds to the logits

    def about(self, evidence: Evidence, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        logits = evidence.columns(rows) @ self.weights
        if use_given:
            logits += np.vstack([self.of_given, np.zeros(evidence.num_classes)])[evidence.given[rows]]  # -1: the zeros
        return np.exp(log_softmax(logits)).astype(np.float32)


def as_they_are(evidence: Evidence, rows: Labels) -> Opinion:
    """The geometric mean of the scores: nothing is learnt from the clean rows."""
    return Opinion(evidence.centre, np.zeros((evidence.num_classes, evidence.num_classes)))


def recalibrated(evidence: Evidence, rows: Labels, strength: float) -> Opinion:
    """The scores alone, recalibrated on the clean rows. The given label is ignored."""
    targets = evidence.one_hot(evidence.clean[rows])
    weights = fit_logistic(evidence.columns(rows), targets, evidence.centre, evidence.strength(strength))
    return Opinion(weights, np.zeros((evidence.num_classes, evidence.num_classes)))


def label_corrector(evidence: Evidence, rows: Labels, strength: float, given_strength: float) -> Opinion:
    """The correction network without a hidden layer: predicts the true label from the given label and the scores.

    Args:
        evidence: What is known about the rows.
        rows: Clean rows; only the paired ones are learnt from.
        strength: Of the penalty that pulls towards the scores as they are.
        given_strength: Of the penalty that pulls towards ignoring the given label.
    """
    c, rows = evidence.num_classes, rows[evidence.given[rows] != MISSING]
    x = np.hstack([evidence.one_hot(evidence.given[rows]), evidence.columns(rows)])  # [m, C + E]
    centre = np.vstack([np.zeros((c, c)), evidence.centre])
    firm = np.append(np.full(c, given_strength), evidence.strength(strength))
    weights = fit_logistic(x, evidence.one_hot(evidence.clean[rows]), centre, firm)
    return Opinion(weights[c:], weights[:c])


def noise_model(evidence: Evidence, rows: Labels, influence: float, strength: float) -> Opinion:
    """Bayes with a noise matrix: p(true | x) · T[true, given], fitted jointly to clean and noisy rows.

    The likelihood of a clean row is p(true | x), times T[true, given] if it is paired. That of a noisy row is
    Σ_true p(true | x) T[true, given]. Only the matrix assumes that noise depends on nothing but the class.

    Args:
        evidence: What is known about the rows.
        rows: Clean rows to learn from.
        influence: The total weight of the sampled noisy rows, as a multiple of the clean rows.
        strength: Of the penalty that pulls towards the scores as they are.
    """
    c, centre, firm = evidence.num_classes, evidence.centre, evidence.strength(strength)[:, None]
    x, x_noisy = evidence.columns(rows), evidence.columns(evidence.sample)
    targets, given = evidence.one_hot(evidence.clean[rows]), evidence.given[evidence.sample]
    known = evidence.given[evidence.given != MISSING]
    prior = PRIOR_ROWS * np.bincount(known, minlength=c) / max(len(known), 1)  # [C]
    seen = targets.T @ evidence.one_hot(evidence.given[rows]) + prior  # [C true, C given]
    weight = min(influence * len(rows), len(known)) / max(len(given), 1)  # of one noisy row
    given_one_hot = evidence.one_hot(given)  # [S, C]
    noisy_by_column = np.ascontiguousarray(x_noisy.T)  # [E, S]: numpy works faster along long rows than across them

    def loss(flat: Array) -> tuple[float, Array]:
        weights, free = flat[: centre.size].reshape(centre.shape), flat[centre.size :].reshape(c, c)
        log_matrix = log_softmax(free)
        matrix = np.exp(log_matrix)
        log_p = log_softmax(x @ weights)  # [m, C]
        p_noisy = weights.T @ noisy_by_column  # [C, S]
        p_noisy -= p_noisy.max(axis=0)
        np.exp(p_noisy, out=p_noisy)
        p_noisy /= p_noisy.sum(axis=0)
        posterior = matrix[:, given]  # [C, S]
        posterior *= p_noisy
        likelihood = np.maximum(posterior.sum(axis=0), 1e-300)
        posterior /= likelihood
        counts = seen + weight * posterior @ given_one_hot
        away = weights - centre
        value = -(targets * log_p).sum() - weight * np.log(likelihood).sum() - (seen * log_matrix).sum()
        p_noisy -= posterior
        slope = x.T @ (np.exp(log_p) - targets) + weight * noisy_by_column @ p_noisy.T + firm * away
        slope_matrix = matrix * counts.sum(axis=1, keepdims=True) - counts
        return float(value + 0.5 * (firm * away**2).sum()), np.concatenate([slope.ravel(), slope_matrix.ravel()])

    weights = fit_logistic(x, targets, centre, firm[:, 0])
    if seen.sum() < PRIOR_ROWS * c + 1:  # no pairs: start from the matrix that the scores alone suggest
        seen_first = np.exp(log_softmax(x_noisy @ weights)).T @ given_one_hot + prior
    else:
        seen_first = seen
    start = np.log(np.maximum(seen_first / np.maximum(seen_first.sum(axis=1, keepdims=True), 1e-12), 1e-4))
    found = descend(loss, np.concatenate([weights.ravel(), start.ravel()]))
    log_matrix = log_softmax(found[centre.size :].reshape(c, c))
    return Opinion(found[: centre.size].reshape(centre.shape), log_matrix.T)
