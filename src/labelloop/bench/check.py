"""What is wrong with some experiments, found before the first of them trains."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from labelloop.bench.experiment import Experiment, load_data, make_noisy_problem, shown_to
from labelloop.data.datasets import LabelledData
from labelloop.errors import DataError, UsageError
from labelloop.methods import METHODS
from labelloop.training.setup import new_classifier, new_optimizer, resolve
from labelloop.types import Problem, Truth


def check_experiments(experiments: Iterable[Experiment]) -> None:
    """Loads every data set, draws every noise and builds every network that the experiments ask for, each once.

    Raises:
        UsageError: Settings that do not exist or do not fit the data.
        DataError: A data set or a noise file that is not there, damaged, or of other rows.
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
        # Of noises that differ in rate or seed alone, one is drawn: the others fail in no other way.
        wanted = _key(
            experiment.noise, experiment.noise_options, experiment.rate > 0, experiment.clean, experiment.paired
        )
        if wanted not in problems:
            problem, truth, _ = make_noisy_problem(experiment, data)
            if len(problem.clean) < 2:
                raise UsageError(f"{experiment.words}: one clean row is too few; some must judge what others teach")
            if not len(problem.train):
                raise DataError(f"{experiment.words}: all rows are clean, none is left to train on")
            problems[wanted] = problem, truth
        shown = shown_to(experiment.method, *problems[wanted])
        config = resolve(experiment.method_config, shown)
        _refuse(experiment, shown, config)
        built = _key(config.network, config.network_options, config.weights, config.normalise)
        if built not in models:
            models[built] = new_classifier(config, shown, experiment.seed)
        try:
            new_optimizer(models[built], config)
        except ValueError as error:
            raise UsageError(f"{experiment.words}: the optimiser refuses its settings: {error}") from None


def _refuse(experiment: Experiment, problem: Problem, config: Any) -> None:
    try:
        METHODS[experiment.method].check(problem, config)
    except (DataError, UsageError) as error:
        raise type(error)(f"{experiment.words}: {error}") from None


def _key(*values: Any) -> str:
    return json.dumps(values, sort_keys=True, default=str)
