"""The one place where data, noise, method and run come together: for `fit`, the demo, `bench` and the estimator.

The rows of a table, or of a data set with corrupted labels, form a Problem. With a method and its settings it becomes a
Task, which is checked, tried out, and trained in memory or in a run folder. A bench imports all it needs from here.
"""

# ruff: noqa: F401

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from labelloop.config.base import TrainingConfig
from labelloop.config.build import flat, to_dict
from labelloop.data.datasets import LabelledData
from labelloop.errors import DataError, UsageError
from labelloop.large_arrays import keep_freed_memory, memory_limit, usual_limit
from labelloop.methods import METHODS, recipe_config
from labelloop.models import TwoHeadClassifier
from labelloop.noise import Noisy, realised_rate
from labelloop.runs.folder import RunFolder
from labelloop.runs.run_json import RunRecord, versions
from labelloop.seeds import whole_seed
from labelloop.training.checkpoint import read_checkpoint
from labelloop.training.ranks import ALONE, Ranks
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer, resolve
from labelloop.types import MISSING, Fitted, Problem, ReturnedLabels, Truth
from labelloop.workflows.noise import NoisySetting, load_data, noisy_problem


@dataclass(frozen=True)
class RunOptions:
    """Options of a run apart from method and data. Of these, only the seed determines the result.

    Attributes:
        seed: The same seed on the same machine gives the same result, bit for bit.
        device: "auto", "cpu", "cuda", ...
        workers: Processes that load the items of a dataset.
        progress: Whether to draw a progress bar; None draws one only in a terminal.
        folder: The run folder, with records and checkpoints; None keeps everything in memory.
        resume: Continue the interrupted run in `folder`.
        overwrite: Replace the run in `folder`.
        report: Write report.html into `folder`.
        dry_run: Only read and check, if rows come from a file.
        before: Called after all checks, just before training.
        ranks: The processes that share the run; only the first one writes.
        max_memory: About how much memory to use, in bytes or as 4G; larger arrays are kept in files next to `folder`.
            None uses half of the machine's memory.
        half: Keep soft labels in half precision.
    """

    seed: int = 0
    device: str = "auto"
    workers: int = 0
    progress: bool | None = None
    folder: Path | None = None
    resume: bool = False
    overwrite: bool = False
    report: bool = True
    dry_run: bool = False
    before: Callable[[], object] | None = None
    ranks: Ranks = ALONE
    max_memory: str | int | None = None
    half: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", whole_seed(self.seed))
        if self.workers < 0:
            raise UsageError(f"workers must not be negative, but is {self.workers}")
        if self.resume and self.overwrite:
            raise UsageError("resume continues the run in a folder and overwrite deletes it; give one of them")
        if self.folder is None and (self.resume or self.overwrite):
            raise UsageError("resume and overwrite are about the run in a folder; give output_dir too")

    def memory_limit(self) -> AbstractContextManager[object]:
        """Bounds the memory used inside."""
        size = self.max_memory
        if size is None and self.ranks.here > 1:  # the processes of a machine share its memory
            size = usual_limit() // self.ranks.here
        return memory_limit(size, self.folder, half=self.half)

    def runtime(self, folder: RunFolder | None = None, truth: Truth | None = None, name: str = "training") -> Runtime:
        """The runtime of a method, with or without a folder and the truth."""
        return Runtime(self.seed, self.device, folder, truth, self.progress, self.workers, name, self.ranks)


@dataclass(frozen=True)
class Task:
    """A method, and what it is trained on.

    Attributes:
        method: A name in METHODS.
        config: Its settings, with every "auto" replaced.
        problem: What the method gets.
        truth: What only the recorder gets.
    """

    method: str
    config: TrainingConfig
    problem: Problem
    truth: Truth


@dataclass(frozen=True)
class Trained:
    """The result of a task.

    Attributes:
        fitted: What the method returned.
        runtime: Where it ran; its history has a record for every epoch.
        folder: The run folder, or None.
    """

    fitted: Fitted
    runtime: Runtime
    folder: RunFolder | None


