"""The configuration of the paper's loop. Every ablation of the paper is a value here, never another code path."""

from __future__ import annotations

from dataclasses import dataclass, field

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.errors import UsageError
from labelloop.methods.closed_loop.corrector import CorrectorConfig

COMBINATIONS = ("convex", "latest")


@dataclass(frozen=True)
class Config(TrainingConfig):
    """The closed loop's settings. The defaults are the paper's; PAPER.md has the references.

    Attributes:
        noisy_loss_weight: λ of Eq. 1.
        warm_up: Epochs before the first correction.
        correct_every: Epochs between corrections.
        clean_fit_fraction: Share of the clean rows that train the correction network; the rest are clean_val.
        combination: "convex" (Eq. 2), or "latest": the newest correction alone.
        corrector: Settings of the correction network.
    """

    noisy_loss_weight: float = 0.5
    warm_up: int = 40
    correct_every: int = 5
    clean_fit_fraction: float = 0.8
    combination: str = "convex"
    corrector: CorrectorConfig = field(default_factory=CorrectorConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(
            self,
            counts=("warm_up", "correct_every"),
            not_negative=("noisy_loss_weight",),
            choices={"combination": COMBINATIONS},
        )
        if not 0 < self.clean_fit_fraction < 1:
            raise UsageError(f"clean_fit_fraction must lie between 0 and 1, not {self.clean_fit_fraction}")

    def check_schedule(self) -> None:
        """Refuses a loop that ends before its first correction."""
        if self.warm_up >= self.epochs:
            raise UsageError(
                f"no label would ever be corrected: warm_up is {self.warm_up} and epochs only {self.epochs}; "
                "the first correction comes after warm_up epochs, so lower warm_up or raise epochs"
            )

    def corrects_after(self, epoch: int) -> bool:
        """Whether the labels are corrected after this many finished epochs; never after the last."""
        return self.warm_up <= epoch < self.epochs and (epoch - self.warm_up) % self.correct_every == 0

    def wants(self, name: str) -> bool:
        """Whether the correction network, or a candidate for it, uses this input."""
        return any(name in candidate.split("+") for candidate in self.corrector.inputs)
