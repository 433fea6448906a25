"""Small rows and quick settings for the tests of `fit` and of what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import labelloop

NAMES = np.array(["ant", "bee", "cat"])
QUICK: dict[str, Any] = {
    "epochs": 4,
    "rounds": 1,
    "learners": "networks",
    "batch_size": 32,
    "network_options": {"hidden": [8]},
}
# The same for the paper's method.
QUICK_LOOP: dict[str, Any] = {
    "epochs": 4,
    "warm_up": 2,
    "correct_every": 1,
    "batch_size": 32,
    "network_options": {"hidden": [8]},
    "corrector": {"hidden": 8, "max_epochs": 6},
}


@dataclass(frozen=True)
class SmallRows:
    """Rows 0-8 clean unpaired, 9-17 clean paired, 80-89 unlabelled, the rest noisy."""

    X: np.ndarray  # [90, 5]
    y: np.ndarray
    y_clean: np.ndarray
    true: np.ndarray


def small_rows(n: int = 90, seed: int = 0) -> SmallRows:
    rng = np.random.default_rng(seed)
    true = np.arange(n) % 3
    X = (np.random.default_rng(9).normal(size=(3, 5)) * 2)[true] + rng.normal(size=(n, 5))
    y = np.where(rng.random(n) < 0.3, (true + 1) % 3, true)
    y[9] = (true[9] + 1) % 3
    y[:9] = y[80:] = -1
    return SmallRows(X.astype(np.float32), y, np.where(np.arange(n) < 18, true, -1), true)


def quick_fit(rows: SmallRows, **arguments: Any) -> labelloop.Result:
    """`labelloop.fit` on small rows; arguments replace what is given by default."""
    config = QUICK_LOOP if arguments.get("method") == "closed-loop" else QUICK
    given: dict[str, Any] = {"X": rows.X, "y": rows.y, "y_clean": rows.y_clean, "config": config, "progress": False}
    given |= arguments
    return labelloop.fit(given.pop("X"), given.pop("y"), given.pop("y_clean"), **given)


def small_images(n: int = 60, seed: int = 0) -> SmallRows:
    """Colour images of 8 x 8 whose class is the brightest channel."""
    rng = np.random.default_rng(seed)
    rows = small_rows(n, seed)
    X = rng.integers(0, 100, (n, 8, 8, 3), dtype=np.uint8)
    X[np.arange(n), :, :, rows.true] += 120
    y = rows.y.copy()
    y[-5:] = -1
    return SmallRows(X, y, rows.y_clean, rows.true)


def same_result(one: labelloop.Result, other: labelloop.Result) -> bool:
    """Whether two results agree bit for bit."""
    states = [result.model.network.state_dict() for result in (one, other)]
    return (
        np.array_equal(one.corrected_proba, other.corrected_proba, equal_nan=True)
        and np.array_equal(one.predicted_proba, other.predicted_proba)
        and one.rounds == other.rounds
        and states[0].keys() == states[1].keys()
        and all(np.array_equal(states[0][key], states[1][key]) for key in states[0])
    )
