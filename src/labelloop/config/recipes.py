"""Named settings: the paper to the letter, and what serves people whose data is a table and whose clean rows are few.

A recipe lists only what differs from the defaults of the configuration classes, which are the paper's CIFAR column.
"""

from __future__ import annotations

from typing import Any

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
        "learning_rate_drops": [1 / 3, 2 / 3],
        "warm_up": 3,
        "correct_every": 3,
    },
    # The paper's loop on a shorter schedule, with a correction network that a hundred clean rows can train (AdamW on
    # standardised columns) and less weight on the noisy head, which otherwise spoils the features. Where enough rows
    # have both labels, these choose between the loop's labels and those of networks that have not seen the row.
    "practical": {
        "epochs": 50,
        "learning_rate": 0.05,
        "warm_up": 10,
        "correct_every": 5,
        "noisy_loss_weight": 0.2,
        "final_labels": "held_out",
        "corrector": {"optimizer": "adamw", "weight_decay": 0.01, "standardise": True},
    },
}
