"""What a random sample of clean rows proves about the labels of the noisy rows, whatever the noise.

*With pairs*, each label is known to be right or wrong, which gives the exact interval of a finite population's share.
*Without pairs*, it is known how often a label r agrees with h(x), a prediction from the inputs alone, and how often h
is wrong, but not how the two are related. For every set S of inputs (Fréchet):
P(r = y) >= P(S, r = h) - P(S, h ≠ y), and P(r ≠ y) >= P(S, r ≠ h) - P(S, h ≠ y), P(S, h ≠ y) - P(S, r ≠ h).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, gammaln

from labelloop.types import Floats, Labels

LEVEL = 0.95

Inside = Callable[[Floats], NDArray[np.bool_]]  # which confidences are those of a set


def interval(hits: float, rows: float, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share when `hits` of `rows` were right; hits need not be whole."""
    tail = (1 - level) / 2
    low = betaincinv(hits, rows - hits + 1, tail) if hits > 0 else 0.0
    high = betaincinv(hits + 1, rows - hits, 1 - tail) if hits < rows else 1.0
    return float(low), float(high)


def finite_interval(hits: float, rows: float, others: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of the share of hits among `others` further rows, of which `rows` are a random sample.

    Rows and others were dealt at random from rows + others, so hits among the rows are hypergeometric. Exact for whole
    counts; others are rounded.

    Args:
        hits: Hits among the rows that were looked at.
        rows: How many these are.
        others: How many rows were not looked at.
        level: Of the interval; each end holds with (1 + level) / 2.
    """
    tail, k, n = (1 - level) / 2, round(hits), round(rows)
    low = _first(others, lambda more: bool(1 - at_most(k - 1, n, k + more, n + others) > tail))
    high = _first(others, lambda less: bool(at_most(k, n, k + others - less, n + others) > tail))
    return low / others, 1 - high / others


def _first(most: int, holds: Callable[[int], bool]) -> int:
    """The smallest whole number from 0 to `most` at which a condition holds that stays true from there on."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def at_most(k: ArrayLike, n: ArrayLike, good: ArrayLike, total: ArrayLike) -> NDArray[np.float64]:
    """P(X <= k) where X is the number of good ones among n that are drawn from `total` without replacement.

    All four are whole numbers, or arrays of them of one shape.
    """
    k, n, good, total = (np.asarray(number, np.float64)[..., None] for number in (k, n, good, total))
    at = np.arange(max(float(k.max(initial=0)), 0) + 1)
    terms = np.exp(_log_choose(good, at) + _log_choose(total - good, n - at) - _log_choose(total, n))
    tail = np.minimum(np.where(at <= k, terms, 0.0).sum(axis=-1), 1.0)
    return np.where((k >= np.minimum(n, good))[..., 0], 1.0, tail)


def _log_choose(n: NDArray[np.float64], k: NDArray[np.float64]) -> NDArray[np.float64]:
    """log of n over k; -inf for a k below 0 or above n."""
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


@dataclass(frozen=True)
class InputsAlone:
    """What the inputs alone say about noisy and clean rows.

    Attributes:
        noisy: h(x) of the noisy rows [N].
        confidence: Its probability [N].
        clean: h(x) of the clean rows, learnt without them [M].
        clean_confidence: Its probability [M].
        given: Given labels of the noisy rows [N].
        returned: Labels that are returned for them [N].
    """

    noisy: Labels
    confidence: Floats
    clean: Labels
    clean_confidence: Floats
    given: Labels
    returned: Labels

    def accuracy(self, labels: Labels, clean_labels: Labels, level: float = LEVEL) -> tuple[float, float]:
        """Bounds of the share of right ones among some labels of the noisy rows, with the sampling error.

        The sets S are all rows above or below a confidence. Which ones is decided by the noisy rows and the
        confidences, without a look at the clean labels, so no correction for the choice is needed.

        Args:
            labels: The labels of the noisy rows [N].
            clean_labels: The true labels of the clean rows [M].
            level: Each end holds with (1 + level) / 2.
        """
        agree, doubt = labels == self.noisy, 1 - self.confidence.astype(np.float64)
        wrong = self.clean != clean_labels
        above, _ = self._best(agree - doubt)
        low = float((agree & above(self.confidence)).mean()) - self._wrong(above, wrong, level)[1]
        apart, gap = self._best(~agree - doubt)
        beyond, excess = self._best(doubt - ~agree, below=True)
        if gap >= excess:
            least = float((~agree & apart(self.confidence)).mean()) - self._wrong(apart, wrong, level)[1]
        else:
            least = self._wrong(beyond, wrong, level)[0] - float((~agree & beyond(self.confidence)).mean())
        return max(low, 0.0), 1 - max(least, 0.0)

    def _best(self, gain: NDArray[np.float64], *, below: bool = False) -> tuple[Inside, float]:
        """The set of confidences with the largest sum of a number of every noisy row, and that sum per row."""
        order = np.argsort(self.confidence if below else -self.confidence, kind="stable")
        sorted_by = self.confidence[order]
        total = np.append(0.0, gain[order].cumsum())
        total[1:-1][sorted_by[1:] == sorted_by[:-1]] = -np.inf  # rows of the same confidence stay together
        at = int(total.argmax())
        edge = float(sorted_by[at - 1]) if at else (-np.inf if below else np.inf)
        inside: Inside = (lambda values: values <= edge) if below else (lambda values: values >= edge)
        return inside, float(total[at]) / max(len(order), 1)

    def _wrong(self, inside: Inside, wrong: NDArray[np.bool_], level: float) -> tuple[float, float]:
        """The interval of the share of noisy rows that are in a set with a wrong prediction."""
        hits = int((wrong & inside(self.clean_confidence)).sum())
        return finite_interval(hits, len(wrong), len(self.noisy), level)
