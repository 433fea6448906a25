"""Small problems and runs for the tests of the closed loop: three clouds of points, or coloured 8x8 images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from toys import quiet, same_state

from labelloop.methods.closed_loop import Config, CorrectorConfig, fit
from labelloop.training.setup import resolve
from labelloop.types import Fitted, Problem

QUICK = CorrectorConfig(hidden=16, max_epochs=12, learning_rate=0.05, low_learning_rate=0.005, patience=3)


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


def run(problem: Problem, config: Config, seed: int = 0, **arguments: Any) -> Fitted:
    return fit(problem, config, quiet(seed, **arguments))


def assert_same(a: Fitted, b: Fitted) -> None:
    """Two runs agree bit for bit."""
    assert same_state(a.model.state_dict(), b.model.state_dict())
    np.testing.assert_array_equal(a.targets, b.targets)
    assert list(a.rounds) == list(b.rounds)
    assert a.stop_reason == b.stop_reason
