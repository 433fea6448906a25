"""The robust convex combination: ŷ = Σ_k ω_k ȳ_k with ω on the simplex (Eq. 2), ω fitted on clean_val (Eq. 5).

The weights that are returned are never worse on clean_val than any single component, nor than the previous weights
with a zero appended: both inequalities of Proposition 1 hold by construction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from labelloop.errors import UsageError
from labelloop.large_arrays import by_chunks, row_chunks, soft_dtype
from labelloop.types import MISSING, Floats, Labels

TINY = 1e-12  # keeps log finite where every component gives the true class probability 0

Weights = NDArray[np.float64]


def mixture_loss(weights: Weights, true_class: NDArray[np.float64]) -> float:
    """Cross-entropy of the mixture; true_class[k, i] is component k's probability of the true class of row i."""
    return float(-np.log(np.maximum(weights @ true_class, TINY)).mean())


def mixture_gradient(weights: Weights, true_class: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gradient of `mixture_loss` with respect to the weights."""
    mixed = np.maximum(weights @ true_class, TINY)  # [M]
    return -(true_class / mixed).mean(axis=1)  # [K]


def clean_loss(components: Sequence[Floats], labels: Labels, weights: Weights) -> float:
    """Cross-entropy on clean rows of the components [M, C] mixed by the weights: what Eq. 5 minimises."""
    return mixture_loss(weights, _true_class(components, labels))


def _true_class(components: Sequence[Floats], labels: Labels) -> NDArray[np.float64]:
    return np.stack([c[np.arange(len(labels)), labels] for c in components]).astype(np.float64)  # [K, M]


def check_components(components: Sequence[Floats]) -> list[Floats]:
    """The components as arrays. Refuses components that cannot be mixed."""
    arrays = [np.asarray(component) for component in components]
    if not arrays:
        raise UsageError("there are no components; give at least one array of rows that sum to 1")
    for number, array in enumerate(arrays):
        if array.ndim != 2 or array.shape != arrays[0].shape:
            raise UsageError(
                f"component {number} has the shape {array.shape} and component 0 {arrays[0].shape}; "
                "all must be [rows, classes] alike"
            )
        for rows in row_chunks(*array.shape):
            if not np.isfinite(array[rows]).all():
                row = rows.start + int(np.flatnonzero(~np.isfinite(array[rows]).all(axis=1))[0])
                raise UsageError(f"component {number}, row {row} holds a value that is not a number; leave it out")
    return arrays


def check_labels(labels: Labels, rows: int, num_classes: int) -> None:
    """Refuses clean labels that are missing or out of range, or another number of them than rows."""
    if labels.shape != (rows,):
        raise UsageError(f"{rows} rows, but labels of the shape {labels.shape}; give one clean label for every row")
    if not rows:
        raise UsageError("there are no clean rows; give at least one")
    if labels.dtype.kind not in "iu":
        raise UsageError(f"labels must be whole numbers from 0 to {num_classes - 1}, not {labels.dtype}")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        value = int(labels[wrong[0]])
        what = "is missing" if value == MISSING else f"is {value}"
        raise UsageError(f"the label of row {wrong[0]} {what}; clean labels run from 0 to {num_classes - 1}")


def fit_simplex_weights(components: Sequence[Floats], labels: Labels, previous: Weights | None = None) -> Weights:
    """Finds the weights of Eq. 5.

    Args:
        components: Each component's soft labels of the clean_val rows [M, C]; rows sum to 1.
        labels: Their clean labels [M].
        previous: The weights of the previous round, for all components but the newest.

    Returns:
        Weights [K], non-negative, summing to 1.

    Raises:
        UsageError: No components, no rows, components of different shapes, a label that is missing or out of range, or
            a value that is not a number.
    """
    components, labels = check_components(components), np.asarray(labels)
    check_labels(labels, *components[0].shape)
    true_class = _true_class(components, labels)
    count = len(components)
    # Started at a vertex, SLSQP can stop at once, far from the minimum; so it starts in the middle. PAPER.md, guess 15.
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
    found_weights = np.where(np.isfinite(found.x), found.x.clip(0), 0)
    candidates = [found_weights / found_weights.sum()] if found_weights.sum() > 0 else []
    candidates += list(np.eye(count))
    if previous is not None:
        candidates.append(np.append(previous, np.zeros(count - len(previous))))
    return min(candidates, key=lambda w: mixture_loss(w, true_class))


def combination_weights(
    combination: str, components: Sequence[Floats], labels: Labels, previous: Weights | None, prior: Weights
) -> Weights:
    """The weights of a round: those of Eq. 5 ("convex"), or all weight on the newest component ("latest").

    Args:
        combination: Which of the two.
        components: Each component's soft labels of the clean_val rows [M, C].
        labels: Their clean labels [M].
        previous: The weights of the previous round.
        prior: Prior rows for each component [K]; zeros leave Eq. 5 as it is.
    """
    if combination == "latest":
        return np.eye(len(components))[-1]
    return with_prior(fit_simplex_weights(components, labels, previous), len(labels), prior)


def with_prior(weights: Weights, rows: int, prior: Weights) -> Weights:
    """(M ω + prior) / (M + Σ prior): the weights from M rows, as if `prior[k]` further rows had chosen component k.

    A handful of rows says little about weights: Eq. 5 on a single row may put all weight on any component. The prior
    raises the loss on the M rows by at most log(1 + Σ prior / M), which vanishes as M grows.
    """
    return (rows * weights + prior) / (rows + prior.sum()) if prior.any() else weights


def combine(components: Sequence[Floats], weights: Weights) -> Floats:
    """The convex combination of Eq. 2, [N, C]. A component with weight zero is not read.

    Raises:
        UsageError: No components, another number of weights, weights that are not on the simplex, components of
            different shapes, or a value that is not a number.
    """
    weights = np.asarray(weights, np.float64)
    if not len(components) or len(components) != len(weights):
        raise UsageError(f"{len(components)} components and {len(weights)} weights; give one weight for each component")
    if not np.isfinite(weights).all() or weights.min() < 0 or abs(weights.sum() - 1) > 1e-6:
        raise UsageError(f"weights must not be negative and must sum to 1, but are {weights.tolist()}")
    check_components([component for weight, component in zip(weights, components, strict=True) if weight > 0])
    used = [(weight, component) for weight, component in zip(weights, components, strict=True) if weight > 0]
    if len(used) == 1:
        return used[0][1]  # exactly that component: no rounding

    def mixed(rows: slice) -> NDArray[np.float64]:
        total = np.zeros(components[0][rows].shape, np.float64)
        for weight, component in used:
            total += weight * component[rows].astype(np.float64)
        return total / total.sum(axis=1, keepdims=True)

    return by_chunks(mixed, components[0].shape, soft_dtype())
