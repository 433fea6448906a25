"""Quick settings for the tests of the baselines, and a toy problem that lacks a class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from labelloop.methods import METHODS
from labelloop.training.setup import resolve
from labelloop.types import Problem, Rows


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
