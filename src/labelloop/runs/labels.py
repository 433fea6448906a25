"""labels.parquet: one row per input row, in input order, with cleanlab's column names next to ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelloop.large_arrays import row_chunks
from labelloop.types import MISSING, Floats, Labels


def label_table(
    ids: NDArray,
    classes: Sequence[Any],
    given: Labels,
    clean: Labels,
    targets: Floats,
    predicted: Labels,
) -> pa.Table:
    """The table of labels.

    Args:
        ids: The id of every row, as text [n].
        classes: The classes in the user's type [C].
        given: Given labels [n].
        clean: Clean labels [n].
        targets: Corrected soft labels [n, C]; NaN in rows that have none, such as test rows.
        predicted: The predictions of the classifier [n].

    Returns:
        Columns id, given_label, corrected_label, corrected_confidence, changed, verified, predicted_label,
        is_label_issue, label_score. A missing value is null. `changed` marks corrections: rows without a clean label
        whose corrected label differs from the given one. `is_label_issue` marks wrong given labels, as in cleanlab:
        the same rows, and clean rows whose clean label differs from the given one.
    """
    scored: NDArray[np.bool_] = ~np.isnan(targets[:, 0])
    corrected = np.where(scored, likeliest(targets), MISSING)
    rows = np.arange(len(given))
    known = scored & (given != MISSING)
    wrong = known & (corrected != given)
    score = np.where(known, targets[rows, np.where(known, given, 0)], np.nan)
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "given_label": _names(given, classes),
            "corrected_label": _names(corrected, classes),
            "corrected_confidence": _numbers(targets.max(axis=1), scored),
            "changed": wrong & (clean == MISSING),
            "verified": clean != MISSING,
            "predicted_label": _names(predicted, classes),
            "is_label_issue": wrong,
            "label_score": _numbers(score, known),  # cleanlab's name and meaning: low is bad
        }
    )


def as_now(labels: pa.Table) -> pa.Table:
    """labels.parquet of any version. `changed` is brought up to date: it once counted clean rows too."""
    there = [name for name in ("changed", "verified") if name in labels.column_names]
    if len(there) < 2 or not all(pa.types.is_boolean(labels[name].type) for name in there):
        return labels
    changed = pc.and_not(labels["changed"], labels["verified"])
    return labels.set_column(labels.column_names.index("changed"), "changed", changed)


def likeliest(probabilities: Floats) -> Labels:
    """The most likely class of every row, 0 where unknown [n]."""
    best = np.zeros(len(probabilities), np.int64)
    for rows in row_chunks(*probabilities.shape):
        best[rows] = np.nan_to_num(probabilities[rows]).argmax(axis=1)
    return best


def _names(labels: Labels, classes: Sequence[Any]) -> pa.Array:
    dictionary = pa.array(list(classes))
    return dictionary.take(pa.array(labels, mask=labels == MISSING))


def _numbers(values: NDArray, known: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values.astype(np.float32), mask=~known)
