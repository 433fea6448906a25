"""Digits with wrong labels, small problems and quick settings for the tests of the methods to compare with."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelloop.data.datasets.digits import digits
from labelloop.methods import METHODS
from labelloop.runs.folder import RunFolder
from labelloop.runs.run_json import RunRecord
from labelloop.splits import clean_split
from labelloop.training.runtime import Runtime
from labelloop.training.setup import resolve
from labelloop.types import MISSING, Fitted, Labels, Problem, Rows, Truth

SETTINGS: dict[str, Any] = {
    "network_options": {"hidden": [64]}, "epochs": 30, "batch_size": 64, "learning_rate": 0.1, "weight_decay": 1e-4
}  # fmt: skip


def problem_of(inputs: np.ndarray, given: Labels, true: Labels, clean: Labels, names: tuple[str, ...]) -> Problem:
    """A problem whose clean rows are at the positions `clean`, unpaired."""
    rest = np.setdiff1d(np.arange(len(inputs)), clean)
    return Problem(
        Rows(inputs, rest, given[rest], np.full(len(rest), MISSING)),
        Rows(inputs, clean, np.full(len(clean), MISSING), true[clean]),
        names,
    )


@cache
def noisy_digits(rate: float) -> tuple[Problem, Truth]:
    """1,100 digits, a share `rate` of them with another class's label, and 100 clean ones."""
    x, y, x_test, y_test = digits()
    rng = np.random.default_rng(0)
    given = np.where(rng.random(len(y)) < rate, (y + rng.integers(1, 10, len(y))) % 10, y)
    _, clean = clean_split(y, 100, rng)
    problem = problem_of(x, given, y, clean, tuple(map(str, range(10))))
    test = Rows(x_test, np.arange(len(x_test)), np.full(len(x_test), MISSING), y_test)
    return problem, Truth(y[problem.train.index], test)


@cache
def last_accuracy(method: str, rate: float, **changes: Any) -> float:
    """The share of test digits that the network of the last epoch gets right."""
    problem, truth = noisy_digits(rate)
    runtime = quiet(truth=truth)
    METHODS[method].fit(problem, resolve(METHODS[method].config(**(SETTINGS | changes)), problem), runtime)
    return runtime.history[-1]["test_accuracy"]


def small_problem(images: bool = False, unlabelled: int = 7) -> Problem:
    """Three clouds of points, or colour images whose class is the brightest channel; 30% of 90 labels are wrong."""
    rng = np.random.default_rng(0)
    true = np.arange(120) % 3
    if images:
        inputs = rng.integers(0, 100, (120, 8, 8, 3), dtype=np.uint8)
        inputs[np.arange(120), :, :, true] += 100
    else:
        inputs = (rng.normal(size=(3, 6))[true] * 2 + rng.normal(size=(120, 6))).astype(np.float32)
    given = np.where(rng.random(120) < 0.3, (true + 1) % 3, true)
    given[:unlabelled] = MISSING
    return problem_of(inputs, given, true, np.arange(90, 120), ("ant", "bee", "cat"))


def small_config(method: str, problem: Problem, **changes: Any) -> Any:
    images = isinstance(problem.train.inputs, np.ndarray) and problem.train.inputs.ndim == 4
    options = {"widths": [4, 6, 8, 8]} if images else {"hidden": [16], "dropout": 0.2}
    settings = {"network_options": options, "epochs": 4, "batch_size": 32, "learning_rate": 0.05}
    return resolve(METHODS[method].config(**(settings | changes)), problem)


def without_clean(problem: Problem, label: int) -> Problem:
    """The same problem without the clean rows of a class."""
    kept = problem.clean.clean_labels != label
    clean = problem.clean
    return replace(
        problem, clean=Rows(clean.inputs, clean.index[kept], clean.labels[kept], clean.clean_labels[kept])
    )  # fmt: skip


def quiet(seed: int = 0, **arguments: Any) -> Runtime:
    return Runtime(seed, device="cpu", progress=False, **arguments)


def same(one: Fitted, other: Fitted) -> bool:
    """Whether two results agree bit for bit."""
    a, b = one.model.state_dict(), other.model.state_dict()
    assert a
    assert a.keys() == b.keys()
    return (
        all(torch.equal(a[key], b[key]) for key in a)
        and np.array_equal(one.targets, other.targets)
        and one.rounds == other.rounds
    )


def check_resume(method: str, problem: Problem, config: Any, stops: tuple[int, ...], path: Path) -> None:
    """A run that is interrupted after each of `stops` epochs must end as one that never was."""
    whole_runtime = quiet()
    whole = METHODS[method].fit(problem, config, whole_runtime)

    class Interrupted(Runtime):
        stop = 0

        def save(self, epoch: int, *arguments: Any, **named: Any) -> None:
            super().save(epoch, *arguments, **named)
            if epoch == self.stop:
                raise KeyboardInterrupt

    folder = RunFolder(path)
    folder.write_record(RunRecord())
    for stop in stops:
        runtime = Interrupted(0, device="cpu", folder=folder, progress=False)
        runtime.stop = stop
        with pytest.raises(KeyboardInterrupt):
            METHODS[method].fit(problem, config, runtime)
        folder = RunFolder(path, resume=True)
    runtime = quiet(folder=folder)
    assert same(METHODS[method].fit(problem, config, runtime), whole)
    assert [row["loss"] for row in runtime.history] == [row["loss"] for row in whole_runtime.history]
    again = METHODS[method].fit(problem, config, quiet(folder=RunFolder(path, resume=True)))
    assert same(again, whole)  # a finished run has nothing left to do
