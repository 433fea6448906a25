"""An experiment: data set, noise, method, configuration, seed. Running it: data -> noise -> method -> result.

Before anything trains, the experiments of a grid are checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.bench.tables import setting
from labelloop.config.base import DEFAULT_METHOD, DEFAULT_RECIPE, TrainingConfig
from labelloop.config.build import deciding, to_dict
from labelloop.errors import DataError, UsageError
from labelloop.runs.folder import holds_run
from labelloop.runs.labels import label_metrics
from labelloop.runs.run_json import data_record, versions
from labelloop.types import Problem, Truth
from labelloop.workflows import compose
from labelloop.workflows.compose import LabelledData, Noisy, RunOptions, Task, Trained


@dataclass(frozen=True)
class Experiment(compose.NoisySetting):
    """Everything that determines a result, and nothing else.

    Attributes:
        method: A name in METHODS.
        recipe: A name in RECIPES.
        config: What differs from the recipe.
        name: Its name in tables; the method's name if empty. It does not affect the result.
    """

    method: str = DEFAULT_METHOD
    recipe: str = DEFAULT_RECIPE
    config: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.method_config  # refuses unknown settings before anything runs

    @cached_property
    def method_config(self) -> TrainingConfig:
        """The complete configuration of the method."""
        return compose.recipe_config(self.method, self.recipe, self.config)

    @property
    def title(self) -> str:
        return self.name or self.method

    @property
    def words(self) -> str:
        """A description for people."""
        return f"{self.title}, {self.dataset}, {setting(asdict(self))}, seed {self.seed}"

    @cached_property
    def key(self) -> str:
        """A name for the run folder: equal if everything that determines the result is, and different if not.

        It leaves out the rate if the noise has a fixed one, and the path of a noise file, whose content counts instead.
        """
        decides = self.deciding() | {"name": "", "recipe": "", "config": deciding(self.method_config)}
        text = json.dumps(decides, sort_keys=True, default=str)
        return f"{self.method}-{self.dataset}-{self.noise}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def run_experiment(experiment: Experiment, folder: Path | None = None, **surroundings: Any) -> dict[str, Any]:
    """Runs an experiment, or continues it from a checkpoint in its folder, and returns its record.

    Args:
        experiment: What to run.
        folder: The folder of records and checkpoints; None keeps everything in memory.
        surroundings: Further fields of RunOptions, such as device and progress.
    """
    data = compose.load_data(experiment)
    problem, truth, noisy = compose.noisy_problem(experiment, data)
    task = compose.make_task(experiment.method, experiment.method_config, problem, truth)
    going_on = folder is not None and holds_run(folder)
    options = RunOptions(experiment.seed, folder=folder, resume=going_on, **surroundings)
    about = {"experiment": asdict(experiment)}
    run = compose.new_record("bench", task, experiment.seed, _rows(data, problem), about=about)
    trained = compose.train(task, options, run, compose.open_run(options, run))
    record = _without_nan(_record(experiment, task, trained, data, problem, noisy))
    if trained.folder is not None:
        trained.folder.write_record(compose.ended(run, trained.fitted, trained.fitted.returned))
    return record


def _rows(data: LabelledData, problem: Problem) -> dict[str, Any]:
    given, clean = (
        np.concatenate([getattr(rows, name) for rows in (problem.train, problem.clean)])
        for name in ("labels", "clean_labels")
    )
    return data_record(Path(data.source).name, problem.class_names, given, clean, sha256=data.fingerprint)


def _record(
    experiment: Experiment, task: Task, trained: Trained, data: LabelledData, problem: Problem, noisy: Noisy
) -> dict[str, Any]:
    """Everything that a table or a figure may need."""
    given, true = problem.train.labels, data.labels[problem.train.index]
    fitted, final = trained.fitted, trained.fitted.returned
    record = {
        "experiment": asdict(experiment),
        "title": experiment.title,
        "clean_rows": compose.METHODS[experiment.method].clean_rows,
        "config": to_dict(task.config),
        "data": {"source": Path(data.source).name, "fingerprint": data.fingerprint},
        "train_rows": len(problem.train),
        "clean_rows_count": len(problem.clean),
        "nominal_rate": noisy.rate,
        "realised_rate": compose.realised_rate(true, given),
        "noisy_labels_sha256": hashlib.sha256(given.tobytes()).hexdigest(),
        "versions": versions(),
        "stop_reason": fitted.stop_reason,
        "rounds": list(fitted.rounds),
        "history": trained.runtime.history,
    }
    if final is not None:
        handed_back = {"labels_from": final.labels_from, **label_metrics(final.train, given, true)}
        record |= {"handed_back": handed_back, "estimate": final.estimate}
    return record


def _without_nan(value: Any) -> Any:
    """The value as plain JSON: NaN becomes null."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and value != value else value


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
        _check(group, compose.load_data(group[0]))


def _check(experiments: Sequence[Experiment], data: LabelledData) -> None:
    problems: dict[str, tuple[Problem, Truth]] = {}
    models: dict[str, Any] = {}
    for experiment in experiments:
        # Of noises that differ only in rate or seed, one is drawn: the others would fail in the same way.
        noise = (experiment.noise, experiment.noise_options, experiment.rate > 0)
        wanted = _key(*noise, experiment.clean, experiment.paired)
        if wanted not in problems:
            problem, truth, _ = compose.noisy_problem(experiment, data)
            if len(problem.clean) < 2:
                raise UsageError(
                    f"{experiment.words}: one clean row is too few; some train the correction and others evaluate it"
                )
            if not len(problem.train):
                raise DataError(f"{experiment.words}: all rows are clean, none is left to train on")
            problems[wanted] = problem, truth
        task = compose.make_task(experiment.method, experiment.method_config, *problems[wanted])
        config = task.config
        built = _key(config.network, config.network_options, config.weights, config.normalise)
        try:
            compose.METHODS[task.method].check(task.problem, config)
            if built not in models:
                models[built] = compose.build_network(task, experiment.seed)
            compose.check_optimizer(models[built], config)
        except (DataError, UsageError) as error:
            raise type(error)(f"{experiment.words}: {error}") from None


def _key(*values: Any) -> str:
    return json.dumps(values, sort_keys=True, default=str)
