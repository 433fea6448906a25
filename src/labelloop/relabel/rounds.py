"""Rounds of relabelling: the rows that do not change from round to round, and a round as a component of Eq. 2 and 5."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import softmax

from labelloop.large_arrays import by_chunks, joined, taken
from labelloop.relabel.calibration import Inputs, side_by_side
from labelloop.relabel.learners import MOST_SCORES, TABLE, column_scores, kind_of_inputs
from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.noise_model import draw_labels
from labelloop.relabel.relabel import ENOUGH, Relabelled, relabel
from labelloop.relabel.stacking import combine
from labelloop.seeds import stream
from labelloop.types import MISSING, Correction, Floats, Labels, Problem

DRAWS = 10  # given labels that are drawn for a clean row that has none


@dataclass(frozen=True)
class AllRows:
    """Training rows and clean rows in the order of the table, as `refit` has them.

    Attributes:
        given: Given labels [n], -1 where missing.
        clean: Clean labels [n], -1 where missing.
        num_classes: C.
        of_train: Positions of the training rows [N].
        of_clean: Positions of the clean rows [M].
        order: Positions among the training rows followed by the clean rows [n].
        learners: Out-of-fold log-probabilities of the given label, an array [n, C] for each learner of columns.
        inputs: The rows as numbers, where they are columns; else None.
        seed: Of the random streams.
        clean_fits: Learners of the clean rows alone, which are the same in every round.
    """

    given: Labels
    clean: Labels
    num_classes: int
    of_train: Labels
    of_clean: Labels
    order: Labels
    learners: list[Array]
    inputs: Inputs | None
    seed: int
    clean_fits: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, normalise: str, seed: int, *, learners: bool = True) -> AllRows:
        """The rows of a problem; where they are columns of numbers, learners are cross-fitted on them once.

        Args:
            problem: Training rows and clean rows.
            normalise: As configured; it tells columns of a table from other arrays.
            seed: Of the random streams.
            learners: Whether to use learners besides the networks.
        """
        train, clean, classes = problem.train, problem.clean, problem.num_classes
        order = np.argsort(np.concatenate([train.index, clean.index]))
        index, given, verified = (
            np.concatenate([getattr(train, name), getattr(clean, name)])[order]
            for name in ("index", "labels", "clean_labels")
        )
        place, found, inputs = np.argsort(order), [], None
        kind = kind_of_inputs(train.inputs, normalise) if learners else None
        if kind is not None:
            inputs = Inputs(taken(train.inputs, index).astype(np.float32, copy=False), kind == TABLE)
            if len(index) * classes <= MOST_SCORES:
                found = column_scores(inputs.rows, given, classes, inputs.table, seed)
        return cls(given, verified, classes, place[: len(train)], place[len(train) :], order, found, inputs, seed)

    def scores(self, log_p: Correction) -> Floats:
        """The log-probabilities of the networks and of all learners side by side [n, E]."""
        return side_by_side([taken(joined(log_p.train, log_p.clean), self.order), *self.learners], np.float32)

    def relabel(self, scores: Floats) -> Relabelled:
        """Soft labels of all rows, before the guard."""
        return relabel(
            scores, self.given, self.clean, self.num_classes, self.seed, inputs=self.inputs, clean_fits=self.clean_fits
        )

    def shown_labels(self, first: Relabelled) -> Labels:
        """A given label for every validation row: the real one, else some drawn from the noise of a round [D, M]."""
        given, rng = first.noise.validation.given, stream(self.seed, "shown-labels")
        probabilities = np.mean(first.noise.label_probs(), axis=0)  # [M, C]
        draws = DRAWS if (given == MISSING).any() else 1
        return np.stack([np.where(given != MISSING, given, draw_labels(probabilities, rng)) for _ in range(draws)])

    def component(self, found: Relabelled, shown: Labels) -> Correction:
        """A round as Eq. 2 and 5 take it: of the training rows [N, C], of the validation rows with each label [D M, C].

        Where there are fewer than ENOUGH clean rows, it is as if each missing one had chosen the scores as they are.

        Args:
            found: What the round found.
            shown: Given labels of the validation rows [D, M].
        """
        scores, share = found.noise.validation.observed.scores, min(len(self.of_clean) / ENOUGH, 1.0)
        of_validation = taken(scores, found.noise.validation.rows)
        of_train = taken(found.posterior.final, self.of_train)
        return Correction(
            of_train if share == 1 else _mixed(of_train, taken(scores, self.of_train), share),
            np.concatenate([_mixed(found.of_validation(labels), of_validation, share) for labels in shown]),
        )


def _mixed(posterior: Floats, scores: Floats, share: float) -> Floats:
    """Soft labels [n, C], mixed with the geometric mean of all learners' predictions of the given label."""
    if share == 1:
        return posterior

    def uncalibrated(rows: slice) -> Floats:
        by_learner = scores[rows].reshape(len(scores[rows]), -1, posterior.shape[1])
        return softmax(by_learner.mean(axis=1), axis=1)

    return combine([posterior, by_chunks(uncalibrated, posterior.shape)], np.array([share, 1 - share]))
