"""Selections of rows: class-stratified splits (Algorithm 1, line 2), folds, unions; and labels as one-hot rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelloop.errors import UsageError
from labelloop.large_arrays import zeros
from labelloop.types import MISSING, Floats, Labels, Rows

FOLDS = 5


def clean_split(labels: ArrayLike, num_clean: int, rng: np.random.Generator) -> tuple[Labels, Labels]:
    """Sets some rows aside as clean, each class in proportion to its size.

    Draw it before the labels are corrupted, so that the clean rows do not depend on the noise.

    Args:
        labels: The true labels. Rows with a missing one are never drawn.
        num_clean: How many rows to set aside.
        rng: The stream to draw from.

    Returns:
        The positions of the other rows and of the clean rows, both ascending.
    """
    labels = np.asarray(labels)
    drawable = int((labels != MISSING).sum())
    if not 0 < num_clean < drawable:
        raise UsageError(
            f"num_clean is {num_clean}, but there are {drawable} labelled rows: use a number from 1 to {drawable - 1}"
        )
    classes, counts = np.unique(labels[labels != MISSING], return_counts=True)
    chosen = _draw(labels, classes, _shares(counts, num_clean), rng)
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def deal(groups: Labels, rng: np.random.Generator, folds: int = FOLDS) -> Labels:
    """Deals rows into folds so that every fold has its share of every group [M]."""
    order = np.lexsort((rng.random(len(groups)), groups))
    fold = np.empty(len(groups), np.int64)
    fold[order] = np.arange(len(groups)) % min(folds, len(groups))
    return fold


def stratified_split(labels: ArrayLike, fraction: float, rng: np.random.Generator) -> tuple[Labels, Labels]:
    """Splits rows in two, each class alike, and never fails on a rare class.

    A class of two rows or more has a row on both sides; a class of one row goes to the first side. The second side
    is empty only when there are fewer than two rows.

    Args:
        labels: The labels to stratify by.
        fraction: The share of the first side, between 0 and 1.
        rng: The stream to draw from.

    Returns:
        The positions of the first and of the second side, both ascending.
    """
    if not 0 < fraction < 1:
        raise UsageError(f"fraction is {fraction}: use a number between 0 and 1")
    labels = np.asarray(labels)
    classes, counts = np.unique(labels, return_counts=True)
    wanted = _shares(counts, round(fraction * len(labels)))
    chosen = _draw(labels, classes, np.clip(wanted, 1, np.maximum(counts - 1, 1)), rng)
    if chosen.all() and len(labels) >= 2:  # only classes of one row: the second side still needs one
        chosen[rng.integers(len(labels))] = False
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)


def _shares(counts: Labels, total: int) -> Labels:
    """Divides `total` among classes in proportion to `counts`, by largest remainder."""
    if not len(counts):
        return counts
    exact = counts * (total / counts.sum())  # [C]
    shares = np.floor(exact).astype(np.int64)
    # Rounding keeps float dust from deciding ties, which then go to the first classes.
    remainder = np.round(exact - shares, 9)
    shares[np.argsort(-remainder, kind="stable")[: total - shares.sum()]] += 1
    return shares


def _draw(labels: NDArray, classes: NDArray, shares: Labels, rng: np.random.Generator) -> NDArray[np.bool_]:
    chosen = np.zeros(len(labels), dtype=bool)
    for name, share in zip(classes, shares, strict=True):
        chosen[rng.permutation(np.flatnonzero(labels == name))[:share]] = True
    return chosen


def one_hot(labels: Labels, num_classes: int) -> Floats:
    """Labels as rows of probabilities [N, C]; a missing label becomes a row of zeros, which losses ignore."""
    rows = zeros((len(labels), num_classes))
    known = np.flatnonzero(labels != MISSING)
    rows[known, labels[known]] = 1
    return rows


def labelled_rows(rows: Rows) -> tuple[Labels, Rows]:
    """The positions of the rows that have a given label, and those rows, without extra columns."""
    known = np.flatnonzero(rows.labels != MISSING)
    return known, Rows(rows.inputs, rows.index[known], rows.labels[known], rows.clean_labels[known])


def take(rows: Rows, chosen: NDArray) -> Rows:
    """Some of the rows, by position or mask, without extra columns."""
    return Rows(rows.inputs, rows.index[chosen], rows.labels[chosen], rows.clean_labels[chosen])


def together(first: Rows, second: Rows) -> Rows:
    """The rows of both, which must share one store of inputs, without extra columns, which no classifier uses."""
    return Rows(
        first.inputs,
        np.concatenate([first.index, second.index]),
        np.concatenate([first.labels, second.labels]),
        np.concatenate([first.clean_labels, second.clean_labels]),
    )
