"""Checks experiments before the first of them trains."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from labelloop.bench.experiment import Experiment
from labelloop.errors import DataError, UsageError
from labelloop.types import Problem, Truth
from labelloop.workflows.compose import (
    LabelledData,
    build_network,
    check_method,
    check_optimizer,
    load_data,
    make_task,
    noisy_problem,
)


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
