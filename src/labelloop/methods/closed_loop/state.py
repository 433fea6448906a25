"""The state of the loop from round to round, and how a checkpoint stores it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelloop.errors import DataError
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import Corrector
from labelloop.relabel.stacking import Weights, clean_loss
from labelloop.training.checkpoint import Checkpoint
from labelloop.types import Correction, Extracted, Floats, Labels

FIRST = "first_"  # prefix of the names under which the file of round 1 stores `first`
FEATURES = "features_"  # prefix of those under which the file of a round stores its features


@dataclass(frozen=True)
class History:
    """What earlier rounds left about some rows: features [K] of [N, D], and corrected labels [K] of [N, C]."""

    features: list[Floats]
    labels: list[Floats]


@dataclass
class LoopState:
    """What one round passes to the next.

    Attributes:
        targets: ŷ, the labels that the classifier is trained on [N, C].
        past: The corrections so far: past[k - 1] is (ȳ_k, ȳᵐ_k).
        features: The features of every round so far, z_k and zᵐ_k; kept only where the correction network wants them.
        rounds: A record of every correction.
        first: The network's outputs for the clean rows in the first round, before any clean label could influence it.
    """

    targets: Floats
    past: list[Correction] = field(default_factory=list)
    features: list[Correction] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    first: Extracted | None = None

    @property
    def weights(self) -> Weights | None:
        """ω of the last round, or None before the first."""
        return np.array(self.rounds[-1]["weights"]) if self.rounds else None

    @property
    def next_round(self) -> int:
        return len(self.past) + 1

    def history_of(self, rows: str) -> History:
        """What earlier rounds left about the rows "train" or "clean"."""
        earlier = self.features[: len(self.past)]
        return History([getattr(one, rows) for one in earlier], [getattr(one, rows) for one in self.past])

    def look(self, on_train: Extracted, on_clean: Extracted, config: Config) -> None:
        """Keeps what the network says of the clean rows in the first round, and features where they are wanted."""
        self.first = self.first or on_clean
        if config.wants("all_features"):
            self.features.append(Correction(on_train.features, on_clean.features))

    def close_round(
        self, epoch: int, targets: Floats, weights: Weights, val: list[Floats], val_labels: Labels, corrector: Corrector
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
            "components": ["given label", *(f"correction {k}" for k in range(1, len(self.past) + 1))],
            "weights": weights.tolist(),
            "clean_val_loss": clean_loss(val, val_labels, weights),
            "component_losses": [clean_loss([v], val_labels, np.ones(1)) for v in val],
            "corrector": corrector.summary(),
            "labels_moved": moved,
        })  # fmt: skip

    def to_save(self) -> dict[str, Any]:
        """The state as `Runtime.save` takes it. Arrays of earlier rounds are already on disk and not written again."""
        past = [{"train": p.train, "clean": p.clean} for p in self.past]
        for kept, seen in zip(past, self.features, strict=False):
            kept |= {FEATURES + "train": seen.train, FEATURES + "clean": seen.clean}
        if past and self.first is not None:
            past[0] |= {FIRST + name: value.copy() for name, value in vars(self.first).items()}  # their own bytes
        return {"arrays": {"targets": self.targets}, "past": past, "values": {"rounds": self.rounds}}

    @classmethod
    def restored(cls, saved: Checkpoint | None, targets: Floats) -> LoopState:
        """The state of a checkpoint, or without one an initial state with these targets."""
        if saved is None:
            return cls(targets)
        if any(name.startswith("held_out_") for name in saved.arrays):
            raise DataError(
                "an older version of LabelLoop began this run with half-networks inside the loop, which this one cannot"
                " continue; run it again with --overwrite (overwrite=True), or resume it with the version that began it"
            )
        past = [Correction(p["train"], p["clean"]) for p in saved.past]
        features = [
            Correction(p[FEATURES + "train"], p[FEATURES + "clean"]) for p in saved.past if FEATURES + "train" in p
        ]
        first = {k.removeprefix(FIRST): v for p in saved.past[:1] for k, v in p.items() if k.startswith(FIRST)}
        extracted = Extracted(**first) if first else None
        return cls(saved.arrays["targets"], past, features, saved.values["rounds"], extracted)
