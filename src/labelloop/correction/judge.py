"""How good the labels of a run are, as far as its clean rows can honestly tell."""

from __future__ import annotations

from functools import partial
from typing import Any

from labelloop.correction.cross_fit import MIN_CLEAN, cross_fitted
from labelloop.correction.estimate import RANDOM_SAMPLE, estimate, no_estimate, share
from labelloop.correction.once import Seen, correct_once
from labelloop.correction.pairs import MIN_PAIRS
from labelloop.methods.closed_loop import Config as ClosedLoopConfig
from labelloop.seeds import integer, stream
from labelloop.types import MISSING, Fitted, Floats, Problem

FIRST_ROUND = (
    "judged at the first correction, when no clean label had yet a way into the network; what later corrections add "
    "is not counted"
)
NOT_CALIBRATED = (
    f"without {MIN_PAIRS} rows that have both labels nothing shows what a given label adds: confidences and label "
    "scores are not calibrated, and labels of rows with a given one are mostly better than these and this estimate say"
)
HELD_OUT = "labels are made from networks that had not seen the row and from its given label; those of the loop"
TOO_FEW = f"there are fewer than {MIN_CLEAN} clean rows"


def judge_baseline(method: str, how: str, problem: Problem, predicted: Floats) -> dict[str, Any]:
    """What run.json holds under "estimate" for a method other than the closed loop.

    Args:
        method: Its name.
        how: How it uses the clean rows.
        problem: What the method was given.
        predicted: The classifier's probabilities of the clean rows [M, C].
    """
    if how != "not used":
        return no_estimate(f"clean rows are {how!r} to the method {method!r}, so they cannot judge it")
    right = share(predicted.argmax(axis=1) == problem.clean.clean_labels)
    note = "of the labels it returns for noisy rows, clean rows say nothing"
    return {**no_estimate(note, RANDOM_SAMPLE), "classifier_accuracy": right}


def judge_loop(problem: Problem, config: ClosedLoopConfig, fitted: Fitted, seed: int) -> dict[str, Any]:
    """What run.json holds under "estimate" for the loop's own labels.

    At the last epoch even a re-fitted correction is flattered: the network has learnt from labels that every clean row
    helped to correct. So the network of the first correction is asked.

    Args:
        problem: What the loop was given.
        config: Its settings.
        fitted: What it returned.
        seed: Deals the clean rows into folds.
    """
    clean = problem.clean
    if config.clean_rows_train == "always":
        return no_estimate('clean_rows_train is "always": the network has memorised the clean labels')
    if fitted.first_clean is None:
        return no_estimate("what the first correction saw was not recorded: an older version began the run")
    if len(clean) < MIN_CLEAN:
        return no_estimate(TOO_FEW)
    seen = Seen(clean.labels, fitted.first_clean, clean.extra)
    correct = partial(correct_once, seen, config=config, seed=integer(seed, "estimate"))
    said = cross_fitted(correct, clean.clean_labels, clean.labels, stream(seed, "estimate-folds"))
    few = (clean.labels != MISSING).sum() < MIN_PAIRS
    return estimate(said, clean.labels, clean.clean_labels, [*([NOT_CALIBRATED] if few else []), FIRST_ROUND])


def judge_held_out(
    problem: Problem, said: Floats, loop: dict[str, Any], expected: Floats | None = None
) -> dict[str, Any] | None:
    """The estimate of labels that were made after the loop, or None if the loop's are surely better by theirs.

    The loop's labels have no guard, so theirs must lie above by more than the counting of clean rows can do; and only
    pairs show how good they are.

    Args:
        problem: What the method was given.
        said: Cross-fitted soft labels of the clean rows [M, C].
        loop: The estimate of the loop's own labels.
        expected: As for `estimate`.
    """
    clean = problem.clean
    found = estimate(said, clean.labels, clean.clean_labels, expected=expected)
    ours, theirs = found["corrected_label_accuracy"], loop["corrected_label_accuracy"]
    pairs = (clean.labels != MISSING).sum() >= MIN_PAIRS
    if theirs is not None and pairs and theirs["low"] > ours["value"]:
        return None
    if theirs is not None and not pairs:
        theirs = None  # an estimate without real given labels cannot be held against this one
    words = "cannot be judged" if theirs is None else f"are not surely better: {100 * theirs['value']:.1f}% right"
    return {**found, "notes": [f"{HELD_OUT} {words}", *found["notes"]], "loop_label_accuracy": theirs}
