"""How good the labels are: shares of right answers among held-out clean rows, each with a 95% interval.

The interval is Clopper-Pearson's. Cross-fitted answers are slightly correlated, because folds share training rows, so
the narrower Wilson and Jeffreys intervals would cover the truth too rarely; a test measures the coverage of this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from labelloop.relabel.relabel import MIN_PAIRS
from labelloop.splits import deal
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

Correct = Callable[[Labels], Floats]  # clean labels [n], -1 where missing, to corrected soft labels of all rows [n, C]

MIN_CLEAN = 4  # with fewer, too few are left to learn from


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
    posterior: Floats, given: Labels, clean: Labels, notes: Sequence[str] = (), expected: Floats | None = None
) -> dict[str, Any]:
    """Estimates how good corrected labels are, from cross-fitted clean rows.

    Args:
        posterior: Cross-fitted soft labels of the clean rows [M, C].
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
    right, was_right = posterior.argmax(axis=1) == clean, given == clean
    words = [] if paired.any() else [NO_PAIRS]
    accuracy = share(right[counted])
    if (counted & ~paired).any():
        if expected is None or np.isnan(expected[~paired]).any():  # where pairs suffice, no label is simulated
            known, hits = WITHOUT_LABEL, right[:, None].astype(np.float32)
        else:
            known, hits = SIMULATED, np.where(paired[:, None], right[:, None], expected)  # [M, K]
        words.insert(0, known.format(unpaired=(~paired).sum(), rows=len(clean)))
        accuracy = expected_share(hits[counted])
    return {
        **no_estimate(),
        "corrected_label_accuracy": accuracy,
        "good_labels_broken": share(~right[paired & was_right]),
        "wrong_labels_fixed": share(right[paired & ~was_right]),
        "notes": [*words, *notes, RANDOM_SAMPLE],
        "reliability": reliability(posterior[counted], clean[counted]),
        "by_class": by_class(posterior, given, clean),
        "alternatives": alternatives(given, clean, posterior.shape[1]),
    }


def estimate_baseline(method: str, how: str, clean_labels: Labels, predicted: Floats) -> dict[str, Any]:
    """The entry "estimate" of run.json for a method that says nothing itself about the labels it returns.

    Args:
        method: Its name.
        how: How it uses the clean rows, as METHODS has it.
        clean_labels: Of the clean rows [M].
        predicted: The classifier's probabilities of the clean rows [M, C].
    """
    if how != "not used":
        return no_estimate(f"the method {method!r} uses the clean rows ({how}), so they cannot tell how good it is")
    right = share(predicted.argmax(axis=1) == clean_labels)
    note = "the clean rows cannot tell how good the labels are that it returns for noisy rows"
    return {**no_estimate(note, RANDOM_SAMPLE), "classifier_accuracy": right}


def expected_share(hits: Floats) -> Share:
    """The share of hits known only as probabilities under K estimates [M, K]; its interval covers all K intervals."""
    ends = np.array([interval(float(h), len(hits)) for h in hits.sum(axis=0, dtype=np.float64)])  # [K, 2]
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    return {"value": float(hits.mean()), "low": low, "high": high, "rows": len(hits)}


def reliability(posterior: Floats, clean: Labels) -> list[dict[str, float]]:
    """For every non-empty bin of confidence: mean confidence, accuracy with its interval, and number of rows."""
    confidence, right = posterior.max(axis=1).astype(np.float64), posterior.argmax(axis=1) == clean
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


def by_class(posterior: Floats, given: Labels, clean: Labels) -> list[dict[str, int]]:
    """For every true class: how many given labels are good and were broken, and how many are wrong and were fixed.

    Args:
        posterior: Cross-fitted soft labels of the clean rows [M, C].
        given: Their given labels [M], -1 where missing.
        clean: Their clean labels [M].
    """
    known = (given != MISSING) & ~np.isnan(posterior).any(axis=1)
    right, was_right = np.nan_to_num(posterior).argmax(axis=1) == clean, given == clean
    found = []
    for k in range(posterior.shape[1]):
        mine = known & (clean == k)
        good, wrong = mine & was_right, mine & ~was_right
        counts = {"good": good, "broken": good & ~right, "wrong": wrong, "fixed": wrong & right}
        found.append({name: int(rows.sum()) for name, rows in counts.items()})
    return found


def alternatives(given: Labels, clean: Labels, num_classes: int) -> dict[str, float]:
    """How often simple alternatives are right on the same clean rows: the given label, and the most common class."""
    known = given != MISSING
    found = {"the given labels as they are": float((given == clean)[known].mean())} if known.any() else {}
    if len(clean):
        found["the most common class for all"] = float(np.bincount(clean, minlength=num_classes).max() / len(clean))
    return found


def cross_fitted(correct: Correct, clean: Labels, given: Labels, rng: np.random.Generator) -> Floats:
    """Corrected soft labels of the clean rows, each learnt without its own fold; NaN in other rows [n, C].

    Args:
        correct: Corrects all rows, learning from the clean labels it is given.
        clean: Clean labels [n], -1 where missing.
        given: Given labels [n], -1 where missing; folds are stratified by class and by whether a row has one.
        rng: Deals the rows into folds.
    """
    rows = np.flatnonzero(clean != MISSING)
    fold = deal(2 * clean[rows] + (given[rows] != MISSING), rng)
    posterior = None
    for k in np.unique(fold):
        shown = clean.copy()
        shown[rows[fold == k]] = MISSING
        found = correct(shown)
        posterior = np.full_like(found, np.nan) if posterior is None else posterior
        posterior[rows[fold == k]] = found[rows[fold == k]]
    assert posterior is not None
    return posterior
