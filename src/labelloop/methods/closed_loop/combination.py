"""The robust convex combination: ŷ = Σ_k ω_k ȳ_k with ω on the simplex (Eq. 2), ω fitted on clean_val (Eq. 5).

The weights that are returned are never worse on clean_val than any single component, nor than the previous weights
with a zero appended: both inequalities of Proposition 1 hold by construction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from labelloop.types import Floats, Labels

TINY = 1e-12  # keeps log finite where every component gives the true class no chance

Weights = NDArray[np.float64]


def mixture_loss(weights: Weights, true_class: NDArray[np.float64]) -> float:
    """Cross-entropy of the mixture; true_class[k, i] is what component k gives the true class of row i."""
    return float(-np.log(np.maximum(weights @ true_class, TINY)).mean())


def mixture_gradient(weights: Weights, true_class: NDArray[np.float64]) -> NDArray[np.float64]:
    """Derivative of `mixture_loss` by the weights."""
    mixed = np.maximum(weights @ true_class, TINY)  # [M]
    return -(true_class / mixed).mean(axis=1)  # [K]


def clean_loss(components: Sequence[Floats], labels: Labels, weights: Weights) -> float:
    """Cross-entropy on clean rows of the components [M, C] mixed by the weights: what Eq. 5 minimises."""
    return mixture_loss(weights, _true_class(components, labels))


def _true_class(components: Sequence[Floats], labels: Labels) -> NDArray[np.float64]:
    return np.stack([c[np.arange(len(labels)), labels] for c in components]).astype(np.float64)  # [K, M]


def fit_simplex_weights(components: Sequence[Floats], labels: Labels, previous: Weights | None = None) -> Weights:
    """Finds the weights of Eq. 5.

    Args:
        components: What each component says of the clean_val rows, each [M, C] with rows that sum to 1.
        labels: Their verified labels, [M].
        previous: The weights of the round before, for all components but the newest.

    Returns:
        Weights [K], non-negative, summing to 1.
    """
    true_class = _true_class(components, labels)
    usable = np.isfinite(true_class.sum(axis=1))  # a network that diverged has no say
    true_class[~usable] = 0
    count = len(components)
    # From a vertex SLSQP can stop at once, far from the minimum; from the middle not. PAPER.md, guess 15.
    found = minimize(
        mixture_loss,
        np.full(count, 1 / count),
        args=(true_class,),
        jac=mixture_gradient,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones_like(w)},
        options={"ftol": 1e-9, "maxiter": 200},
    )
    found_weights = np.where(usable & np.isfinite(found.x), found.x.clip(0), 0)
    candidates = [found_weights / found_weights.sum()] if found_weights.sum() > 0 else []
    candidates += [vertex for vertex, fit in zip(np.eye(count), usable, strict=True) if fit]
    if previous is not None:
        candidates.append(np.append(previous, np.zeros(count - len(previous))))
    return min(candidates or [np.eye(count)[0]], key=lambda w: mixture_loss(w, true_class))


def combine(components: Sequence[Floats], weights: Weights) -> Floats:
    """The convex combination of Eq. 2, [N, C]. A component with weight zero is not read."""
    used = [(weight, component) for weight, component in zip(weights, components, strict=True) if weight > 0]
    if len(used) == 1:
        return used[0][1]  # exactly that component: no rounding
    mixed = np.zeros(components[0].shape, np.float64)
    for weight, component in used:
        mixed += weight * component
    return (mixed / mixed.sum(axis=1, keepdims=True)).astype(np.float32)
