"""Named settings. A recipe lists only what differs from the defaults of the configuration classes.

Those of `labelloop` are our own; those of all other methods are the paper's CIFAR column.
"""

from __future__ import annotations

from typing import Any

DEFAULT_RECIPE, DEFAULT_METHOD, PAPER_METHOD = "default", "labelloop", "closed-loop"

RECIPES: dict[str, dict[str, Any]] = {
    # Training for tables and small images, with what keeps a network from memorising: for baselines as for the default.
    # The paper's method keeps the paper's values, with a network that suits the rows.
    "default": {"epochs": 50, "learning_rate": 0.05, "mixup": 0.3, "average_weights": 0.998, "warm_up": 10},
    # The paper's implementation section and its table of experimental details, CIFAR-10 and CIFAR-100.
    "paper": {"network": "resnet34"},
    # The same table, Clothing1M. The warm-up is not stated there: PAPER.md, guess 3.
    "paper-clothing1m": {
        "network": "resnet50",
        "epochs": 15,
        "batch_size": 256,
        "learning_rate": 0.01,
        "learning_rate_drops": [1 / 3, 2 / 3],
        "warm_up": 3,
        "correct_every": 3,
    },
}


def method_of(method: str | None, recipe: str) -> str:
    """The method to train: the one that was named, the paper's for a recipe of the paper, else the default."""
    return method or (PAPER_METHOD if recipe.startswith("paper") else DEFAULT_METHOD)
