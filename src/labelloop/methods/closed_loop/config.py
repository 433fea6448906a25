"""The configuration of the closed loop. Every ablation of the paper is a value here, never another code path."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from labelloop.config.base import TrainingConfig, added
from labelloop.errors import UsageError, nearest
from labelloop.methods.closed_loop.corrector import CorrectorConfig

COMBINATIONS = ("convex", "latest")
CLEAN_ROWS_TRAIN = ("never", "always", "after_warm_up", "after_last_correction")
SIMULATIONS = ("posterior", "transition", "by_row")
BELIEFS = ("networks", "once", "all")
FINAL_LABELS = ("loop", "held_out")


@dataclass(frozen=True)
class Config(TrainingConfig):
    """The closed loop's settings. The defaults are the paper's; see PAPER.md for where it says so.

    Attributes:
        noisy_loss_weight: λ of Eq. 1.
        simulation: The noisy label of a clean row that has none: "posterior", the noisy head's prediction (the paper),
            or a label drawn, anew in every pass, given the clean label: from noise that depends on the class alone
            ("transition"), or, to equal parts, on the row too ("by_row"). Two half-networks, each trained on half of
            the rows for the epochs of the warm-up, give the estimate and correct every label once before the loop.
        beliefs: Where the first labels come from: "networks", the half-networks alone; "once", where inputs are columns
            of numbers also learners of the given labels and of the clean rows alone; or "all", also learners that are
            taught a second time, by corrected labels.
        warm_up: Epochs before the first correction. With half-networks, the epochs of each of them; the loop's own
            labels are then first corrected after `correct_every` epochs.
        correct_every: Epochs between corrections.
        correct_until: The share of the epochs after which labels are no longer corrected.
        clean_fit_fraction: Share of the clean rows that train the correction network; the rest are clean_val.
        combination: "convex" (Eq. 2), or "latest": the newest correction alone.
        combination_prior: The size of a prior on the combination weights, in clean rows, for when there are few. It
            stands for the first labels; where these combine given labels and the half-networks' correction, for each
            half and half. 0 is Eq. 5.
        clean_rows_train: Whether the clean rows also train the classifier with their clean labels: "never" (the
            paper), "always", "after_warm_up", or "after_last_correction", when memorised clean rows can no longer
            spoil a correction.
        clean_row_repeats: How often each epoch repeats a clean row, where clean rows train the classifier. 0 chooses it
            by how many noisy rows are worth one clean row, from the share of their first labels that is right; three
            times as often where rows are augmented.
        mixup_augmented: Whether mixup also blends rows that are augmented anyway, which alone keeps a network from
            memorising.
        final_labels: The labels to return: "loop", those that the loop ends with (the paper), or "held_out", the first
            labels, from networks that have not seen the row, unless paired rows show that the loop's are better.
        corrector: Settings of the correction network.
    """

    noisy_loss_weight: float = 0.5
    simulation: str = added("posterior")
    beliefs: str = added("networks")
    warm_up: int = 40
    correct_every: int = 5
    correct_until: float = added(1.0)
    clean_fit_fraction: float = 0.8
    combination: str = "convex"
    combination_prior: float = added(0.0)
    clean_rows_train: str = "never"
    clean_row_repeats: int = added(1)
    mixup_augmented: bool = added(True)
    final_labels: str = added("loop")
    corrector: CorrectorConfig = field(default_factory=CorrectorConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        choices = {
            "combination": COMBINATIONS,
            "clean_rows_train": CLEAN_ROWS_TRAIN,
            "final_labels": FINAL_LABELS,
            "simulation": SIMULATIONS,
            "beliefs": BELIEFS,
        }
        for key, known in choices.items():
            value = getattr(self, key)
            if value not in known:
                raise UsageError(f"{key}: unknown value {value!r}; {nearest(value, known)}")
        for key in ("warm_up", "correct_every"):
            if getattr(self, key) < 1:
                raise UsageError(f"{key} must be at least 1, not {getattr(self, key)}")
        if not 0 <= self.noisy_loss_weight < math.inf:
            raise UsageError(f"noisy_loss_weight must not be negative, but is {self.noisy_loss_weight}")
        if self.clean_row_repeats < 0:
            raise UsageError(f"clean_row_repeats must not be negative, but is {self.clean_row_repeats}")
        if not 0 <= self.combination_prior < math.inf:
            raise UsageError(f"combination_prior must not be negative, but is {self.combination_prior}")
        if not 0 < self.clean_fit_fraction < 1:
            raise UsageError(f"clean_fit_fraction must lie between 0 and 1, not {self.clean_fit_fraction}")

        if not 0 < self.correct_until <= 1:
            raise UsageError(f"correct_until is a share of the epochs, above 0 and at most 1, not {self.correct_until}")

    def check_schedule(self) -> None:
        """Refuses a loop that ends before its first correction."""
        if self.warm_up >= self.epochs:
            raise UsageError(
                f"no label would ever be corrected: warm_up is {self.warm_up} and epochs only {self.epochs}; "
                "the first correction comes after warm_up epochs, so lower warm_up or raise epochs"
            )

    def corrects_after(self, epoch: int) -> bool:
        """Whether the labels are corrected after this many finished epochs; never after the last."""
        if not self.warm_up <= epoch < self.epochs or (epoch - self.warm_up) % self.correct_every:
            return False
        return epoch == self.warm_up or epoch <= self.correct_until * self.epochs  # the first one always

    def last_correction(self) -> int:
        """The number of finished epochs after which the labels are corrected for the last time."""
        return max((epoch for epoch in range(1, self.epochs) if self.corrects_after(epoch)), default=0)

    def of_half_networks(self) -> Config:
        """The settings of the half-networks: the whole schedule within the warm-up, without mixup or crops.

        They need no protection against memorising, because they only predict rows that they have not seen.
        """
        augment = "none" if self.augment == "crop-flip" else self.augment
        return replace(self, epochs=self.warm_up, mixup=0.0, augment=augment)

    def of_the_loop(self) -> Config:
        """The settings of the loop's own epochs: with half-networks, its warm-up is only up to the first correction."""
        mixup = self.mixup if self.augment == "none" or self.mixup_augmented else 0.0
        warm_up = self.warm_up if self.simulation == "posterior" else min(self.correct_every, max(self.epochs - 1, 1))
        return replace(self, mixup=mixup, warm_up=warm_up)

    def wants(self, name: str) -> bool:
        """Whether the correction network, or a candidate for it, uses this input."""
        return any(name in candidate.split("+") for candidate in self.corrector.inputs)
