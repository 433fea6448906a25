"""The labels that a run of the closed loop returns, in `fit` and in `bench` alike, set by `final_labels`.

"loop" returns the labels that the loop ends with, as in the paper. "held_out" returns labels made by networks that have
not seen the row, unless the clean rows show that the loop's own are better (judge.py): the loop's network has memorised
some wrong labels of its training rows but has never seen the clean rows, so what clean rows show about its outputs does
not carry over. The half-networks are such networks; with the paper's simulation they are trained after the loop.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from labelloop.errors import DataError
from labelloop.methods.closed_loop import Config
from labelloop.methods.closed_loop.halves import hold_out
from labelloop.methods.closed_loop.one_correction import estimate_held_out, estimate_loop
from labelloop.relabel.learners import kind_of_inputs
from labelloop.training.runtime import Runtime
from labelloop.types import MISSING, Fitted, Floats, Problem

MIN_LABELS = 20  # rows with a given label: fewer cannot train a network
LOOP, HELD_OUT = "closed-loop", "held-out networks"  # values of labels_from in run.json


@dataclass(frozen=True)
class FinalLabels:
    """The labels to return, and how they were judged.

    Attributes:
        train: Soft labels of the training rows [N, C].
        labels_from: "closed-loop" or "held-out networks".
        estimate: How good they are: the entry "estimate" of run.json.
        train_scores: The log-probabilities that instant correction made them from [N, E]; None if they are the loop's.
        clean_scores: The same for the clean rows [M, E].
        inputs_as: The name under which a run keeps the inputs, where the labels were made from them too; else None.
        guard: What the guard decided, and how sure that is: the entry "guard" of run.json.
    """

    train: Floats
    labels_from: str
    estimate: dict[str, Any]
    train_scores: Floats | None = None
    clean_scores: Floats | None = None
    inputs_as: str | None = None
    guard: dict[str, Any] | None = None


def final_labels(problem: Problem, config: Config, fitted: Fitted, runtime: Runtime) -> FinalLabels:
    """Chooses the labels to return.

    Args:
        problem: What the loop was given.
        config: Its settings.
        fitted: What it ended with.
        runtime: Where to train further networks, if any. It must not have the folder of the loop's run.
    """
    # With several processes, only the first one judges; the others help to train networks.
    with runtime.clock("judging labels on clean rows"):
        ours = estimate_loop(problem, config, fitted, runtime.seed) if runtime.is_first else {}
    loop = FinalLabels(fitted.targets, LOOP, ours)
    if config.final_labels == "loop":
        return loop
    if (problem.train.labels != MISSING).sum() < MIN_LABELS or not len(problem.clean):
        return loop
    try:
        found = fitted.held_out or hold_out(problem, config, runtime).returned
    except DataError as error:  # a finished loop is not lost with it
        warnings.warn(f"the labels are the loop's own, because a held-out network failed: {error}", stacklevel=3)
        return loop
    judged = estimate_held_out(problem, found.cross_fitted, ours, found.expected_right) if runtime.is_first else None
    if judged is None:
        return loop
    kept = kind_of_inputs(problem.train.inputs, config.normalise) if config.beliefs != "networks" else None
    return FinalLabels(found.train, HELD_OUT, judged, found.train_scores, found.clean_scores, kept, found.guard)
