"""Are the clean rows a random sample? Copies of a row count once, and a difference from the noisy rows is reported.

Every estimate of a run holds for rows like the clean ones. Rows that were verified because they looked suspicious, or
one row that was verified ten times, are not like the others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betaincinv

from labelloop.relabel.calibration import Observations
from labelloop.relabel.learners.logistic import Array
from labelloop.types import DIFFER, MISSING, Floats, Labels

DIGITS = 3  # decimals of a standardised column: rows that agree to so many are copies
AS_DISTINCT = 0.9  # clean rows are copies only if they are less distinct than this, compared with as many noisy rows
SAMPLE = 2000  # noisy rows that clean ones are compared with
FEWEST = 20  # clean rows that are compared
RIDGE = 0.1
MOST_COLUMNS = 200  # more are projected at random
MIN_PAIRS = 20  # clean rows with a given label, to validate the rows that have one
UNSEEN, UNCHECKED = 0.1, 0.05  # the probability that a class is larger than clean rows suggest, and one without any
CLEAR, LARGE = 4.0, 0.6  # standard errors above ½, and a share of pairs, from which on a difference is named

DIFFERENT = (
    DIFFER + ": a classifier tells them apart in {share:.0%} of pairs (50% would be chance), so"
    " they are hardly a random sample, and estimates and certificates may not hold; verify random rows"
)


def copies(observed: Observations, rows: Labels) -> NDArray[np.bool_]:
    """Which of some clean rows are copies of an earlier one [M].

    Rows of a small table may be alike without being copies. So they count as copies only where clean rows are less
    distinct than as many noisy rows.

    Args:
        observed: What is known about all rows.
        rows: Positions of the clean rows [M].
    """
    first = first_alike(observed, rows)
    again = first != np.arange(len(rows))
    if not again.any():
        return again
    noisy = np.flatnonzero((observed.given != MISSING) & (observed.clean == MISSING))
    others = np.random.default_rng(observed.seed).permutation(noisy)[: len(rows)]
    alike = first_alike(observed, others) != np.arange(len(others))
    usual = 1 - float(alike.mean()) if len(others) else 1.0
    return again if 1 - again.mean() < AS_DISTINCT * usual else np.zeros(len(rows), bool)


def paired_once(observed: Observations) -> Labels:
    """Given labels [n] without those of clean rows that are copies.

    Learners of the given labels would learn them from a row and repeat them about its copy, but not about noisy rows.
    """
    given, rows = observed.given.copy(), np.flatnonzero(observed.clean != MISSING)
    given[rows[copies(observed, rows)]] = MISSING
    return given


def first_alike(observed: Observations, rows: Labels) -> Labels:
    """For each of some rows, the first of them that has the same inputs, else scores, and clean label [M]."""
    values = _values(observed, rows)
    if not len(rows):
        return np.zeros(0, np.int64)
    scale = values.std(axis=0) + 1e-12
    cells = np.round((values - values.mean(axis=0)) / scale, DIGITS)
    cells = np.ascontiguousarray(np.column_stack([cells, observed.clean[rows]]) + 0.0)  # no negative zeros
    _, first, place = np.unique(cells.view(np.dtype((np.void, cells.itemsize * cells.shape[1]))).ravel(),
                                return_index=True, return_inverse=True)  # fmt: skip
    return first[place.ravel()]


def differ(observed: Observations, rows: Labels) -> str | None:
    """What to say if a classifier can tell clean rows from noisy ones; None if it cannot.

    A linear discriminant with a ridge, fitted to one half and tried on the other, in turn.

    Args:
        observed: What is known about all rows.
        rows: Positions of the clean rows [M].
    """
    noisy = np.flatnonzero((observed.given != MISSING) & (observed.clean == MISSING))
    rng = np.random.default_rng(observed.seed)
    noisy = rng.permutation(noisy)[:SAMPLE]
    if min(len(rows), len(noisy)) < FEWEST:
        return None
    values = _values(observed, np.concatenate([rows, noisy]))
    clean = np.arange(len(values)) < len(rows)
    if values.shape[1] > MOST_COLUMNS:
        values = values @ rng.normal(size=(values.shape[1], MOST_COLUMNS))
    values = (values - values.mean(axis=0)) / (values.std(axis=0) + 1e-12)
    half = np.concatenate([rng.permutation(len(rows)) % 2, rng.permutation(len(noisy)) % 2])
    shares, errors = [], []
    for k in range(2):
        fitted, tried = half != k, half == k
        score = values[tried] @ _discriminant(values[fitted], clean[fitted])
        m, n = int(clean[tried].sum()), int((~clean[tried]).sum())
        rank = _ranks(score)[clean[tried]].sum()
        shares.append((rank - m * (m + 1) / 2) / (m * n))
        errors.append((m + n + 1) / (12 * m * n))
    share, error = float(np.mean(shares)), float(np.sqrt(np.sum(errors)) / 2)
    return DIFFERENT.format(share=share) if share > max(0.5 + CLEAR * error, LARGE) else None


def _ranks(values: NDArray) -> NDArray[np.float64]:
    """The rank of every value from 1 on; equal values share the mean of theirs. scipy.stats is slow to import."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _discriminant(values: Floats, clean: NDArray[np.bool_]) -> Floats:
    means = [values[part].mean(axis=0) for part in (clean, ~clean)]
    spread = np.cov(values.T).reshape(values.shape[1], -1)
    spread = spread + RIDGE * max(np.trace(spread) / len(spread), 1e-9) * np.eye(len(spread))
    return np.linalg.solve(spread, means[0] - means[1])


def _values(observed: Observations, rows: Labels) -> NDArray[np.float64]:
    """The inputs of some rows, or their scores where there are none [m, D]."""
    source = observed.scores if observed.inputs is None else observed.inputs
    return np.nan_to_num(np.asarray(source[rows], np.float64).reshape(len(rows), -1))


def largest_share(mine: int, total: int) -> float:
    """The upper bound of the share of rows of a class, if `mine` of `total` clean rows are of it; at 95% if none is.

    With 90%, more classes that are missed by chance would lose good labels.
    """
    level = 1 - UNSEEN if mine else 1 - UNCHECKED
    return float(betaincinv(mine + 1.0, total - mine, level)) if mine < total else 1.0


def largest_if_absent(observed: Observations, rows: Labels) -> Array:
    """The same for every class, should none of some clean rows be of it [C]; 1 where they do not show it.

    Rows that were verified class by class do not show that another class is rare. So only those that keep their given
    label count, if there are enough, and only for a class whose label is about as frequent among all of them as among
    the noisy rows.

    Args:
        observed: What is known about all rows.
        rows: Positions of the clean rows [M].
    """
    given, clean = observed.given, observed.clean != MISSING
    pairs, noisy = (
        np.bincount(given[some & (given != MISSING)], minlength=observed.num_classes) for some in (clean, ~clean)
    )
    usual = (bdtr(pairs, pairs.sum(), noisy / max(noisy.sum(), 1)) >= UNSEEN) & (pairs.sum() >= MIN_PAIRS)
    return np.where(usual, largest_share(0, int((given[rows] != MISSING).sum())), 1.0)
