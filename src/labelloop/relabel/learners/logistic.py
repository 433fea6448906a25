"""Multinomial logistic regression whose weights are shrunk towards a given centre instead of zero."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
MANY = 30  # classes: with more, arrays are large, and single precision is all that the fit needs


def precision(num_classes: int) -> type[np.floating]:
    """The type to compute the loss and the slope of a fit in."""
    return np.float32 if num_classes > MANY else np.float64


def log_softmax(logits: Array) -> Array:
    """The logarithm of the softmax of every row [n, C].

    Computed class by class: numpy reduces a few long rows several times faster than many short ones.
    """
    by_class = np.array(logits.T, order="C")  # [C, n]
    by_class -= by_class.max(axis=0)
    by_class -= np.log(np.exp(by_class).sum(axis=0))
    return by_class.T


def fit_logistic(x: Array, targets: Array, centre: Array, strength: Array) -> Array:
    """Minimises cross-entropy + ½ Σ strength (weights − centre)².

    Args:
        x: Inputs [M, E].
        targets: Labels as rows that sum to 1 [M, C].
        centre: The weights without data [E, C].
        strength: The penalty of every input [E].

    Returns:
        Weights [E, C].
    """
    firm = strength[:, None]
    kind = precision(centre.shape[1])
    x, targets = x.astype(kind, copy=False), targets.astype(kind, copy=False)

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(centre.shape)
        log_p = log_softmax(x @ weights.astype(kind, copy=False))  # [M, C]
        away = weights - centre
        value = -(targets * log_p).sum(dtype=np.float64) + 0.5 * (firm * away**2).sum()
        return float(value), (x.T @ (np.exp(log_p) - targets) + firm * away).ravel()

    return descend(loss, centre.ravel()).reshape(centre.shape)


def descend(loss: Callable[[Array], tuple[float, Array]], start: Array, **options: float) -> Array:
    """Minimises a function that returns its value and its gradient, in one thread: two wait for each other mostly."""
    options = {"maxiter": 300, "maxcor": 20, "ftol": 1e-6} | options
    before = [(library, library.get_num_threads()) for library in _libraries()]
    try:
        for library, _ in before:
            library.set_num_threads(1)
        return minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    finally:
        for library, threads in before:
            library.set_num_threads(threads)


@cache
def _libraries() -> list[Any]:
    """The libraries of linear algebra: kept, and set one by one, because `threadpool_limits` takes a millisecond."""
    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
