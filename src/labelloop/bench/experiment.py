"""An experiment: data set, noise, method, configuration, seed. Running it: data -> noise -> method -> result."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.bench.tables import setting
from labelloop.config.base import TrainingConfig
from labelloop.config.build import deciding, to_dict
from labelloop.config.recipes import DEFAULT_RECIPE
from labelloop.correction.final import final_labels
from labelloop.data.datasets import DATASETS, LabelledData, load_dataset
from labelloop.errors import UsageError, nearest
from labelloop.methods import METHODS
from labelloop.methods.closed_loop import Config as ClosedLoopConfig
from labelloop.methods.configure import recipe_config
from labelloop.noise import NOISES, Noisy, realised_rate
from labelloop.runs.folder import RunFolder, holds_run
from labelloop.runs.metrics import label_metrics
from labelloop.runs.run_json import RunRecord, data_record
from labelloop.runs.versions import versions
from labelloop.seeds import stream
from labelloop.splits import clean_split
from labelloop.training.runtime import Runtime
from labelloop.training.setup import resolve
from labelloop.types import MISSING, Problem, Rows, Truth
from labelloop.workflows.corruption import OWN_RATE, check_noise_options, corrupt
from labelloop.workflows.noise import labels_from_file, path_in, stored_checksum


@dataclass(frozen=True)
class Experiment:
    """All that decides a result, and nothing else.

    Attributes:
        dataset: A name in DATASETS.
        dataset_options: Its options, such as {"limit": 20000}.
        clean: How many clean rows are drawn, each class in proportion, before any label is corrupted. 0 takes those
            that the data set itself names.
        paired: Whether the clean rows also have a noisy label.
        noise: A name in NOISES, "none", or "file".
        rate: The nominal rate, where the noise does not bring its own.
        noise_options: Options of the noise; the path of a noise file.
        method: A name in METHODS.
        recipe: A name in RECIPES.
        config: What differs from the recipe.
        name: What the table calls it; the method's name if empty. It does not decide the result.
        seed: Names every random stream.
    """

    dataset: str = "digits"
    dataset_options: dict[str, Any] = field(default_factory=dict)
    clean: int = 200
    paired: bool = False
    noise: str = "symmetric"
    rate: float = 0.4
    noise_options: dict[str, Any] = field(default_factory=dict)
    method: str = "closed-loop"
    recipe: str = DEFAULT_RECIPE
    config: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise UsageError(f"unknown data set {self.dataset!r}; {nearest(self.dataset, DATASETS)}")
        if self.noise not in (*NOISES, "none", "file"):
            raise UsageError(f"unknown noise {self.noise!r}; {nearest(self.noise, (*NOISES, 'none', 'file'))}")
        if not 0 <= self.rate <= 1:
            raise UsageError(f"rate must lie between 0 and 1, not {self.rate}")
        if self.clean < 0 or self.seed < 0:
            raise UsageError(f"clean and seed must not be negative, but are {self.clean} and {self.seed}")
        if self.noise == "file":
            path_in(self.noise_options)
        elif self.noise == "none" and self.noise_options:
            raise UsageError("noise 'none' has no options; leave noise_options out")
        elif self.noise != "none":
            check_noise_options(self.noise, self.noise_options)
        _ = self.method_config  # unknown methods, recipes and keys are refused here, before anything runs

    @cached_property
    def method_config(self) -> TrainingConfig:
        """The method's whole configuration."""
        return recipe_config(self.method, self.recipe, self.config)

    @property
    def title(self) -> str:
        return self.name or self.method

    @property
    def words(self) -> str:
        """What it is, for people."""
        return f"{self.title}, {self.dataset}, {setting(asdict(self))}, seed {self.seed}"

    @cached_property
    def key(self) -> str:
        """A name for the run folder: equal if and only if everything that decides the result is equal.

        Not the rate, where the noise brings its own, nor where a noise file lies; but what stands in it does. Nor
        which labels are handed back, where no clean row has a given label, without which there is nothing to choose.
        """
        decides = asdict(self) | {"name": "", "recipe": "", "config": deciding(self.method_config)}
        if not self.paired:
            decides["config"].pop("final_labels", None)
        if self.noise in (*OWN_RATE, "none", "file"):
            decides["rate"] = None
        if self.noise == "file":
            decides["noise_options"] = {"sha256": stored_checksum(path_in(self.noise_options))}
        text = json.dumps(decides, sort_keys=True, default=str)
        return f"{self.method}-{self.dataset}-{self.noise}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def run_experiment(experiment: Experiment, folder: Path | None = None, **surroundings: Any) -> dict[str, Any]:
    """Runs an experiment, or what is left of it if its folder holds a checkpoint, and returns its record.

    Args:
        experiment: What to run.
        folder: Where to record and keep checkpoints; None keeps everything in memory.
        surroundings: Further arguments of Runtime, such as device and progress.
    """
    data = load_data(experiment)
    problem, truth, noisy = make_noisy_problem(experiment, data)
    shown = shown_to(experiment.method, problem, truth)
    config = resolve(experiment.method_config, shown)
    run_folder = None
    if folder is not None:
        run_folder = RunFolder(folder, resume=holds_run(folder))
        labels, clean_labels = (
            np.concatenate([getattr(rows, name) for rows in (problem.train, problem.clean)])
            for name in ("labels", "clean_labels")
        )
        run = RunRecord(
            kind="bench",
            method=experiment.method,
            config=to_dict(config),
            seed=experiment.seed,
            data=data_record(
                Path(data.source).name, problem.class_names, labels, clean_labels, sha256=data.fingerprint
            ),
            versions=versions(),
            about={"experiment": asdict(experiment)},
        )
        run_folder.write_record(run)
    runtime = Runtime(experiment.seed, folder=run_folder, truth=truth, **surroundings)
    fitted = METHODS[experiment.method].fit(shown, config, runtime)
    given, true = problem.train.labels, data.labels[problem.train.index]
    final = None
    if isinstance(config, ClosedLoopConfig):
        final = final_labels(shown, config, fitted, Runtime(experiment.seed, **surroundings))
    record = {
        "experiment": asdict(experiment),
        "title": experiment.title,
        "clean_rows": METHODS[experiment.method].clean_rows,
        "config": to_dict(config),
        "data": {"source": Path(data.source).name, "fingerprint": data.fingerprint},
        "train_rows": len(problem.train),
        "clean_rows_count": len(problem.clean),
        "nominal_rate": noisy.rate,
        "realised_rate": realised_rate(true, given),
        "noisy_labels_sha256": hashlib.sha256(given.tobytes()).hexdigest(),
        "versions": versions(),
        "stop_reason": fitted.stop_reason,
        "rounds": list(fitted.rounds),
        "history": runtime.history,
    }
    if final is not None:
        handed_back = {"labels_from": final.labels_from, **label_metrics(final.train, given, true)}
        record |= {"handed_back": handed_back, "estimate": final.estimate}
    record = _without_nan(record)
    if run_folder is not None:
        ended = {"stop_reason": fitted.stop_reason, "rounds": record["rounds"], "estimate": record.get("estimate")}
        run_folder.write_record(replace(run, state="finished", **ended))
    return record


