"""The labels that a run of the closed loop returns, in `fit` and in `bench` alike, set by `final_labels`.

"loop" returns the labels that the loop ends with, as in the paper. "held_out" makes new labels with networks that have
not seen the row (held_out.py), and returns them unless the clean rows show that the loop's own are better (judge.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelloop.correction.held_out import held_out_labels
from labelloop.correction.judge import judge_held_out, judge_loop
from labelloop.large_arrays import taken
from labelloop.methods.closed_loop import Config
from labelloop.methods.closed_loop.learners.columns import kind_of_inputs
from labelloop.training.runtime import Runtime
from labelloop.types import Fitted, Floats, Problem

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
        ours = judge_loop(problem, config, fitted, runtime.seed) if runtime.is_first else {}
    loop = FinalLabels(fitted.targets, LOOP, ours)
    if config.final_labels == "loop":
        return loop
    found = held_out_labels(problem, config, runtime)
    if found is None:
        return loop
    count = len(problem.train)
    place = np.argsort(np.argsort(np.concatenate([problem.train.index, problem.clean.index])))
    train, clean = place[:count], place[count:]  # positions of the problem's rows in `found`
    judged = judge_held_out(problem, found.cross_fitted[clean], ours, found.expected_right[clean])
    if judged is None:
        return loop
    kept = kind_of_inputs(problem.train.inputs, config.normalise)
    targets, scores, of_clean = taken(found.targets, train), taken(found.scores, train), taken(found.scores, clean)
    return FinalLabels(targets, HELD_OUT, judged, scores, of_clean, kept, found.guard)