def make_task(
    method: str, config: TrainingConfig, problem: Problem, truth: Truth, *, named_columns: bool = False
) -> Task:
    """A task with every "auto" of its settings replaced.

    Args:
        method: A name in METHODS.
        config: Its settings.
        problem: The rows.
        truth: What is known about them that the method must not see.
        named_columns: Whether the inputs are columns with names, which have units of their own.
    """
    shown = shown_to(method, problem, truth)
    if config.normalise == "auto" and named_columns:
        config = replace(config, normalise="columns")
    return Task(method, resolve(config, shown), shown, truth)


def shown_to(method: str, problem: Problem, truth: Truth) -> Problem:
    """The problem that a method gets: for the oracle alone, the given labels are the true ones."""
    if not METHODS[method].is_oracle:
        return problem
    if truth.train_labels is None or (truth.train_labels == MISSING).all():
        raise UsageError(f"method {method!r} needs the true training labels, which this data set does not have")
    return replace(problem, train=replace(problem.train, labels=truth.train_labels.copy()))


def check_task(task: Task, source: str, options: RunOptions) -> None:
    """Builds everything once before a folder is touched: a wrong setting must not leave a stub or delete an old run.

    Args:
        task: What is to be trained.
        source: The name of the rows in messages.
        options: The options of the run.
    """
    task.config.check_schedule()
    if options.ranks.count > 1 and not METHODS[task.method].shares_batches:
        able = ", ".join(name for name, method in METHODS.items() if method.shares_batches and not method.is_oracle)
        raise UsageError(
            f"method {task.method!r} trains in one process, since each of its steps needs a whole batch, and"
            f" {options.ranks.count} take part; start one process, or take another method: {able}"
        )
    try:
        METHODS[task.method].check(task.problem, task.config)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    model, device = build_network(task, options.seed), options.device
    try:
        model = options.runtime().prepare(model)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {device!r} cannot be used here ({str(error).splitlines()[0]}); try 'cpu'") from None
    check_optimizer(model, task.config)


def build_network(task: Task, seed: int) -> TwoHeadClassifier:
    """The initial network of the task."""
    return new_classifier(task.config, task.problem, seed)


def check_optimizer(model: TwoHeadClassifier, config: TrainingConfig) -> None:
    """Refuses settings that the optimiser refuses."""
    try:
        new_optimizer(model, config)
    except ValueError as error:
        raise UsageError(f"the optimiser refuses its settings: {error}") from None