def load_data(experiment: Experiment) -> LabelledData:
    """The data set of an experiment. One that draws rows itself, as Clothing1M its clean share, draws by the seed."""
    options = dict(experiment.dataset_options)
    if "seed" in inspect.signature(DATASETS[experiment.dataset]).parameters:
        options.setdefault("seed", experiment.seed)
    return load_dataset(experiment.dataset, **options)


def make_noisy_problem(experiment: Experiment, data: LabelledData) -> tuple[Problem, Truth, Noisy]:
    """Draws the clean rows, then corrupts the labels. The method plays no part, so all methods get the same labels."""
    seed = experiment.seed
    if data.given_labels is not None and (experiment.noise != "none" or experiment.clean):
        raise UsageError(
            f'data set {data.name!r} brings its own noise and clean rows: set noise = "none" and clean = 0'
        )
    if experiment.clean:
        train_index, clean_index = clean_split(data.labels, experiment.clean, stream(seed, "clean-split"))
    elif data.clean_index is not None:
        clean_index = data.clean_index
        train_index = np.setdiff1d(np.arange(len(data)), clean_index)
    else:
        raise UsageError(f"data set {data.name!r} names no clean rows of its own; say how many to draw with clean")
    noisy = _corrupt(experiment, data)
    unknown = np.full(len(data), MISSING)
    train = Rows(data.inputs, train_index, noisy.labels[train_index], unknown[train_index])
    clean_given = noisy.labels if experiment.paired else unknown
    clean = Rows(data.inputs, clean_index, clean_given[clean_index], data.labels[clean_index])
    test_index = np.arange(len(data.test_labels))
    test = Rows(data.test_inputs, test_index, np.full(len(test_index), MISSING), data.test_labels)
    return Problem(train, clean, data.class_names), Truth(data.labels[train_index], test), noisy


def shown_to(method: str, problem: Problem, truth: Truth) -> Problem:
    """What a method is shown: the problem, and for the oracle alone one whose given labels are the true ones."""
    if not METHODS[method].is_oracle:
        return problem
    if truth.train_labels is None or (truth.train_labels == MISSING).all():
        raise UsageError(f"method {method!r} needs the true training labels, and nobody knows those of this data set")
    return replace(problem, train=replace(problem.train, labels=truth.train_labels.copy()))


def _corrupt(experiment: Experiment, data: LabelledData) -> Noisy:
    """Noisy labels for every row of the data set: a row's label does not depend on which rows are clean."""
    if experiment.noise == "none":
        given = data.labels if data.given_labels is None else data.given_labels
        return Noisy(given, None, None, realised_rate(data.labels, given))
    if experiment.noise == "file":
        return labels_from_file(path_in(experiment.noise_options), data)
    return corrupt(
        data.labels,
        data.num_classes,
        experiment.noise,
        experiment.rate,
        experiment.noise_options,
        experiment.seed,
        data.noise_inputs or (lambda: data.inputs),
    )


def _without_nan(value: Any) -> Any:
    """The value as JSON can hold it: what is not a number becomes null."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and value != value else value
