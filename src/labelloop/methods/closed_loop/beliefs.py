"""q(y | x): turns a network's prediction of the given label into one of the true label, learnt on clean rows."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from labelloop.methods.closed_loop.simulation import Array
from labelloop.types import Labels

LOWEST = -12.0  # log probabilities below this add no information
WIDEST = 32  # classes up to which the whole matrix of coefficients is fitted
PENALTY = 30.0  # on the squared distance of a coefficient from its prior
SCALE_PENALTY = 1.0  # on the squared distance of the common scale from 1


def fit_beliefs(log_p: Array, labels: Labels) -> Array:
    """Coefficients [C + 1, C] of a logistic regression from log p(ỹ | x) to the true label, the last row the offsets.

    They are shrunk towards a multiple of the identity. The multiple is the one number that a few rows can determine:
    noise makes p(ỹ | x) flatter than q(y | x). Without rows it is 1, and q = p, so few rows, or a class without any, do
    little harm. With many classes only the diagonal and the offsets are free.

    Args:
        log_p: Of clean rows [m, C].
        labels: Their clean labels [m].
    """
    rows, classes = log_p.shape
    if classes > WIDEST:
        return _fit_diagonal(np.maximum(log_p, LOWEST), labels)
    x = np.concatenate([np.maximum(log_p, LOWEST), np.ones((rows, 1))], axis=1)  # [m, C + 1]
    centre = np.eye(classes + 1, classes)
    free = np.ones_like(centre, bool)
    targets = np.eye(classes)[labels]

    def coefficients(flat: Array) -> Array:
        found = flat[0] * centre
        found[free] += flat[1:]
        return found

    def loss(flat: Array) -> tuple[float, Array]:
        log_q = log_softmax(x @ coefficients(flat), axis=1)  # [m, C]
        value = (
            -(targets * log_q).sum() + 0.5 * PENALTY * flat[1:] @ flat[1:] + 0.5 * SCALE_PENALTY * (flat[0] - 1) ** 2
        )
        slope = x.T @ (np.exp(log_q) - targets)  # [C + 1, C]
        of_scale = (slope * centre).sum() + SCALE_PENALTY * (flat[0] - 1)
        return float(value), np.append(of_scale, slope[free] + PENALTY * flat[1:])

    start = np.append(1.0, np.zeros(int(free.sum())))
    return coefficients(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x)


def _fit_diagonal(x: Array, labels: Labels) -> Array:
    """The same where only the diagonal and the offsets may differ, without the products with zeros."""
    rows, classes = x.shape
    each = np.arange(rows)

    def loss(flat: Array) -> tuple[float, Array]:
        log_q = log_softmax(x * (flat[0] + flat[1 : classes + 1]) + flat[classes + 1 :], axis=1)  # [m, C]
        value = (
            -log_q[each, labels].sum() + 0.5 * PENALTY * flat[1:] @ flat[1:] + 0.5 * SCALE_PENALTY * (flat[0] - 1) ** 2
        )
        gap = np.exp(log_q)
        gap[each, labels] -= 1
        slope = np.einsum("mc,mc->c", x, gap)  # [C]
        of_scale = slope.sum() + SCALE_PENALTY * (flat[0] - 1)
        return float(value), np.concatenate([[of_scale], np.append(slope, gap.sum(axis=0)) + PENALTY * flat[1:]])

    start = np.append(1.0, np.zeros(2 * classes))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    return np.vstack([np.diag(found[0] + found[1 : classes + 1]), found[classes + 1 :]])


def beliefs(log_p: Array, coefficients: Array) -> Array:
    """q(y | x) of rows with these log probabilities [n, C]."""
    return softmax(np.maximum(log_p, LOWEST) @ coefficients[:-1] + coefficients[-1], axis=1)
