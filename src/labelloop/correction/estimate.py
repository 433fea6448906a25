"""How good the labels are: shares of right answers among held-out clean rows, each with a 95% interval.

The interval is Clopper-Pearson's. Cross-fitted answers are slightly correlated, because folds share training rows, so
the narrower Wilson and Jeffreys intervals would cover the truth too rarely; a test measures the coverage of this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from labelloop.correction.by_class import alternatives, by_class
from labelloop.methods.closed_loop.instant.pairs import MIN_PAIRS
from labelloop.types import MISSING, Floats, Labels

LEVEL = 0.95
BINS = 10

RANDOM_SAMPLE = (
    "this holds if the clean rows are a random sample of all rows, and not if only suspicious rows were verified"
)
SIMULATED = (
    "{unpaired} of {rows} clean rows have no given label; theirs are simulated from the estimated noise, so the"
    " accuracy is only as good as that estimate"
)
NO_PAIRS = "no clean row has a given label, so how many good labels were broken is unknown"
WITHOUT_LABEL = (
    "{unpaired} of {rows} clean rows have no given label, so the accuracy is mostly that of correction without one (the"
    " network's prediction of the given label takes its place)"
)

Share = dict[str, Any]  # value, low, high, rows


def interval(hits: float, rows: int) -> tuple[float, float]:
    """The 95% confidence interval of a share when `hits` of `rows` were right; hits need not be whole."""
    tail = (1 - LEVEL) / 2
    low = betaincinv(hits, rows - hits + 1, tail) if hits > 0 else 0.0
    high = betaincinv(hits + 1, rows - hits, 1 - tail) if hits < rows else 1.0
    return float(low), float(high)


def share(hits: NDArray[np.bool_]) -> Share | None:
    """The share of hits with its interval; None where there are no rows."""
    if not len(hits):
        return None
    low, high = interval(int(hits.sum()), len(hits))
    return {"value": float(hits.mean()), "low": low, "high": high, "rows": len(hits)}


def no_estimate(*reasons: str) -> dict[str, Any]:
    """An estimate that cannot be given, and why."""
    return {
        "corrected_label_accuracy": None,
        "good_labels_broken": None,
        "wrong_labels_fixed": None,
        "level": LEVEL,
        "notes": list(reasons),
    }


def estimate(
    said: Floats, given: Labels, clean: Labels, notes: Sequence[str] = (), expected: Floats | None = None
) -> dict[str, Any]:
    """Estimates how good corrected labels are, from cross-fitted clean rows.

    Args:
        said: Cross-fitted soft labels of the clean rows [M, C].
        given: Their given labels [M], -1 where missing.
        clean: Their clean labels [M].
        notes: Further notes for the reader of the numbers.
        expected: For clean rows without a given label, the probability that they would be right if they had one, under
            each estimate of the noise; NaN in other rows [M, K].

    Returns:
        The entry "estimate" of run.json. With MIN_PAIRS paired rows or more, only those count, because only they are
        like the rows whose labels are corrected.
    """
    paired = given != MISSING
    counted = paired if paired.sum() >= MIN_PAIRS else np.ones(len(clean), bool)
    right, was_right = said.argmax(axis=1) == clean, given == clean
    words = [] if paired.any() else [NO_PAIRS]
    accuracy = share(right[counted])
    if (counted & ~paired).any():
        known = SIMULATED if expected is not None else WITHOUT_LABEL
        words.insert(0, known.format(unpaired=(~paired).sum(), rows=len(clean)))
        hits = np.where(paired[:, None], right[:, None], right[:, None] if expected is None else expected)  # [M, K]
        accuracy = expected_share(hits[counted])
    return {
        **no_estimate(),
        "corrected_label_accuracy": accuracy,
        "good_labels_broken": share(~right[paired & was_right]),
        "wrong_labels_fixed": share(right[paired & ~was_right]),
        "notes": [*words, *notes, RANDOM_SAMPLE],
        "reliability": reliability(said[counted], clean[counted]),
        "by_class": by_class(said, given, clean),
        "alternatives": alternatives(given, clean, said.shape[1]),
    }


def expected_share(hits: Floats) -> Share:
    """The share of hits known only as probabilities under K estimates [M, K]; its interval covers all K intervals."""
    ends = np.array([interval(float(h), len(hits)) for h in hits.sum(axis=0, dtype=np.float64)])  # [K, 2]
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    return {"value": float(hits.mean()), "low": low, "high": high, "rows": len(hits)}


def reliability(said: Floats, clean: Labels) -> list[dict[str, float]]:
    """For every non-empty bin of confidence: mean confidence, accuracy with its interval, and number of rows."""
    confidence, right = said.max(axis=1).astype(np.float64), said.argmax(axis=1) == clean
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    bins = []
    for k in np.unique(place):
        mine = place == k
        found = share(right[mine])
        assert found is not None
        bins.append({"from": k / BINS, "to": (k + 1) / BINS, "confidence": float(confidence[mine].mean()), **found})
    return bins


def estimate_lines(found: dict[str, Any]) -> list[str]:
    """The estimate as text, one line per number and one per note."""
    titles = {
        "corrected_label_accuracy": "corrected labels that are right",
        "good_labels_broken": "good given labels broken",
        "wrong_labels_fixed": "wrong given labels fixed",
        "classifier_accuracy": "predictions of the classifier that are right",
    }
    lines = []
    for key, title in titles.items():
        if number := found.get(key):
            value, low, high = (f"{100 * number[part]:.1f}" for part in ("value", "low", "high"))
            lines.append(f"  {title}: {value}% (95% interval {low}% to {high}%, from {number['rows']} clean rows)")
    others = [f"{name} {100 * value:.1f}%" for name, value in found.get("alternatives", {}).items()]
    if lines and others:
        lines.append(f"  right on the same clean rows without any correction: {', '.join(others)}")
    lines = ["estimated, on held-out clean rows:", *lines] if lines else []
    head = "" if lines else "the accuracy of the corrected labels cannot be estimated: "
    return lines + [f"  {head}{note}" if lines else f"{head}{note}" for note in found["notes"]]
