"""Labels as rows of probabilities, and selections and unions of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelloop.large_arrays import zeros
from labelloop.types import MISSING, Floats, Labels, Rows


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
