"""labels.parquet: one row per input row, in input order, with cleanlab's column names too; metrics of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelloop.large_arrays import row_chunks
from labelloop.types import MISSING, Floats, Labels

BINS = 15  # bins of the expected calibration error, as in most papers
TINY = 1e-12


def label_table(
    ids: NDArray, classes: Sequence[Any], given: Labels, clean: Labels, targets: Floats, predicted: Labels
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


def accuracy(predicted: Labels, true: Labels) -> float:
    """The share of equal labels; NaN if there are none to compare."""
    return float((predicted == true).mean()) if len(true) else float("nan")


def negative_log_likelihood(probabilities: Floats, true: Labels) -> float:
    """The mean negative log probability of the true class; NaN without rows."""
    if not len(true):
        return float("nan")
    given = probabilities[np.arange(len(true)), true].astype(np.float64)
    return float(-np.log(np.maximum(given, TINY)).mean())


def expected_calibration_error(probabilities: Floats, true: Labels, bins: int = BINS) -> float:
    """The expected calibration error over `bins` equal ranges of confidence; NaN without rows."""
    if not len(true):
        return float("nan")
    confidence = probabilities.max(axis=1).astype(np.float64)
    right = probabilities.argmax(axis=1) == true
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(place, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(true))


def label_metrics(targets: Floats, given: Labels, true: Labels) -> dict[str, float]:
    """How good the corrected labels of the training rows are.

    Args:
        targets: Corrected soft labels [N, C]; a row of zeros has none yet.
        given: Given labels [N], -1 where missing.
        true: True labels [N], -1 where unknown; those rows do not count.
    """
    counted = (true != MISSING) & (targets.sum(axis=1) > 0.5)
    targets, given, true = targets[counted], given[counted], true[counted]
    corrected = targets.argmax(axis=1)
    known = given != MISSING
    changed, good = known & (corrected != given), known & (given == true)
    rare = true == _rarest(true)
    return {
        "given_label_accuracy": accuracy(given[known], true[known]),
        "corrected_label_accuracy": accuracy(corrected, true),
        "changed_labels": float(changed.mean()) if len(true) else float("nan"),
        "changed_label_accuracy": accuracy(corrected[changed], true[changed]),
        "good_labels_broken": 1 - accuracy(corrected[good], true[good]),
        "rarest_labels_broken": 1 - accuracy(corrected[good & rare], true[good & rare]),
        "corrected_label_nll": negative_log_likelihood(targets, true),
        "corrected_label_ece": expected_calibration_error(targets, true),
    }


def _rarest(true: Labels) -> int:
    """The class with the fewest rows among those that occur; the first one in a tie."""
    classes, counts = np.unique(true, return_counts=True)
    return int(classes[counts.argmin()]) if len(classes) else MISSING


def label_counts(given: Labels, targets: Floats, num_classes: int) -> NDArray[np.float64]:
    """How many rows of each true class came with each given label: [true, given].

    The true class comes from the corrected probabilities, so the counts are only as good as they are. Rows without a
    given label and test rows do not count.

    Args:
        given: Given labels [n], -1 where missing.
        targets: Corrected soft labels [n, C]; NaN where there are none.
        num_classes: C.
    """
    counts = np.zeros((num_classes, num_classes))
    for rows in row_chunks(*targets.shape):
        labels, soft = given[rows], targets[rows]
        counted = (labels != MISSING) & ~np.isnan(soft[:, 0])
        np.add.at(counts.T, labels[counted], soft[counted].astype(np.float64))
    return counts


def noise_matrix(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same as shares of each true class: rows sum to 1. A class without rows has a row of NaN."""
    totals = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)
