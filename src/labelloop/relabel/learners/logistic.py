"""Multinomial logistic regression whose weights are shrunk towards a given centre instead of zero."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
KNOWN = "1.17."  # versions of scipy whose inner function of L-BFGS-B is called as here; with others, by `minimize`
EVALUATE, ITERATED, STOP = 3, 1, (5, 504)  # what that function asks for and is told
FLAT, LINE_STEPS = 1e-5, 20  # its largest slope at a minimum, and its steps in a search along a line: as by default
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


def descend(
    loss: Callable[[Array], tuple[float, Array]],
    start: Array,
    *,
    maxiter: int = 300,
    maxcor: int = 20,
    ftol: float = 1e-6,
) -> Array:
    """Minimises a function that returns its value and its gradient, in one thread: two wait for each other mostly."""
    before = [(library, library.get_num_threads()) for library in _libraries()]
    try:
        for library, _ in before:
            library.set_num_threads(1)
        if scipy.__version__.startswith(KNOWN):
            return _without_checks(loss, start, maxiter=maxiter, maxcor=maxcor, ftol=ftol)
        options = {"maxiter": maxiter, "maxcor": maxcor, "ftol": ftol}
        return minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    finally:
        for library, threads in before:
            library.set_num_threads(threads)


def _without_checks(
    loss: Callable[[Array], tuple[float, Array]], start: Array, *, maxiter: int, maxcor: int, ftol: float
) -> Array:
    """What `minimize` does, bit for bit, in half of the time: it checks and copies more than small fits compute."""
    from scipy.optimize import _lbfgsb

    x, slope = np.array(start, np.float64), np.zeros(start.size)
    value: Any = np.array(0.0)
    bounds, kinds = np.zeros((2, x.size)), np.zeros(x.size, np.int32)  # of kind 0: there are none
    numbers = np.zeros(2 * maxcor * x.size + 5 * x.size + 11 * maxcor**2 + 8 * maxcor)
    places, of_search, flags = np.zeros(3 * x.size, np.int32), np.zeros(2, np.int32), np.zeros(4, np.int32)
    task, counts, further = np.zeros(2, np.int32), np.zeros(44, np.int32), np.zeros(29)
    iterations, factor = 0, ftol / np.finfo(float).eps
    while True:
        _lbfgsb.setulb(
            maxcor, x, *bounds, kinds, value, slope, factor, FLAT, numbers, places, task, flags, counts, further,
            LINE_STEPS, of_search,
        )  # fmt: skip
        if task[0] == EVALUATE:
            value, slope = loss(x)
            slope = np.asarray(slope, np.float64)
        elif task[0] == ITERATED:
            iterations += 1
            if iterations >= maxiter:
                task[:] = STOP
        else:
            return x


@cache
def _libraries() -> list[Any]:
    """The libraries of linear algebra: kept, and set one by one, because `threadpool_limits` takes a millisecond."""
    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
