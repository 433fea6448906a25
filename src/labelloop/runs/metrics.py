"""Metrics of labels and probabilities, from numpy arrays."""

from __future__ import annotations

import numpy as np

from labelloop.types import MISSING, Floats, Labels

BINS = 15  # bins of the expected calibration error, as in most papers
TINY = 1e-12


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
