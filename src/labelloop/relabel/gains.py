"""Counts of labels that changes fix and break on clean rows, the margin that they choose, and tests of it.

With real given labels, a change fixes a label or breaks one, and a sign test shows whether changes fix more. With
simulated ones, each clean row has an expected gain, only as certain as the share of given labels that are right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, ndtr, stdtr

from labelloop.relabel.guard import KEEP_ALL
from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.stacking import ValidationRows
from labelloop.types import MISSING, Floats, Labels

ALPHA = 0.1  # the error rate of the guard: how often changes that do no good are made, at most
TINY = 1e-12  # in place of a spread of zero: every row loses a label
UNINFORMED = 0.001  # without pairs, predictions with a larger p-value than this are not trusted to tell the noise
BROKEN_BEFORE = 0.5  # prior count of broken labels, where a margin is chosen


def sign_test(fixed: float, broken: float) -> float:
    """The mid-p-value of changes that fix no more than they break: P(X > W) + ½ P(X = W) with X ~ Bin(W + L, ½).

    Counts need not be whole: P(X >= W) is a regularised beta function.
    """
    at_least = float(betainc(fixed, broken + 1, 0.5)) if fixed > 0 else 1.0
    above = float(betainc(fixed + 1, broken, 0.5)) if broken > 0 else 0.0
    return (at_least + above) / 2


def gain_test(gains: Array, variance: float = 0.0) -> float:
    """The p-value of gains whose mean is not above zero: a normal test with one more row, which loses a label.

    That row stands for losses that a few rows did not happen to show.

    Args:
        gains: The expected change of the number of right labels in every row [M].
        variance: The further variance of their sum.
    """
    with_one = np.append(gains, -1.0)
    spread = np.sqrt(len(with_one) * with_one.var() + variance)
    return float(ndtr(-with_one.sum() / max(spread, TINY)))


def uninformed(posterior: Floats, labels: Labels) -> float:
    """The p-value of predictions that tell no more about clean rows than the frequencies of their classes do.

    A one-sided t-test of the differences of Brier scores, in which the class of a row is counted without that row.

    Args:
        posterior: Predictions of clean rows, learnt without them [M, C].
        labels: Their clean labels [M].
    """
    rows, classes = posterior.shape
    if rows < 2:
        return 1.0
    true = np.eye(classes)[labels]
    others = (true.sum(axis=0) - true + 1 / classes) / rows  # one prior row, spread over all classes
    told = ((others - true) ** 2).sum(axis=1) - ((posterior - true) ** 2).sum(axis=1)
    return float(stdtr(rows - 1, -told.mean() * np.sqrt(rows) / max(float(told.std(ddof=1)), TINY)))


@dataclass(frozen=True)
class Counts:
    """Changes to clean rows.

    Attributes:
        lead: Their margins [K].
        fixed: The weight of each as a label that becomes right [K].
        broken: Its weight as a label that becomes wrong [K].
        row: Which validation row it is [K].
        model: The noise model of its trial [K].
        slope: Of its gain in the share of given labels that are right [K].
    """

    lead: Array
    fixed: Array
    broken: Array
    row: Labels
    model: Labels
    slope: Array

    def among(self, mask: NDArray[np.bool_]) -> Counts:
        """Only the changes to some validation rows [M]."""
        return self._taken(mask[self.row])

    def _taken(self, mine: NDArray[np.bool_]) -> Counts:
        return replace(self, **{name: part[mine] for name, part in vars(self).items()})

    def p_of_gains(self, margin: Array, models: int, sample: Sample) -> float:
        """The test of the gains above the margin of their row [M]; with several noise models, the worst of them."""
        found = []
        for k in range(models):
            mine = self._taken((self.model == k) & (self.lead > margin[self.row]))
            gain = np.bincount(mine.row, mine.fixed - mine.broken, len(margin)).astype(np.float64)
            by_chance = sample.chance * models * float((mine.fixed + mine.broken).sum())
            of_share = sample.error * models * float(mine.slope.sum())
            found.append(gain_test(models * gain[sample.counted], by_chance + of_share**2))
        return max(found)

    def above(self, margin: Array) -> tuple[float, float]:
        """W and L of changes with a margin above that of their validation row [M]."""
        mine = self.lead > margin[self.row]
        return float(self.fixed[mine].sum()), float(self.broken[mine].sum())

    def contradict(self, margin: Array) -> float:
        """1 if changes with such margins break more labels than they fix, and 0 if not."""
        fixed, broken = self.above(margin)
        return float(broken > fixed)

    def best_margin(self) -> float:
        """The smallest margin whose net gain, one standard error below the count, is within one label of the best.

        With a prior of half a broken label, the net number of labels fixed is at least W - (L + ½) - sqrt(W + L + ½).
        """
        order = np.argsort(-self.lead, kind="stable")
        wins, losses = self.fixed[order].cumsum(), self.broken[order].cumsum() + BROKEN_BEFORE
        return _margin_of(self.lead[order], wins - losses - np.sqrt(wins + losses))

    def margin_of_gains(self, sample: Sample) -> float:
        """The same for expected gains, with the row of `gain_test` that loses a label."""
        order = np.argsort(-self.lead, kind="stable")
        gain = (self.fixed - self.broken)[order]
        total = gain.cumsum() - 1
        squares = 1 + _squared_sums(self.row[order], gain) - total**2 / (sample.counted.sum() + 1)
        spread = squares + sample.chance * (self.fixed + self.broken)[order].cumsum()
        return _margin_of(self.lead[order], total - np.sqrt(np.maximum(spread, 0)))


def _margin_of(lead: Array, bound: Array) -> float:
    """The smallest margin within one label of the best bound, of changes with margins in descending order."""
    if not len(lead):
        return KEEP_ALL
    last = np.append(lead[1:] < lead[:-1], True)  # of changes with equal margins
    at = int(np.flatnonzero(last & (bound >= bound[last].max() - 1))[-1])
    return float(lead[at + 1]) if at + 1 < len(lead) else 0.0


def _squared_sums(row: Labels, values: Array) -> Array:
    """Σ over rows of (the sum of its values so far)², after every value [K]."""
    by_row = np.argsort(row, kind="stable")
    sums = values[by_row].cumsum()
    first = np.flatnonzero(np.append(True, np.diff(row[by_row]) > 0)[: len(row)])
    before_row = np.repeat(sums[first] - values[by_row][first], np.diff(np.append(first, len(row))))
    so_far = np.empty(len(row))
    so_far[by_row] = sums - before_row
    return (so_far**2 - (so_far - values) ** 2).cumsum()


@dataclass(frozen=True)
class Sample:
    """How far the gains of clean rows may be from those of noisy rows.

    Attributes:
        counted: Which validation rows count: all but copies [M].
        chance: Clean rows for each noisy row: the variance of a change that may fix or break a label there.
        error: The standard error of the share of given labels that are right.
    """

    counted: NDArray[np.bool_]
    chance: float
    error: float

    @classmethod
    def of(cls, validation: ValidationRows, error: float) -> Sample:
        """The validation rows beside the noisy rows."""
        observed, counted = validation.observed, validation.counted
        noisy = int(((observed.given != MISSING) & (observed.clean == MISSING)).sum())
        return cls(counted, float(counted.sum()) / max(noisy, 1), error)

    def among(self, rows: NDArray[np.bool_]) -> Sample:
        """The same with some of the validation rows only."""
        kept = self.counted & rows
        return replace(self, counted=kept, chance=self.chance * float(kept.sum()) / max(float(self.counted.sum()), 1.0))


@dataclass(frozen=True)
class Tested:
    """Thresholds that passed, or did not: one from all validation rows, and one for every fold without it.

    Attributes:
        p_value: Of the test with the thresholds of the folds.
        all: From all rows; KEEP_ALL if the test was not passed.
        by_row: Of the fold of each row; KEEP_ALL if the test was not passed [M].
    """

    p_value: float
    all: float
    by_row: Array


def cross_fit(fold: Labels, choose: Callable[[NDArray[np.bool_]], float], p_value: Callable[[Array], float]) -> Tested:
    """Chooses a threshold without each fold of validation rows, and tests these thresholds on the folds.

    Args:
        fold: The fold of every validation row [M].
        choose: Chooses a threshold from some validation rows.
        p_value: Of thresholds, one for every validation row.
    """
    by_row = np.full(len(fold), KEEP_ALL)
    for k in np.unique(fold):
        by_row[fold == k] = choose(fold != k)
    p = p_value(by_row)
    if p > ALPHA:
        return Tested(p, KEEP_ALL, np.full(len(fold), KEEP_ALL))
    return Tested(p, choose(np.ones(len(fold), bool)), by_row)
