"""Named settings: the paper to the letter, and what serves people whose data is a table and whose clean rows are few.

A recipe lists only what differs from the defaults of the configuration classes, which are the paper's CIFAR column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from labelloop.errors import UsageError, nearest
from labelloop.experiments.configuration import build_config
from labelloop.methods import METHODS
from labelloop.methods.closed_loop import Config as ClosedLoopConfig
from labelloop.training.config import TrainingConfig

DEFAULT_RECIPE = "practical"

RECIPES: dict[str, dict[str, Any]] = {
    # The paper's implementation section and its table of experimental details, CIFAR-10 and CIFAR-100.
    "paper": {"network": "resnet34"},
    # The same table, Clothing1M. The warm-up is not stated there: PAPER.md, guess 3.
    "paper-clothing1m": {
        "network": "resnet50",
        "epochs": 15,
        "batch_size": 256,
        "learning_rate": 0.01,
        "lr_drops": [1 / 3, 2 / 3],
        "warm_up": 3,
        "correct_every": 3,
    },
    # The paper's loop on a shorter schedule, with a correction network that a hundred clean rows can train (AdamW on
    # standardised columns) and less weight on the noisy head, which otherwise spoils the features.
    "practical": {
        "epochs": 50,
        "learning_rate": 0.05,
        "warm_up": 10,
        "correct_every": 5,
        "noisy_loss_weight": 0.2,
        "corrector": {"optimizer": "adamw", "weight_decay": 0.01, "standardise": True},
    },
}


def recipe_config(method: str, recipe: str = DEFAULT_RECIPE, *layers: Mapping[str, Any]) -> TrainingConfig:
    """The configuration of a method: the recipe, as far as it concerns the method, then the layers on top of it."""
    if method not in METHODS:
        raise UsageError(f"unknown method {method!r}; {nearest(method, METHODS)}")
    if recipe not in RECIPES:
        raise UsageError(f"unknown recipe {recipe!r}; {nearest(recipe, RECIPES)}")
    kind = METHODS[method].config
    concerned = {field.name for field in fields(kind)}
    config = build_config(kind, {k: v for k, v in RECIPES[recipe].items() if k in concerned}, *layers)
    check_schedule(config)
    return config


def check_schedule(config: TrainingConfig) -> None:
    """Refuses a closed loop that ends before its first correction."""
    if isinstance(config, ClosedLoopConfig) and config.warm_up >= config.epochs:
        raise UsageError(
            f"no label would ever be corrected: warm_up is {config.warm_up} and epochs only {config.epochs}; "
            "the first correction comes after warm_up epochs, so lower warm_up or raise epochs"
        )
