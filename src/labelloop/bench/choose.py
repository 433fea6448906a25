"""The one rule that chooses the open settings of every method, ours included. It uses only clean rows.

At most three candidates, starting with those of the method's publication. Each is trained once, with a seed that no
table reports, on 80% of the clean rows; the most accurate one on the other 20% is chosen, the first one in a tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from labelloop.bench.experiment import Experiment
from labelloop.errors import UsageError
from labelloop.seeds import stream
from labelloop.splits import stratified_split
from labelloop.types import Labels, Problem, Rows, Truth
from labelloop.workflows.compose import RunOptions, load_data, make_task, method_named, noisy_problem

MOST_CANDIDATES = 3
SEED = 100  # no table reports it
FIT_SHARE = 0.8


def held_out_right(experiment: Experiment) -> tuple[int, int]:
    """The number of held-out clean rows that a method classifies correctly after its last epoch, and of all of them.

    It is trained with the other clean rows. Neither test rows nor true training labels are used.
    """
    if method_named(experiment.method).is_oracle:
        raise UsageError(f"method {experiment.method!r} is given the true labels; there is nothing to choose")
    problem, _, _ = noisy_problem(experiment, load_data(experiment))
    shown, judges = without_some_clean(problem, experiment.seed)
    task = make_task(experiment.method, experiment.method_config, shown, Truth(None, judges))
    runtime = RunOptions(experiment.seed, device="cpu", progress=False).runtime(truth=task.truth)
    method_named(experiment.method).fit(task.problem, task.config, runtime)
    return round(runtime.history[-1]["test_accuracy"] * len(judges)), len(judges)


def without_some_clean(problem: Problem, seed: int) -> tuple[Problem, Rows]:
    """The problem with 80% of its clean rows, and the other clean rows for evaluation."""
    fit, held_out = stratified_split(problem.clean.clean_labels, FIT_SHARE, stream(seed, "choose"))
    return replace(problem, clean=_take(problem.clean, fit)), _take(problem.clean, held_out)


def best_of(right: Sequence[int]) -> int:
    """The position of the chosen candidate: the first one with the most correct predictions."""
    if not 0 < len(right) <= MOST_CANDIDATES:
        raise UsageError(f"{len(right)} candidates; the rule allows from 1 to {MOST_CANDIDATES}")
    return int(np.argmax(right))


def _take(rows: Rows, position: Labels) -> Rows:
    extra = None if rows.extra is None else rows.extra[position]
    return Rows(rows.inputs, rows.index[position], rows.labels[position], rows.clean_labels[position], extra)
