"""Before anything trains: checks of experiments, and the one rule that chooses the open settings of every method.

The rule is the same for ours, and uses only clean rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelloop.bench.experiment import Experiment
from labelloop.errors import DataError, UsageError
from labelloop.seeds import stream
from labelloop.splits import stratified_split
from labelloop.types import Labels, Problem, Rows, Truth
from labelloop.workflows.compose import (
    LabelledData,
    RunOptions,
    build_network,
    check_method,
    check_optimizer,
    load_data,
    make_task,
    method_named,
    noisy_problem,
)

MOST_CANDIDATES = 3
SEED = 100  # no table reports it
FIT_SHARE = 0.8


def check_experiments(experiments: Iterable[Experiment]) -> None:
    """Loads every data set, draws every noise and builds every network of the experiments, each once.

    Raises:
        UsageError: Settings that do not exist or do not fit the data.
        DataError: A data set or a noise file is missing, damaged, or made for other rows.
    """
    groups: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        groups.setdefault(_key(experiment.dataset, experiment.dataset_options), []).append(experiment)
    for group in groups.values():
        _check(group, load_data(group[0]))


def _check(experiments: Sequence[Experiment], data: LabelledData) -> None:
    problems: dict[str, tuple[Problem, Truth]] = {}
    models: dict[str, Any] = {}
    for experiment in experiments:
        # Of noises that differ only in rate or seed, one is drawn: the others would fail in the same way.
        wanted = _key(
            experiment.noise, experiment.noise_options, experiment.rate > 0, experiment.clean, experiment.paired
        )
        if wanted not in problems:
            problem, truth, _ = noisy_problem(experiment, data)
            if len(problem.clean) < 2:
                raise UsageError(
                    f"{experiment.words}: one clean row is too few; some train the correction and others evaluate it"
                )
            if not len(problem.train):
                raise DataError(f"{experiment.words}: all rows are clean, none is left to train on")
            problems[wanted] = problem, truth
        task = make_task(experiment.method, experiment.method_config, *problems[wanted])
        config = task.config
        built = _key(config.network, config.network_options, config.weights, config.normalise)
        try:
            check_method(task)
            if built not in models:
                models[built] = build_network(task, experiment.seed)
            check_optimizer(models[built], config)
        except (DataError, UsageError) as error:
            raise type(error)(f"{experiment.words}: {error}") from None


def _key(*values: Any) -> str:
    return json.dumps(values, sort_keys=True, default=str)


def held_out_right(experiment: Experiment) -> tuple[int, int]:
    """The number of held-out clean rows that a method classifies correctly after its last epoch, and of all of them.

    It is trained with the other clean rows. Neither test rows nor true training labels are used.
    """
    if method_named(experiment.method).is_oracle:
        raise UsageError(f"method {experiment.method!r} is given the true labels; there is nothing to choose")
    problem, _, _ = noisy_problem(experiment, load_data(experiment))
    shown, validation = without_some_clean(problem, experiment.seed)
    task = make_task(experiment.method, experiment.method_config, shown, Truth(None, validation))
    runtime = RunOptions(experiment.seed, device="cpu", progress=False).runtime(truth=task.truth)
    method_named(experiment.method).fit(task.problem, task.config, runtime)
    return round(runtime.history[-1]["test_accuracy"] * len(validation)), len(validation)


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
