"""What every method's configuration shares: network, optimiser, schedule. Defaults are the paper's CIFAR column.

A recipe is named settings that differ from these. Those of `labelloop` are our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labelloop.errors import UsageError, nearest

AUGMENTATIONS = ("auto", "none", "crop-flip", "own")
NORMALISATIONS = ("auto", "columns", "whole", "none")
PRECISIONS = ("float32", "bfloat16")
DEFAULT_RECIPE, DEFAULT_METHOD, PAPER_METHOD = "default", "labelloop", "closed-loop"
RECIPES: dict[str, dict[str, Any]] = {
    # Training for tables and small images, with what keeps a network from memorising: for baselines as for the default.
    # The paper's method keeps the paper's values, with a network that suits the rows.
    "default": {"epochs": 50, "learning_rate": 0.05, "mixup": 0.3, "warm_up": 10},
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


def added(default: Any) -> Any:
    """A setting added after runs were stored: at its default value it does not change the key of a run."""
    return field(default=default, metadata={"added": True})


def check_settings(
    config: Any,
    *,
    counts: Sequence[str] = (),
    positive: Sequence[str] = (),
    not_negative: Sequence[str] = (),
    below_one: Sequence[str] = (),
    choices: Mapping[str, Collection[str]] | None = None,
    prefix: str = "",
) -> None:
    """Refuses settings out of their range.

    Args:
        config: The configuration.
        counts: The settings that are at least 1.
        positive: Those above 0.
        not_negative: Those that are 0 or above.
        below_one: Those from 0 to below 1.
        choices: Those that are one of a few words, with the words.
        prefix: What stands before each name in a message.

    Raises:
        UsageError: One is out of its range.
    """
    rules: tuple[tuple[Sequence[str], Callable[[Any], bool], str], ...] = (
        (counts, lambda value: value >= 1, "must be at least 1, not"),
        (positive, lambda value: 0 < value < math.inf, "must be above 0, not"),
        (not_negative, lambda value: 0 <= value < math.inf, "must not be negative, but is"),
        (below_one, lambda value: 0 <= value < 1, "must be at least 0 and below 1, not"),
    )
    for names, holds, words in rules:
        for name in names:
            if not holds(getattr(config, name)):
                raise UsageError(f"{prefix}{name} {words} {getattr(config, name)}")
    for name, known in (choices or {}).items():
        value = getattr(config, name)
        if value not in known:
            raise UsageError(f"{prefix}{name}: unknown value {value!r}; {nearest(value, known)}")


@dataclass(frozen=True)
class TrainingConfig:
    """Network, optimiser and schedule.

    Attributes:
        network: A name of models.NETWORKS, `module:factory`, or "auto": mlp for columns, small-cnn for images.
        network_options: Passed to the network, such as {"hidden": [512, 512]}.
        weights: A file with weights for the encoder to start from, or empty.
        epochs: Passes over the training rows.
        batch_size: Rows per step; the last, smaller batch is kept.
        learning_rate: The initial learning rate of SGD.
        momentum: The momentum of SGD.
        weight_decay: The weight decay of SGD.
        learning_rate_drops: When the learning rate drops, as fractions of `epochs`.
        learning_rate_factor: The factor by which it is multiplied at each drop.
        augment: "crop-flip" (images in memory), "own" (image files: resized crop, flip, colour jitter, grey), "none",
            or "auto": own for image files, crop-flip for colour images in memory.
        normalise: How the model scales its inputs by the mean and deviation of the training rows: "columns" each by
            its own (channels of images), "whole" all columns by one deviation, which keeps the weight that an
            embedding gives to each, "none", or "auto": whole for arrays of numbers, unless they look like a table whose
            columns have units of their own, columns for the rest.
        mixup: Alpha of mixup: pairs of rows are blended in shares drawn from Beta(mixup, mixup); 0 is off.
        average_weights: The decay per step of a moving average of the weights, which is then evaluated and returned;
            0 is off.
        encoder_learning_rate_factor: Multiplies the learning rate of the network below the two heads; use less than 1
            for a pretrained one. Only closed-loop and cross-entropy support it.
        precision: What the network below the heads computes in: "float32", or "bfloat16" by autocast, which is faster
            on GPUs and some processors. Weights and losses stay in float32.
        compile: Whether to compile that network with torch.compile first.
    """

    network: str = "auto"
    network_options: dict[str, Any] = field(default_factory=dict)
    weights: str = ""
    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    learning_rate_drops: tuple[float, ...] = (0.6, 0.8)
    learning_rate_factor: float = 0.1
    augment: str = "auto"
    normalise: str = "auto"
    mixup: float = added(0.0)
    average_weights: float = added(0.0)
    encoder_learning_rate_factor: float = added(1.0)
    precision: str = added("float32")
    compile: bool = added(False)

    def __post_init__(self) -> None:
        check_settings(
            self,
            counts=("epochs", "batch_size"),
            positive=("learning_rate",),
            not_negative=("encoder_learning_rate_factor", "weight_decay", "mixup"),
            below_one=("momentum", "average_weights"),
            choices={"augment": AUGMENTATIONS, "normalise": NORMALISATIONS, "precision": PRECISIONS},
        )
        if any(not 0 < drop <= 1 for drop in self.learning_rate_drops):
            raise UsageError(
                f"learning_rate_drops are fractions of epochs, between 0 and 1, not {list(self.learning_rate_drops)}"
            )

    def check_schedule(self) -> None:
        """Refuses too few epochs for a method to work. Not in the constructor, because `epochs` may be set later."""

    def drop_epochs(self) -> tuple[int, ...]:
        """The epochs after which the learning rate drops."""
        return tuple(round(drop * self.epochs) for drop in self.learning_rate_drops)

    def learning_rate_in(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 1."""
        return self.learning_rate * self.learning_rate_factor ** sum(epoch > drop for drop in self.drop_epochs())


def method_of(method: str | None, recipe: str) -> str:
    """The method to train: the one that was named, the paper's for a recipe of the paper, else the default."""
    return method or (PAPER_METHOD if recipe.startswith("paper") else DEFAULT_METHOD)
