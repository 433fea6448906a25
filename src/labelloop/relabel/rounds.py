"""Rounds of relabelling: the rows that do not change from round to round, and a round as a component of Eq. 2 and 5.

The labels that train the network for a fold are corrected without the clean rows of that fold. Otherwise these rows
would influence their own predictions, look better predicted than noisy rows, and mislead Eq. 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import softmax

from labelloop.large_arrays import by_chunks, joined, taken
from labelloop.relabel.calibration import Inputs, side_by_side
from labelloop.relabel.learners import MOST_SCORES, TABLE, column_scores, kind_of_inputs
from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.noise_model import draw_labels
from labelloop.relabel.relabel import ENOUGH, Relabelled, given_or, relabel
from labelloop.relabel.stacking import combine
from labelloop.seeds import stream
from labelloop.splits import one_hot
from labelloop.types import MISSING, Correction, Floats, Labels, Problem

DRAWS = 10  # given labels that are drawn for a clean row that has none
FEWEST = 4  # clean rows: with fewer there is one round


@dataclass(frozen=True)
class Component:
    """The corrected labels of a round, ȳ_k and ȳᵐ_k.

    Attributes:
        of_networks: For every network, soft labels of the training rows that it learns from, [rows, C] each.
        of_clean: Soft labels of the clean rows with each of their shown labels [D M, C].
    """

    of_networks: list[Floats]
    of_clean: Floats


@dataclass(frozen=True)
class AllRows:
    """Training rows and clean rows in the order of the table, as `refit` has them.

    Attributes:
        given: Given labels [n], -1 where missing.
        clean: Clean labels [n], -1 where missing.
        num_classes: C.
        of_train: Positions of the training rows [N].
        of_clean: Positions of the clean rows [M].
        fold: The fold that a row is in [n].
        folds: How many there are.
        order: Positions among the training rows followed by the clean rows [n].
        learners: Out-of-fold log-probabilities of the given label, an array [n, C] for each learner of columns.
        inputs: The rows as numbers, where they are columns; else None.
        seed: Of the random streams.
        clean_fits: Learners of the clean rows alone, by the fold that is left out: the same in every round.
    """

    given: Labels
    clean: Labels
    num_classes: int
    of_train: Labels
    of_clean: Labels
    fold: Labels
    folds: int
    order: Labels
    learners: list[Array]
    inputs: Inputs | None
    seed: int
    clean_fits: dict[int, dict[Any, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, problem: Problem, fold: tuple[Labels, Labels], normalise: str, seed: int, *, learners: bool = True
    ) -> AllRows:
        """The rows of a problem; where they are columns of numbers, learners are cross-fitted on them once.

        Args:
            problem: Training rows and clean rows.
            fold: The fold that each training row and each clean row is in.
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
        of_train, of_clean, folds = place[: len(train)], place[len(train) :], np.concatenate(fold)[order]
        count = int(folds.max()) + 1
        return cls(given, verified, classes, of_train, of_clean, folds, count, order, found, inputs, seed)

    def scores(self, log_p: Correction) -> Floats:
        """The log-probabilities of the networks and of all learners side by side [n, E]."""
        return side_by_side([taken(joined(log_p.train, log_p.clean), self.order), *self.learners], np.float32)

    def relabel(self, scores: Floats, first_scores: Floats, without: int = MISSING) -> Relabelled:
        """Soft labels of all rows, before the guard.

        Args:
            scores: Of this round [n, E].
            first_scores: Those of the first round [n, E].
            without: The fold whose clean labels are not looked at; -1 for none.
        """
        return relabel(
            scores, self.given, np.where(self.fold == without, MISSING, self.clean), self.num_classes, self.seed,
            inputs=self.inputs, clean_fits=self.clean_fits.setdefault(without, {}), first_scores=first_scores,
        )  # fmt: skip

    def shown_labels(self, without: Sequence[Relabelled]) -> Labels:
        """A given label for every clean row: the real one, else some drawn from the noise of a round [D, M].

        Args:
            without: What a round found without the clean rows of each fold.
        """
        given, true, rng = self.given[self.of_clean], self.clean[self.of_clean], stream(self.seed, "shown-labels")
        probabilities = np.empty((len(true), self.num_classes))
        for k, found in enumerate(without):
            mine = self.fold[self.of_clean] == k
            probabilities[mine] = np.mean(found.noise.label_probs(self.of_clean[mine], true[mine]), axis=0)
        draws = DRAWS if (given == MISSING).any() else 1
        return np.stack([np.where(given != MISSING, given, draw_labels(probabilities, rng)) for _ in range(draws)])

    def component(self, without: Sequence[Relabelled], shown: Labels) -> Component:
        """A round as Eq. 2 and 5 take it.

        Where fewer than ENOUGH clean rows are learnt from, it is as if each missing one had chosen the scores as they
        are.

        Args:
            without: What the round found without the clean rows of each fold.
            shown: Given labels of the clean rows [D, M].
        """
        share = min(len(self.of_clean) * (1 - 1 / self.folds) / ENOUGH, 1.0)
        of_networks, of_clean = [], np.empty((*shown.shape, self.num_classes), np.float32)
        for k, found in enumerate(without):
            scores = found.noise.validation.observed.scores
            rows = self.of_train[self.fold[self.of_train] != k]
            of_networks.append(_mixed(taken(found.posterior.final, rows), taken(scores, rows), share))
            mine = np.flatnonzero(self.fold[self.of_clean] == k)
            rows = self.of_clean[mine]
            for labels, place in zip(shown, of_clean, strict=True):
                place[mine] = _mixed(found.if_given(rows, labels[mine]), scores[rows], share)
        return Component(of_networks, of_clean.reshape(-1, self.num_classes))

    def given_component(self, newest: Component, shown: Labels) -> Component:
        """The given labels as a component: one-hot, and what a round says where there is none.

        Args:
            newest: The round.
            shown: Given labels of the clean rows [D, M].
        """
        given, fold = self.given[self.of_train], self.fold[self.of_train]
        of_networks = [given_or(given[fold != k], soft) for k, soft in enumerate(newest.of_networks)]
        return Component(of_networks, one_hot(shown.ravel(), self.num_classes))

    def expected_accuracy(self, targets: Sequence[Floats]) -> float:
        """How often the likeliest labels are right if their probabilities are.

        Args:
            targets: For every network, soft labels of the rows that it learns from, [rows, C] each.
        """
        fold, chance = self.fold[self.of_train], np.zeros(len(self.of_train), np.float32)
        for k, soft in enumerate(targets):
            chance[fold != k] += soft.max(axis=1)
        return float(chance.mean(dtype=np.float64) / (self.folds - 1))

    def of_training_rows(self, found: Relabelled) -> Floats:
        """Soft labels of the training rows that all clean rows taught, in the same way [N, C]."""
        scores, share = found.noise.validation.observed.scores, min(len(self.of_clean) / ENOUGH, 1.0)
        return _mixed(taken(found.posterior.final, self.of_train), taken(scores, self.of_train), share)


def _mixed(posterior: Floats, scores: Floats, share: float) -> Floats:
    """Soft labels [n, C], mixed with the geometric mean of all learners' predictions of the given label."""
    if share == 1:
        return posterior

    def uncalibrated(rows: slice) -> Floats:
        by_learner = scores[rows].reshape(len(scores[rows]), -1, posterior.shape[1])
        return softmax(by_learner.mean(axis=1), axis=1)

    return combine([posterior, by_chunks(uncalibrated, posterior.shape)], np.array([share, 1 - share]))
