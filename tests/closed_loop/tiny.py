"""Small problems and runs for the tests of the closed loop: three clouds of points, or coloured 8x8 images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelloop.methods.closed_loop import Config, CorrectorConfig, fit
from labelloop.runs.folder import RunFolder
from labelloop.runs.run_json import RunRecord
from labelloop.training.runtime import Runtime
from labelloop.training.setup import resolve
from labelloop.types import MISSING, Fitted, Problem, Rows, Truth

CLASSES = ("ant", "bee", "cat")
QUICK = CorrectorConfig(hidden=16, max_epochs=12, learning_rate=0.05, low_learning_rate=0.005, patience=3)


def tiny_problem(
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
    """N training rows (the last `unlabelled` without a label), then M clean rows (the first `paired` paired)."""
    rng = np.random.default_rng(seed)
    total = n + m + 30
    true = rng.integers(len(CLASSES), size=total)
    true[:3] = true[n : n + 3] = true[-3:] = [0, 1, 2]
    wrong = (true + rng.integers(1, len(CLASSES), total)) % len(CLASSES)
    given = np.where(rng.random(total) < noise, wrong, true)
    if images:
        inputs = rng.integers(0, 120, (total, 8, 8, 3), dtype=np.uint8)
        inputs[np.arange(total), :, :, true] += 60
    else:
        centres = np.random.default_rng(99).normal(size=(len(CLASSES), 6)) * 1.5
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
        CLASSES,
    )
    return problem, Truth(true[train], rows(test, np.full(len(test), MISSING), true[test]))


def tiny_config(
    problem: Problem, *, images: bool = False, corrector: dict[str, Any] | None = None, **changes
) -> Config:
    options = {"widths": [4, 6, 8, 8]} if images else {"hidden": [16]}
    settings: dict[str, Any] = {
        "network": "small-cnn" if images else "mlp",
        "network_options": options,
        "epochs": 8,
        "warm_up": 3,
        "correct_every": 2,
        "batch_size": 32,
        "learning_rate": 0.05,
    }
    config = Config(**(settings | changes), corrector=replace(QUICK, **(corrector or {})))
    return resolve(config, problem)


def quiet(seed: int = 0, **arguments: Any) -> Runtime:
    return Runtime(seed, device="cpu", progress=False, **arguments)


def run(problem: Problem, config: Config, seed: int = 0, **arguments: Any) -> Fitted:
    return fit(problem, config, quiet(seed, **arguments))


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


def assert_same(a: Fitted, b: Fitted) -> None:
    """Two runs agree bit for bit."""
    assert same_state(a.model.state_dict(), b.model.state_dict())
    np.testing.assert_array_equal(a.targets, b.targets)
    assert list(a.rounds) == list(b.rounds)
    assert a.stop_reason == b.stop_reason


def random_states() -> tuple[Any, ...]:
    """The global random states of torch and numpy."""
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    return (torch.get_rng_state().numpy().tobytes(), name, keys.tobytes(), position, has_gauss, cached)
