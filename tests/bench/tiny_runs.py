"""Experiments that take a fraction of a second, and what to compare of their records."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from labelloop.bench.experiment import Experiment
from labelloop.methods import METHODS

CLOCKS = ("seconds", "peak_memory_mib")

# Four methods, two seeds: eight runs.
GRID = """
dataset = "digits"
dataset_options = { limit = 300 }
clean = 60
rate = 0.3
config = { epochs = 4, batch_size = 64, network_options = { hidden = [8] } }

[axes]
seed = [0, 1]

[[methods]]
method = "cross-entropy"

[[methods]]
method = "oracle"

[[methods]]
method = "logistic-corrector"
config = { warm_up = 1 }

[[methods]]
method = "closed-loop"

[methods.config]
warm_up = 1
correct_every = 1
corrector = { hidden = 8, max_epochs = 5 }
"""


def quick_config(method: str) -> dict[str, Any]:
    """Settings with which a method runs for a few epochs; known by the names of its settings, so new methods too."""
    config: dict[str, Any] = {"network_options": {"hidden": [8]}, "batch_size": 64}
    for field in fields(METHODS[method].config):
        if field.name in ("warm_up", "correct_every"):
            config[field.name] = 1
        elif field.name.endswith("epochs"):
            config[field.name] = 2
        elif field.name == "noise_rate":
            config[field.name] = 0.3
        elif field.name == "corrector":
            config[field.name] = {"hidden": 8, "max_epochs": 3}
        elif field.name == "learners":
            config[field.name] = "networks"  # the others cost ten times as much
        elif field.name == "rounds":
            config[field.name] = 1
    return config


def tiny(method: str = "cross-entropy", **changes: Any) -> Experiment:
    """300 digits, 60 of them clean, 2 epochs. `config` is laid over the quick one."""
    config = quick_config(method) | changes.pop("config", {})
    settings = {"dataset_options": {"limit": 300}, "clean": 60, "rate": 0.3, "config": config} | changes
    return Experiment(method=method, **settings)


def without_clocks(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what a clock, the machine or the commit says."""
    history = [{key: value for key, value in row.items() if key not in CLOCKS} for row in record["history"]]
    return {key: value for key, value in record.items() if key != "versions"} | {"history": history}
