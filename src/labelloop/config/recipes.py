"""Named settings: the paper to the letter, and a default for tables with few clean rows.

A recipe lists only what differs from the defaults of the configuration classes, which are the paper's CIFAR column.
"""

from __future__ import annotations

from typing import Any

DEFAULT_RECIPE = "default"

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
    # Two networks, each trained briefly on half of the rows, predict the other half. Instant correction makes labels
    # of that, which the run returns. The loop's network starts from these labels, may correct them early in training,
    # and then trains on the clean rows too. Mixup, or augmentation, and averaged weights keep it from memorising; the
    # correction network is small enough for a hundred clean rows. docs/recipe.md says what each part contributes.
    "default": {
        "epochs": 50,
        "learning_rate": 0.05,
        "mixup": 0.3,
        "mixup_augmented": False,
        "average_weights": 0.998,
        "noisy_loss_weight": 0.2,
        "simulation": "by_row",
        "beliefs": "all",
        "warm_up": 10,
        "correct_every": 5,
        "correct_until": 0.3,
        "combination_prior": 10.0,
        "clean_rows_train": "after_last_correction",
        "clean_row_repeats": 0,
        "final_labels": "held_out",
        "corrector": {
            "optimizer": "adamw",
            "learning_rate": 3e-3,
            "low_learning_rate": 3e-4,
            "weight_decay": 0.01,
            "batch_size": 128,
            "standardise": True,
        },
    },
}
