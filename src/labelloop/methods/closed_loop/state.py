"""The state of the loop from round to round, and how a checkpoint stores it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelloop.errors import DataError
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import Corrector
from labelloop.methods.closed_loop.first_labels import PREFIX, HeldOut
from labelloop.relabel.stacking import Weights, clean_loss
from labelloop.training.checkpoint import Checkpoint
from labelloop.types import Correction, Extracted, Floats, Labels, Rows

MOST_REPEATS = 4  # of a clean row in an epoch: with more, the rows are memorised
VIEWS = 3  # times as many where rows are augmented: every repeat is another view of the row
FIRST = "first_"  # prefix of the names under which the file of round 1 stores `first`


@dataclass
class LoopState:
    """What one round passes to the next.

    Attributes:
        targets: ŷ, the labels that the classifier is trained on [N, C].
        past: The corrections so far: past[k - 1] is (ȳ_k, ȳᵐ_k).
        rounds: A record of every correction.
        held_out: The half-networks' results from before the loop; None with the paper's simulation.
        first: The network's outputs for the clean rows in the first round, before any clean label could influence it.
    """

    targets: Floats
    past: list[Correction] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    first: Extracted | None = None
    held_out: HeldOut | None = None

    @property
    def weights(self) -> Weights | None:
        """ω of the last round, or None before the first."""
        return np.array(self.rounds[-1]["weights"]) if self.rounds else None

    @property
    def next_round(self) -> int:
        return len(self.past) + 1

    def begin(self, held_out: HeldOut) -> None:
        """Stores the half-networks' results; their labels are the first targets."""
        self.held_out, self.targets = held_out, held_out.train

    def components(self, base: Correction) -> list[Correction | HeldOut]:
        """All that Eq. 2 combines: ȳ_0, ..., ȳ_t. With half-networks ȳ_0 is their correction instead of `base`."""
        return [self.held_out or base, *self.past]

    def prior(self, config: Config) -> Weights:
        """Prior rows for each of `components`: only for ȳ_0 [K]."""
        return config.combination_prior * np.eye(1 + len(self.past))[0]

    def repeats(self, clean: Rows, config: Config) -> int:
        """How often an epoch repeats a clean row: as configured, or by the accuracy of the clean rows' first labels."""
        if config.clean_row_repeats or self.held_out is None:
            return config.clean_row_repeats or 1
        first = self.held_out.clean  # [M, C]
        worth = rows_that_tell_as_much(int((first.argmax(axis=1) == clean.clean_labels).sum()), *first.shape)
        return worth if config.augment == "none" else VIEWS * worth

    def component_names(self) -> list[str]:
        """The names of `components`, for the record."""
        first = "first labels" if self.held_out else "given label"
        return [first, *(f"correction {k}" for k in range(1, len(self.past) + 1))]

    def close_round(
        self,
        epoch: int,
        targets: Floats,
        weights: Weights,
        val: list[Floats],
        val_labels: Labels,
        corrector: Corrector,
    ) -> None:
        """Stores the new targets and records the round.

        Args:
            epoch: The epoch that it followed.
            targets: ŷ_{t+1} [N, C].
            weights: ω_t [K].
            val: Each component's soft labels of clean_val, [K] arrays of [V, C].
            val_labels: The clean labels of clean_val [V].
            corrector: The correction network of this round.
        """
        labelled = self.targets.any(axis=1)
        moved = float((labelled & (targets.argmax(axis=1) != self.targets.argmax(axis=1))).mean())
        self.targets = targets
        self.rounds.append({
            "round": len(self.past),
            "epoch": epoch,
            "components": self.component_names(),
            "weights": weights.tolist(),
            "clean_val_loss": clean_loss(val, val_labels, weights),
            "component_losses": [clean_loss([v], val_labels, np.ones(1)) for v in val],
            "corrector": corrector.summary(),
            "labels_moved": moved,
        })  # fmt: skip

    def to_save(self) -> dict[str, Any]:
        """The state as `Runtime.save` takes it. Arrays of earlier rounds are already on disk and not written again."""
        past = [{"train": p.train, "clean": p.clean} for p in self.past]
        if past and self.first is not None:
            past[0] |= {FIRST + name: value.copy() for name, value in vars(self.first).items()}  # their own bytes
        arrays = {"targets": self.targets}
        held_out, guard = self.held_out.to_arrays() if self.held_out else ({}, None)
        return {"arrays": arrays | held_out, "past": past, "values": {"rounds": self.rounds, "guard": guard}}

    @classmethod
    def restored(cls, saved: Checkpoint | None, targets: Floats) -> LoopState:
        """The state of a checkpoint, or without one an initial state with these targets."""
        if saved is None:
            return cls(targets)
        past = [Correction(p["train"], p["clean"]) for p in saved.past]
        first = {k.removeprefix(FIRST): v for p in saved.past[:1] for k, v in p.items() if k.startswith(FIRST)}
        guard = saved.values.get("guard")
        halves = any(name.startswith(PREFIX) for name in saved.arrays)
        if halves and (guard is None or "start" in saved.arrays):
            raise DataError(
                "an older version of LabelLoop began this run, and this one cannot continue from its half-networks; "
                "run it again with --overwrite (overwrite=True), or resume it with the version that began it"
            )
        held_out = None if guard is None else HeldOut.from_arrays(saved.arrays, guard)
        extracted = Extracted(**first) if first else None
        return cls(saved.arrays["targets"], past, saved.values["rounds"], extracted, held_out)


def rows_that_tell_as_much(right: int, rows: int, num_classes: int) -> int:
    """How many rows with labels of this accuracy are worth one clean row, as a whole number from 1 to MOST_REPEATS.

    If a label is right with probability a and otherwise uniform over the other classes, then
    P(label | x) = α q(y | x) + (1 - α) / C with α = (a C - 1) / (C - 1). The signal in a row is α times as strong and
    its variance about the same, so it takes 1 / α² rows. Laplace's rule estimates a.

    Args:
        right: Rows whose label was right.
        rows: All rows that were compared.
        num_classes: C.
    """
    chance = (right + 1) / (rows + 2)
    signal = max((chance * num_classes - 1) / (num_classes - 1), 0.0)
    return MOST_REPEATS if signal**2 * MOST_REPEATS <= 1 else int(1 / signal**2)
