"""Rows and quick settings for the tests of the estimator."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from labelloop import LabelLoopClassifier
from labelloop.data.datasets.digits import digits

NO_CLEAN = "no row has a clean label"


class NoisyRows(NamedTuple):
    X: np.ndarray
    y: np.ndarray  # given; -1 where missing
    y_clean: np.ndarray  # verified; -1 where not
    true: np.ndarray


@cache
def three_clouds(n: int = 150) -> NoisyRows:
    """Three clouds of points; 20% of the labels wrong, the last ten missing, every fifth row verified."""
    rng = np.random.default_rng(0)
    true = np.arange(n) % 3
    X = np.array([[4, 0, 0, 1], [0, 4, 0, 1], [0, 0, 4, 1]])[true] + rng.normal(size=(n, 4))
    y = np.where(rng.random(n) < 0.2, (true + 1) % 3, true)
    y[-10:] = -1
    y_clean = np.where(np.arange(n) % 5 == 0, true, -1)
    return NoisyRows(X.astype(np.float32), y, y_clean, true)


@cache
def digits_one_too_high() -> NoisyRows:
    """1,200 digits, 200 verified. Of each even digit 40% are labelled as the next one; the odd ones are right."""
    X, true, _, _ = digits()
    rng = np.random.default_rng(0)
    y = np.where((true % 2 == 0) & (rng.random(len(true)) < 0.4), true + 1, true)
    y_clean = np.full(len(true), -1)
    verified = rng.permutation(len(true))[:200]
    y_clean[verified] = true[verified]
    return NoisyRows(X, y, y_clean, true)


def quick(**changes: Any) -> LabelLoopClassifier:
    """An estimator that fits in a moment."""
    small = {"network_options": {"hidden": [16]}, "rounds": 1, "learners": "networks"}
    settings: dict[str, Any] = {"epochs": 8, "batch_size": 32, "config": small, "random_state": 0}
    return LabelLoopClassifier(**(settings | changes))


def papers(**changes: Any) -> LabelLoopClassifier:
    """The same with the paper's method."""
    small = {"network_options": {"hidden": [16]}, "correct_every": 2, "corrector": {"hidden": 16, "max_epochs": 8}}
    settings: dict[str, Any] = {"recipe": "paper", "network": "mlp", "epochs": 8, "warm_up": 3, "batch_size": 32}
    return LabelLoopClassifier(**(settings | {"config": small, "random_state": 0} | changes))
