"""One correction from a network's outputs, without training the network; and how good the loop's labels are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from labelloop.methods.closed_loop import Config as ClosedLoopConfig
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import fit_corrector
from labelloop.methods.closed_loop.views import columns, noisy_view
from labelloop.relabel.estimate import MIN_CLEAN, RANDOM_SAMPLE, cross_fitted, estimate, no_estimate, share
from labelloop.relabel.relabel import MIN_PAIRS
from labelloop.relabel.stacking import combine, fit_simplex_weights
from labelloop.seeds import integer, stream
from labelloop.splits import stratified_split
from labelloop.types import MISSING, Extracted, Fitted, Floats, Labels, Problem

FIRST_ROUND = (
    "judged at the first correction, before any clean label could influence the network; the effect of later "
    "corrections is not counted"
)
NOT_CALIBRATED = (
    f"with fewer than {MIN_PAIRS} rows that have both labels, the value of a given label cannot be measured: "
    "confidences and label scores are not calibrated, and rows with a given label usually do better than this estimate"
)
HELD_OUT = "each label is made from networks that had not seen the row, and from its given label; the loop's own labels"
TOO_FEW = f"there are fewer than {MIN_CLEAN} clean rows"


@dataclass(frozen=True)
class Seen:
    """What is known about some rows, apart from their clean labels.

    Attributes:
        given: Given labels [n], -1 where missing.
        extracted: The network's outputs for them.
        extra: Further columns for the correction network [n, E], or None.
    """

    given: Labels
    extracted: Extracted
    extra: Floats | None = None

    def rows(self, index: Labels) -> Seen:
        """Some of the rows."""
        posterior = self.extracted
        return Seen(
            self.given[index],
            Extracted(posterior.features[index], posterior.logits[index], posterior.noisy_posterior[index]),
            None if self.extra is None else self.extra[index],
        )


def single_round(seen: Seen, clean: Labels, config: Config, seed: int) -> Floats:
    """Lines 6 to 9 of Algorithm 1 with one correction: the given label and a new correction network, combined.

    Args:
        seen: What is known about the rows.
        clean: Clean labels [n], -1 where missing; the correction learns from them, and needs at least two.
        config: Settings of the loop.
        seed: The same seed gives the same result.

    Returns:
        Corrected soft labels of all rows [n, C].
    """
    clean_rows = np.flatnonzero(clean != MISSING)
    labels = clean[clean_rows]
    clean_fit, clean_val = stratified_split(labels, config.clean_fit_fraction, stream(seed, "clean-val"))
    view = noisy_view(seen.given, seen.extracted)  # [n, C]
    named = columns(seen.extracted, seen.extra, config)
    corrector = fit_corrector(
        view[clean_rows], {name: values[clean_rows] for name, values in named.items()}, labels, clean_fit, clean_val,
        config.corrector, integer(seed, "corrector"),
    )  # fmt: skip
    components = [view, corrector(view, named)]
    val = [component[clean_rows[clean_val]] for component in components]
    weights = np.array([0.0, 1.0]) if config.combination == "latest" else fit_simplex_weights(val, labels[clean_val])
    return combine(components, weights)


def estimate_baseline(method: str, how: str, problem: Problem, predicted: Floats) -> dict[str, Any]:
    """The entry "estimate" of run.json for a method other than the closed loop.

    Args:
        method: Its name.
        how: How it uses the clean rows, as METHODS has it.
        problem: What the method was given.
        predicted: The classifier's probabilities of the clean rows [M, C].
    """
    if how != "not used":
        return no_estimate(f"clean rows are {how!r} to the method {method!r}, so they cannot judge it")
    right = share(predicted.argmax(axis=1) == problem.clean.clean_labels)
    note = "the clean rows cannot judge the labels it returns for noisy rows"
    return {**no_estimate(note, RANDOM_SAMPLE), "classifier_accuracy": right}


def estimate_loop(problem: Problem, config: ClosedLoopConfig, fitted: Fitted, seed: int) -> dict[str, Any]:
    """The entry "estimate" of run.json for the loop's own labels.

    At the last epoch, even a cross-fitted correction would look too good: the network has learnt from labels that every
    clean row helped to correct. So the network at the first correction is used.

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
        return no_estimate("an older version started the run and did not record the inputs of the first correction")
    if len(clean) < MIN_CLEAN:
        return no_estimate(TOO_FEW)
    seen = Seen(clean.labels, fitted.first_clean, clean.extra)
    correct = partial(single_round, seen, config=config, seed=integer(seed, "estimate"))
    posterior = cross_fitted(correct, clean.clean_labels, clean.labels, stream(seed, "estimate-folds"))
    few = (clean.labels != MISSING).sum() < MIN_PAIRS
    return estimate(posterior, clean.labels, clean.clean_labels, [*([NOT_CALIBRATED] if few else []), FIRST_ROUND])


def estimate_held_out(
    problem: Problem, posterior: Floats, loop: dict[str, Any], expected: Floats | None = None
) -> dict[str, Any] | None:
    """The estimate of the held-out labels, or None if the loop's own labels are clearly better.

    The loop's labels have no guard, so the lower end of their interval must lie above the estimate of the held-out
    labels. That takes MIN_PAIRS paired rows: with fewer, the loop's labels are not compared.

    Args:
        problem: What the method was given.
        posterior: Cross-fitted soft labels of the clean rows [M, C].
        loop: The estimate of the loop's own labels.
        expected: As in `estimate`.
    """
    clean = problem.clean
    found = estimate(posterior, clean.labels, clean.clean_labels, expected=expected)
    ours, theirs = found["corrected_label_accuracy"], loop["corrected_label_accuracy"]
    pairs = (clean.labels != MISSING).sum() >= MIN_PAIRS
    if theirs is not None and pairs and theirs["low"] > ours["value"]:
        return None
    if theirs is not None and not pairs:
        theirs = None  # an estimate without real given labels cannot be compared with this one
    words = "cannot be judged" if theirs is None else f"are not clearly better: {100 * theirs['value']:.1f}% right"
    return {**found, "notes": [f"{HELD_OUT} {words}", *found["notes"]], "loop_label_accuracy": theirs}