def new_record(
    kind: str,
    task: Task,
    seed: int,
    data: dict[str, Any],
    source: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
) -> RunRecord:
    """The content of run.json when a run begins."""
    # Sums over another number of threads differ in their last digits.
    threads = {"torch": torch.get_num_threads(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}
    return RunRecord(
        kind=kind,
        method=task.method,
        config=to_dict(task.config),
        seed=seed,
        data=data,
        versions=versions(),
        source=None if source is None else {**source, "class_names": list(task.problem.class_names)},
        about={"threads": threads, **(about or {})},
    )


def ended(record: RunRecord, fitted: Fitted, final: ReturnedLabels | None) -> RunRecord:
    """The content of run.json when a run is finished."""
    return replace(
        record,
        state="finished",
        stop_reason=fitted.stop_reason,
        rounds=fitted.rounds,
        labels_from=record.method if final is None else final.labels_from,
        estimate=None if final is None else final.estimate,
        about=record.about if final is None or final.guard is None else {**record.about, "guard": final.guard},
    )


def train(task: Task, options: RunOptions, record: RunRecord, folder: RunFolder | None = None) -> Trained:
    """Trains a task. A run folder, if there is one, records how it ended, whatever happens.

    Args:
        task: What is trained.
        options: The options of the run.
        record: The content of run.json while it runs.
        folder: From `open_run`; None keeps everything in memory.
    """
    runtime = options.runtime(folder, task.truth)
    try:
        fitted = METHODS[task.method].fit(task.problem, task.config, runtime)
        fitted = _as_the_first_has_it(fitted, options.ranks)
    except KeyboardInterrupt:
        if folder is not None:
            folder.write_record(replace(record, state="interrupted"))
        raise
    except UsageError:
        if folder is not None and not runtime.history:  # refused before it began: nothing worth keeping
            folder.clear()
        raise
    except Exception as error:
        if folder is not None:
            folder.write_record(replace(record, state="failed", stop_reason=str(error)))
        raise
    return Trained(fitted, runtime, folder)


def _as_the_first_has_it(fitted: Fitted, ranks: Ranks) -> Fitted:
    """The result of a task, the same in every process except for what only the writer needs."""
    fitted = replace(fitted, rounds=tuple(ranks.from_first(lambda: fitted.rounds)))
    if (final := fitted.returned) is None:
        return fitted
    shared = ranks.from_first(lambda: (final.train, final.labels_from, final.estimate, final.guard))
    return fitted if ranks.is_first else replace(fitted, returned=ReturnedLabels(*shared))


def open_run(options: RunOptions, record: RunRecord) -> RunFolder | None:
    """The run folder, new or resumed, with its run.json; None for a run in memory, and for all but the first process.

    Processes that do not run the same are refused before that.
    """
    same = {"method": record.method, "config": record.config, "seed": record.seed, "data": record.data}
    options.ranks.agree("rows or settings", json.dumps(same, sort_keys=True, default=str))
    return options.ranks.in_first(lambda: _open_run(options, record))


def _open_run(options: RunOptions, record: RunRecord) -> RunFolder | None:
    if options.folder is None:
        return None
    folder = RunFolder(options.folder, resume=options.resume, overwrite=options.overwrite)
    if options.resume:
        _check_same_run(folder.read_record(), record, folder.path)
        _check_epoch(folder)
    folder.write_record(record)
    return folder


def _check_epoch(folder: RunFolder) -> None:
    """Refuses a damaged checkpoint before run.json changes, and one of epochs that never ran."""
    checkpoint = read_checkpoint(folder.checkpoint)
    if checkpoint is None:
        return
    ran = max((row["epoch"] for row in folder.read_metrics()), default=0)
    if checkpoint.epoch > ran:
        raise DataError(
            f"{folder.checkpoint / 'state.json'} is damaged: epoch is {checkpoint.epoch}, but {ran} is the last one"
            " that the run can have finished; restore it from a copy, or start again in another folder"
        )


def _check_same_run(stored: RunRecord, run: RunRecord, folder: Path) -> None:
    """Refuses to resume with other settings or other rows, and says which."""
    advice = "resume with what the run was started with, or start a new one in another folder"
    old, new = (
        {"method": one.method, "seed": one.seed, **flat(one.config), "classes": one.data["classes"]}
        for one in (stored, run)
    )
    for key in (*new, *(old.keys() - new.keys())):
        if old.get(key) != new.get(key):
            raise DataError(f"{folder} was started with {key} = {old.get(key)!r}, not {new.get(key)!r}; {advice}")
    if stored.data["sha256"] != run.data["sha256"]:
        raise DataError(
            f"{folder} was started with other rows ({stored.data['rows']} rows of {stored.data['source']}) than "
            f"these ({run.data['rows']} rows of {run.data['source']}); {advice}"
        )
    if stored.data["test"] != run.data["test"]:
        raise DataError(f"{folder} was started with other test rows, or without any; {advice}")
    before, now = ((one.about.get("threads") or {}).get("torch") for one in (stored, run))
    if None not in (before, now) and before != now:
        warnings.warn(
            f"{folder} was started with {before} threads, and goes on with {now}: the result can differ in the last"
            " digits of its confidences; set OMP_NUM_THREADS to get the same bytes",
            stacklevel=4,
        )
