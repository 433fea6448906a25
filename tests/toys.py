"""The one toy problem of the tests, digits with wrong labels, and what tests of training runs need again and again."""

from __future__ import annotations

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
from labelloop.types import MISSING, Fitted, Problem, Rows, Truth

NAMES = ("ant", "bee", "cat")
SETTINGS: dict[str, Any] = {
    "network_options": {"hidden": [64]}, "epochs": 30, "batch_size": 64, "learning_rate": 0.1, "weight_decay": 1e-4
}  # fmt: skip
CLOCKS = ("seconds", "peak_memory_mib")


def toy(
    n: int = 120,
    m: int = 40,
    *,
    noise: float = 0.3,
    paired: int = 0,
    unlabelled: int = 0,
    extra: bool = False,
    images: bool = False,
    seed: int = 0,
) -> tuple[Problem, Truth]:
    """Three clouds of points, or coloured 8x8 images, with `noise` of the given labels wrong.

    N training rows (the last `unlabelled` without a label), then M clean rows (the first `paired` paired), then 30
    test rows.
    """
    rng = np.random.default_rng(seed)
    total = n + m + 30
    true = rng.integers(len(NAMES), size=total)
    true[:3] = true[n : n + 3] = true[-3:] = [0, 1, 2]
    wrong = (true + rng.integers(1, len(NAMES), total)) % len(NAMES)
    given = np.where(rng.random(total) < noise, wrong, true)
    if images:
        inputs = rng.integers(0, 120, (total, 8, 8, 3), dtype=np.uint8)
        inputs[np.arange(total), :, :, true] += 60
    else:
        centres = np.random.default_rng(99).normal(size=(len(NAMES), 6)) * 1.5
        inputs = (centres[true] + rng.normal(size=(total, 6))).astype(np.float32)
    train, clean, test = np.arange(n), np.arange(n, n + m), np.arange(n + m, total)
    train_labels, clean_given = given[train].copy(), np.full(m, MISSING)
    train_labels[n - unlabelled :] = MISSING
    clean_given[:paired] = given[clean[:paired]]
    columns = rng.normal(size=(total, 2)).astype(np.float32)

    def rows(index: np.ndarray, labels: np.ndarray, clean_labels: np.ndarray) -> Rows:
        return Rows(inputs, index, labels, clean_labels, columns[index] if extra else None)

    problem = Problem(
        rows(train, train_labels, np.full(n, MISSING)),
        rows(clean, clean_given, true[clean]),
        NAMES,
    )
    return problem, Truth(true[train], rows(test, np.full(len(test), MISSING), true[test]))


def toy_problem(n: int = 90, m: int = 30, **settings: Any) -> Problem:
    """The problem of `toy` alone, a little smaller."""
    return toy(n, m, **settings)[0]


@cache
def noisy_digits(rate: float) -> tuple[Problem, Truth]:
    """1,100 digits, a share `rate` of them with another class's label, and 100 clean ones."""
    x, y, x_test, y_test = digits()
    rng = np.random.default_rng(0)
    given = np.where(rng.random(len(y)) < rate, (y + rng.integers(1, 10, len(y))) % 10, y)
    train, clean = clean_split(y, 100, rng)
    none = np.full(len(y), MISSING)
    problem = Problem(
        Rows(x, train, given[train], none[train]), Rows(x, clean, none[clean], y[clean]), tuple("0123456789")
    )
    test = Rows(x_test, np.arange(len(x_test)), np.full(len(x_test), MISSING), y_test)
    return problem, Truth(y[train], test)


@cache
def digits_accuracy(method: str, rate: float, **changes: Any) -> float:
    """The share of test digits that the network of the last epoch gets right."""
    problem, truth = noisy_digits(rate)
    runtime = quiet(truth=truth)
    METHODS[method].fit(problem, resolve(METHODS[method].config(**(SETTINGS | changes)), problem), runtime)
    return runtime.history[-1]["test_accuracy"]


def quiet(seed: int = 0, **arguments: Any) -> Runtime:
    return Runtime(seed, device="cpu", progress=False, **arguments)


def new_folder(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.write_record(RunRecord())
    return folder


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_state(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    assert a.keys() == b.keys()
    assert a
    return all(torch.equal(a[name], b[name]) for name in a)


def random_states() -> tuple[Any, ...]:
    """The global random states of torch and numpy."""
    state: Any = np.random.get_state()  # noqa: NPY002
    name, keys, position, has_gauss, cached = state
    return (torch.get_rng_state().numpy().tobytes(), name, keys.tobytes(), position, has_gauss, cached)


def same(one: Fitted, other: Fitted) -> bool:
    """Whether two results agree bit for bit."""
    return (
        same_state(one.model.state_dict(), other.model.state_dict())
        and np.array_equal(one.targets, other.targets)
        and list(one.rounds) == list(other.rounds)
        and one.stop_reason == other.stop_reason
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

    folder = new_folder(path)
    for stop in stops:
        interrupted = Interrupted(0, device="cpu", folder=folder, progress=False)
        interrupted.stop = stop
        with pytest.raises(KeyboardInterrupt):
            METHODS[method].fit(problem, config, interrupted)
        folder = RunFolder(path, resume=True)
    runtime = quiet(folder=folder)
    assert same(METHODS[method].fit(problem, config, runtime), whole)
    assert timeless(runtime) == timeless(whole_runtime)
    again = METHODS[method].fit(problem, config, quiet(folder=RunFolder(path, resume=True)))
    assert same(again, whole)  # a finished run has nothing left to do


def timeless(runtime: Runtime) -> list[dict[str, Any]]:
    """What a run recorded, without what a clock or the machine says."""
    return [{key: value for key, value in line.items() if key not in CLOCKS} for line in runtime.history]
