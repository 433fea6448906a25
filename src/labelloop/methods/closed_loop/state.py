"""What the rounds of the loop leave behind, and how a checkpoint holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelloop.large_arrays import by_chunks
from labelloop.methods.closed_loop.combination import Weights, clean_loss, combine, fit_simplex_weights, with_prior
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import Corrector
from labelloop.methods.closed_loop.halves import HeldOut
from labelloop.training.checkpoint import Checkpoint
from labelloop.training.targets import one_hot
from labelloop.types import Correction, Extracted, Floats, Labels, Rows

MOST_REPEATS = 4  # of a clean row in an epoch: more of them are memorised
FIRST = "first_"  # begins the names under which the file of round 1 keeps `first`


@dataclass
class LoopState:
    """What one round hands to the next.

    Attributes:
        targets: ŷ, the labels that the classifier is trained on [N, C].
        past: The corrections so far: past[k - 1] is (ȳ_k, ȳᵐ_k).
        rounds: A record of every correction.
        held_out: What half-networks found before the loop began; None with the paper's simulation.
        first: What the network of the first round said of the clean rows: no clean label had reached it yet.
        start: The weights of the first targets: of the given labels, and of the half-networks where there are any.
    """

    targets: Floats
    past: list[Correction] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    first: Extracted | None = None
    held_out: HeldOut | None = None
    start: Weights = field(default_factory=lambda: np.ones(1))

    @property
    def weights(self) -> Weights | None:
        """ω of the last round, or None before the first."""
        return np.array(self.rounds[-1]["weights"]) if self.rounds else None

    @property
    def next_round(self) -> int:
        return len(self.past) + 1

    def begin(self, held_out: HeldOut, noisy: Floats, clean_labels: Labels, config: Config) -> None:
        """Takes over what the half-networks found; the first targets are given labels and theirs, combined by Eq. 5.

        All clean rows judge them: what the half-networks say of a clean row was formed without it.
        """
        self.held_out = held_out
        given, unlabelled = noisy, np.flatnonzero(~noisy.any(axis=1))
        if len(unlabelled):  # such a row has only theirs
            given = by_chunks(lambda rows: noisy[rows], noisy.shape)
            given[unlabelled] = held_out.train[unlabelled]
        base = Correction(given, one_hot(held_out.labels, noisy.shape[1]))
        components = self.components(base)
        best = fit_simplex_weights([component.clean for component in components], clean_labels)
        self.start = with_prior(best, len(clean_labels), config.combination_prior * np.full(2, 0.5))
        self.targets = combine([component.train for component in components], self.start)

    def components(self, base: Correction) -> list[Correction | HeldOut]:
        """All that Eq. 2 combines: ȳ_0, what the half-networks say, and ȳ_1, ..., ȳ_t."""
        return [base, *([self.held_out] if self.held_out else []), *self.past]

    def prior(self, config: Config) -> Weights:
        """Rows that speak for each of `components` before any of clean_val is seen: for those of the start [K]."""
        return config.combination_prior * np.append(self.start, np.zeros(len(self.past)))

    def repeats(self, clean: Rows, config: Config) -> int:
        """How often an epoch shows a clean row: as configured, or as the first labels of the clean rows suggest."""
        if config.clean_row_repeats or self.held_out is None:
            return config.clean_row_repeats or 1
        given = one_hot(self.held_out.labels, self.held_out.clean.shape[1])
        first = combine([given, self.held_out.clean], self.start)  # [M, C], formed without the row's clean label
        return rows_that_tell_as_much(int((first.argmax(axis=1) == clean.clean_labels).sum()), *first.shape)

    def component_names(self) -> list[str]:
        """What `components` are, for the record."""
        held_out = ["half-networks"] if self.held_out else []
        return ["given label", *held_out, *(f"correction {k}" for k in range(1, len(self.past) + 1))]

    def close_round(
        self,
        epoch: int,
        targets: Floats,
        weights: Weights,
        val: list[Floats],
        val_labels: Labels,
        corrector: Corrector,
    ) -> None:
        """Takes over the new targets and records the round.

        Args:
            epoch: After which epoch it was.
            targets: ŷ_{t+1} [N, C].
            weights: ω_t [K].
            val: What each component says of clean_val, [K] arrays of [V, C].
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
        arrays = {"targets": self.targets, "start": self.start}
        arrays |= self.held_out.to_arrays() if self.held_out else {}
        return {"arrays": arrays, "past": past, "values": {"rounds": self.rounds}}

    @classmethod
    def restored(cls, saved: Checkpoint | None, targets: Floats) -> LoopState:
        """The state of a checkpoint; without one the first state, with these targets."""
        if saved is None:
            return cls(targets)
        past = [Correction(p["train"], p["clean"]) for p in saved.past]
        first = {k.removeprefix(FIRST): v for p in saved.past[:1] for k, v in p.items() if k.startswith(FIRST)}
        held_out = HeldOut.from_arrays(saved.arrays)
        extracted = Extracted(**first) if first else None
        start = saved.arrays["start"]
        return cls(saved.arrays["targets"], past, saved.values["rounds"], extracted, held_out, start)


def rows_that_tell_as_much(right: int, rows: int, num_classes: int) -> int:
    """How many rows with such labels tell as much as one with its clean label, in whole rows, 1 to MOST_REPEATS.

    If a label is right with chance a and else any other class alike, P(label | x) = α q(y | x) + (1 - α) / C with
    α = (a C - 1) / (C - 1). The signal in a row is α times as strong and its noise about the same, so 1 / α² of them
    tell as much. Laplace's rule gives a.

    Args:
        right: Rows whose label was right.
        rows: All rows that were looked at.
        num_classes: C.
    """
    chance = (right + 1) / (rows + 2)
    signal = max((chance * num_classes - 1) / (num_classes - 1), 0.0)
    return MOST_REPEATS if signal**2 * MOST_REPEATS <= 1 else int(1 / signal**2)
