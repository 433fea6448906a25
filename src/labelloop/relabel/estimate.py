"""How good the labels are: the one estimate that summary, report, review, plan and export show.

With pairs, shares of right answers among held-out clean rows are measured, with exact 95% intervals of the share among
the noisy rows (bounds.py). Without pairs they are bounded, whatever the noise, and the noise model's own estimate is
given as an assumption. A Share is a dict: value, low, high, rows, and how: "measured", "bounded" or "assumed".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.relabel.bounds import LEVEL, InputsAlone, finite_interval, interval
from labelloop.relabel.relabel import Corrected
from labelloop.relabel.sample import MIN_PAIRS
from labelloop.splits import deal
from labelloop.types import MISSING, Floats, Labels

BINS = 10
SOME_PAIRS = 5  # with as many, pairs narrow the bounds
WELL_KNOWN = 5  # clean rows of a class; with fewer, it is at risk where it loses labels

RANDOM_SAMPLE = (
    "this holds if the clean rows are a random sample of all rows, but not if only suspicious rows were verified"
)
BOUNDED = (
    "{unpaired} of {rows} clean rows have no given label, so how given and true labels are related is not known: the"
    " interval covers every possibility. Ten clean rows that keep their given label would say more"
)
ASSUMED = (
    "if the noise is as estimated from the noisy rows, {value} of the corrected labels are right ({low} to {high});"
    " this is an assumption, and it fails if wrong labels concentrate on hard rows"
)
BOUNDS = "95% bounds without pairs"  # how every screen names an interval that covers every possibility
NO_PAIRS = "no clean row has a given label, so how many good labels were broken is unknown"
WITHOUT_LABEL = (
    "{unpaired} of {rows} clean rows have no given label, so the accuracy is mostly that of correction without one (the"
    " network's prediction of the given label takes its place)"
)

Share = dict[str, Any]  # value, low, high, rows, how

Correct = Callable[[Labels], Floats]  # clean labels [n], -1 where missing, to corrected soft labels of all rows [n, C]

MIN_CLEAN = 4  # with fewer, too few are left to learn from


def share(hits: NDArray[np.bool_], others: int = 0) -> Share | None:
    """The share of hits with its interval; None where there are no rows.

    Args:
        hits: Of the rows that were looked at [n].
        others: The number of rows that the share is meant for, of which these are a random sample; 0 for any number.
    """
    if not len(hits):
        return None
    count = int(hits.sum())
    low, high = finite_interval(count, len(hits), others) if others else interval(count, len(hits))
    return {"value": float(hits.mean()), "low": low, "high": high, "rows": len(hits), "how": "measured"}


def no_estimate(*reasons: str) -> dict[str, Any]:
    """An estimate that cannot be given, and why."""
    return {
        "given_label_accuracy": None,
        "corrected_label_accuracy": None,
        "good_labels_broken": None,
        "wrong_labels_fixed": None,
        "level": LEVEL,
        "notes": list(reasons),
        "at_risk": [],
    }


def inputs_alone(found: Corrected, given: Labels, clean: Labels, validation: Labels) -> InputsAlone:
    """What the estimate needs to know about noisy rows.

    Args:
        found: What relabelling returned.
        given: Given labels of all rows [n], -1 where missing.
        clean: Clean labels of all rows [n], -1 where missing.
        validation: Positions of the clean rows that the estimate is made from, in its order [M].
    """
    noisy = np.flatnonzero((given != MISSING) & (clean == MISSING))
    label, confidence = found.judged[:, 2].astype(np.int64), found.judged[:, 3]
    returned = found.targets[noisy].argmax(axis=1)
    return InputsAlone(
        label[noisy], confidence[noisy], label[validation], confidence[validation], given[noisy], returned
    )


def estimate(
    posterior: Floats,
    given: Labels,
    clean: Labels,
    notes: Sequence[str] = (),
    expected: Floats | None = None,
    alone: InputsAlone | None = None,
) -> dict[str, Any]:
    """Estimates how good given and corrected labels are, from cross-fitted clean rows.

    Args:
        posterior: Cross-fitted soft labels of the clean rows [M, C].
        given: Their given labels [M], -1 where missing.
        clean: Their clean labels [M].
        notes: Further notes for the reader of the numbers.
        expected: For clean rows without a given label, the probability that they would be right if they had one, under
            each estimate of the noise; NaN in other rows [M, K].
        alone: What is known about the noisy rows, and what the inputs alone say about all of them.

    Returns:
        The entry "estimate" of run.json. With MIN_PAIRS paired rows or more, only those count, because only they are
        like the rows whose labels are corrected. With fewer, the accuracies are bounded.
    """
    paired = given != MISSING
    right, was_right = posterior.argmax(axis=1) == clean, given == clean
    noisy = 0 if alone is None else len(alone.noisy)
    words = [] if paired.any() else [NO_PAIRS]
    before, after = share(was_right[paired], noisy), share(right[paired], noisy)
    counted = paired
    if paired.sum() < MIN_PAIRS and (~paired).any():
        counted = np.ones(len(clean), bool)
        assumed = _assumed(right, paired, expected)
        words.insert(0, (WITHOUT_LABEL if alone is None else BOUNDED).format(unpaired=(~paired).sum(), rows=len(clean)))
        if alone is None or not noisy:
            after = assumed
        else:
            before = _bounded(alone, alone.given, clean, before, None)
            after = _bounded(alone, alone.returned, clean, after, assumed)
            if assumed is not None:
                after["if_noise_model_holds"] = assumed
                words.append(ASSUMED.format(**{key: f"{100 * assumed[key]:.1f}%" for key in ("value", "low", "high")}))
    classes = by_class(posterior, given, clean, alone)
    return {
        **no_estimate(),
        "given_label_accuracy": before,
        "corrected_label_accuracy": after,
        "good_labels_broken": share(~right[paired & was_right], _like(was_right, paired, noisy)),
        "wrong_labels_fixed": share(right[paired & ~was_right], _like(~was_right, paired, noisy)),
        "notes": [*words, *notes, RANDOM_SAMPLE],
        "reliability": reliability(posterior[counted], clean[counted]),
        "by_class": classes,
        "at_risk": at_risk(classes, alone),
        "alternatives": alternatives(given, clean, posterior.shape[1]),
    }


def _like(some: NDArray[np.bool_], paired: NDArray[np.bool_], noisy: int) -> int:
    """About how many noisy rows are like some of the paired ones; 0 if there are no noisy rows."""
    return max(round(noisy * float((some & paired).sum() / max(paired.sum(), 1))), 1) if noisy else 0


def _assumed(right: NDArray[np.bool_], paired: NDArray[np.bool_], expected: Floats | None) -> Share | None:
    """The share of right labels if simulated given labels are like real ones; its interval covers every simulation."""
    if expected is None or np.isnan(expected[~paired]).any():  # where pairs suffice, no label is simulated
        hits = right[:, None].astype(np.float32)
    else:
        hits = np.where(paired[:, None], right[:, None], expected)  # [M, K]
    return expected_share(hits)


def _bounded(alone: InputsAlone, labels: Labels, clean: Labels, measured: Share | None, assumed: Share | None) -> Share:
    """The accuracy of labels of the noisy rows between bounds, which a few pairs may narrow."""
    pairs = 0 if measured is None else measured["rows"]
    both = measured is not None and pairs >= SOME_PAIRS
    low, high = alone.accuracy(labels, clean, (1 + LEVEL) / 2 if both else LEVEL)
    if both and measured is not None:  # each at half the error
        ends = finite_interval(measured["value"] * pairs, pairs, len(alone.noisy), (1 + LEVEL) / 2)
        if max(low, ends[0]) <= min(high, ends[1]):
            low, high = max(low, ends[0]), min(high, ends[1])
    guess = (low + high) / 2 if assumed is None else float(np.clip(assumed["value"], low, high))
    return {"value": guess, "low": low, "high": high, "rows": len(clean), "how": "bounded"}


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
    note = "clean rows cannot tell how good the labels are that this method returns for noisy rows"
    return {**no_estimate(note, RANDOM_SAMPLE), "classifier_accuracy": right}


def expected_share(hits: Floats) -> Share:
    """The share of hits known only as probabilities under K estimates [M, K]; its interval covers all K intervals."""
    ends = np.array([interval(float(h), len(hits)) for h in hits.sum(axis=0, dtype=np.float64)])  # [K, 2]
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    return {"value": float(hits.mean()), "low": low, "high": high, "rows": len(hits), "how": "assumed"}


def reliability(posterior: Floats, clean: Labels) -> list[dict[str, float]]:
    """For every non-empty bin of confidence: mean confidence, accuracy with its interval, and number of rows."""
    confidence, right = posterior.max(axis=1).astype(np.float64), posterior.argmax(axis=1) == clean
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    bins = []
    for k in np.unique(place):
        mine = place == k
        found = share(right[mine])
        assert found is not None
        del found["how"]
        bins.append({"from": k / BINS, "to": (k + 1) / BINS, "confidence": float(confidence[mine].mean()), **found})
    return bins


def estimate_lines(found: dict[str, Any]) -> list[str]:
    """The estimate as text, one line per number and one per note."""
    titles = {
        "given_label_accuracy": "given labels that are right",
        "corrected_label_accuracy": "corrected labels that are right",
        "good_labels_broken": "good given labels broken",
        "wrong_labels_fixed": "wrong given labels fixed",
        "classifier_accuracy": "predictions of the classifier that are right",
    }
    lines = []
    for key, title in titles.items():
        if number := found.get(key):
            value, low, high = (f"{100 * number[part]:.1f}" for part in ("value", "low", "high"))
            if number.get("how") == "bounded":
                lines.append(f"  {title}: {low}% to {high}% ({BOUNDS}, from {number['rows']} clean rows)")
            else:
                lines.append(f"  {title}: {value}% (95% interval {low}% to {high}%, from {number['rows']} clean rows)")
    others = [f"{name} {100 * value:.1f}%" for name, value in found.get("alternatives", {}).items()]
    if lines and others:
        lines.append(f"  right on the same clean rows without any correction: {', '.join(others)}")
    lines = ["estimated, on held-out clean rows:", *lines] if lines else []
    head = "" if lines else "the accuracy of the corrected labels cannot be estimated: "
    return lines + [f"  {head}{note}" if lines else f"{head}{note}" for note in found["notes"]]


def by_class(posterior: Floats, given: Labels, clean: Labels, alone: InputsAlone | None = None) -> list[dict[str, Any]]:
    """For every class: clean rows, good labels that were broken, wrong ones that were fixed, precision and recall.

    Counts and shares are those of paired rows, by true class; precisions are by the label that was given or returned.
    Intervals are of the noisy rows, whose number of a true class is estimated.

    Args:
        posterior: Cross-fitted soft labels of the clean rows [M, C].
        given: Their given labels [M], -1 where missing.
        clean: Their clean labels [M].
        alone: What is known about the noisy rows; without it, intervals are of any number of further rows.
    """
    known = (given != MISSING) & ~np.isnan(posterior).any(axis=1)
    returned = np.nan_to_num(posterior).argmax(axis=1)
    right, was_right = returned == clean, given == clean
    found, noisy = [], 0 if alone is None else len(alone.noisy)

    def with_label(labels: Labels | None, k: int) -> int:
        return 0 if labels is None else max(int((labels == k).sum()), 1)

    given_now, returned_now = (None, None) if alone is None else (alone.given, alone.returned)
    for k in range(posterior.shape[1]):
        mine = known & (clean == k)
        others = _like(mine, known, noisy)
        good, wrong = mine & was_right, mine & ~was_right
        counts = {"good": good, "broken": good & ~right, "wrong": wrong, "fixed": wrong & right}
        found.append(
            {
                **{name: int(rows.sum()) for name, rows in counts.items()},
                "clean_rows": int((clean == k).sum()),
                "precision": share(right[known & (returned == k)], with_label(returned_now, k)),
                "recall": share(right[mine], others),
                "given_precision": share(was_right[known & (given == k)], with_label(given_now, k)),
                "given_recall": share(was_right[mine], others),
            }
        )
    return found


def at_risk(classes: Sequence[dict[str, Any]], alone: InputsAlone | None) -> list[dict[str, Any]]:
    """The classes to be careful about, the one that loses most labels first, and how many rows of each to verify.

    Args:
        classes: What `by_class` found.
        alone: What is known about the noisy rows; without it, labels that a class loses are not counted.
    """
    size = len(classes)
    labels = np.zeros(size, np.int64) if alone is None else np.bincount(alone.given, minlength=size)
    now = labels if alone is None else np.bincount(alone.returned, minlength=size)
    found = []
    for k, one in enumerate(classes):
        lost, rows = int(labels[k] - now[k]), one["clean_rows"]
        loses = f"; on balance it loses {lost} of {labels[k]} labels" if lost > 0 else ""
        if not rows and (labels[k] or now[k]):
            why = f"no clean row is of this class, so nothing shows whether its labels are right{loses}"
        elif one["broken"] > one["fixed"]:
            counts = f"broke {one['broken']} good labels and fixed {one['fixed']} wrong ones"
            why = f"on its clean rows changes {counts}{loses}"
        elif rows < WELL_KNOWN and lost > 0:
            why = f"only {rows} clean row{'' if rows == 1 else 's'} of this class{loses}"
        else:
            continue
        found.append((lost, {"class": k, "why": why, "verify": WELL_KNOWN}))
    return [one for _, one in sorted(found, key=lambda each: -each[0])]


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
