"""The labels before the loop begins: instant correction of what the half-networks predict for rows they have not seen.

Where the inputs are columns of numbers, learners of the given labels and learners of the clean rows alone join them.
The same labels, after the guard, are what a run with `final_labels = "held_out"` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.special import softmax

from labelloop.large_arrays import by_chunks, is_on_disk, joined, taken
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.instant.correction import answer_scores, guarded, side_by_side
from labelloop.methods.closed_loop.learners.columns import TABLE, column_scores, kind_of_inputs
from labelloop.methods.closed_loop.views import draw_labels
from labelloop.seeds import stream
from labelloop.types import MISSING, Correction, Floats, HeldOutLabels, Labels, Problem

MOST_SCORES = 50_000_000  # rows times classes: beyond this, only networks learn from the given labels
OWN = ("chances", "labels", "train", "clean")
PREFIX, OF_LABELS = "held_out_", "held_out_labels_"  # of the names under which a checkpoint stores the arrays


@dataclass(frozen=True)
class HeldOut:
    """What is known before the loop begins, from networks that have not seen the row.

    Attributes:
        chances: P(ỹ | y, x) of the clean rows, the distribution of their noisy label [M, C].
        labels: A noisy label for every clean row: the real one where there is one, else drawn from `chances` [M].
        train: P(y | x, ỹ) of the noisy rows, the first correction, without a guard [N, C].
        clean: The same for the clean rows, given their noisy label; learnt without the row [M, C].
        returned: The labels after the guard, what they were made from, and how they do on clean rows.
    """

    chances: Floats
    labels: Labels
    train: Floats
    clean: Floats
    returned: HeldOutLabels

    @property
    def noisy_train(self) -> Floats:
        """p(ỹ | x) of the noisy rows [N, C]."""
        return _posterior(self.returned.train_scores, self.train.shape[1])

    @property
    def noisy_clean(self) -> Floats:
        """The same for the clean rows [M, C]."""
        return _posterior(self.returned.clean_scores, self.train.shape[1])

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All arrays, as a checkpoint stores them, and the guard's record."""
        found = {PREFIX + name: np.asanyarray(getattr(self, name)) for name in OWN}
        found |= {OF_LABELS + each.name: getattr(self.returned, each.name) for each in _arrays()}
        # Copies: the targets may be one of these arrays, and a safetensors file cannot hold shared memory twice. Large
        # arrays have files of their own.
        arrays = {name: array if is_on_disk(array) else array.copy() for name, array in found.items()}
        return arrays, self.returned.guard

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], guard: dict[str, Any]) -> HeldOut:
        """What `to_arrays` returned; there may be other arrays among these."""
        returned = HeldOutLabels(**{each.name: arrays[OF_LABELS + each.name] for each in _arrays()}, guard=guard)
        own = {name: arrays[PREFIX + name] for name in OWN}
        return cls(**own, returned=returned)


def _arrays() -> list[Any]:
    return [each for each in fields(HeldOutLabels) if each.name != "guard"]


def _posterior(scores: Floats, num_classes: int) -> Floats:
    """The half-networks' p(ỹ | x): theirs are the first of the scores."""
    return by_chunks(lambda rows: softmax(scores[rows, :num_classes], axis=1), (len(scores), num_classes))


def first_labels(problem: Problem, log_p: Correction, config: Config, seed: int) -> HeldOut:
    """All that follows from the half-networks' predictions.

    Args:
        problem: Training rows with given labels, and the clean rows.
        log_p: log p(ỹ | x) of every row, from a network that has not seen it.
        config: Settings; its `beliefs` choose the learners, its `simulation` the model of the noise.
        seed: Deals rows into folds and draws simulated labels.
    """
    train, clean, classes = problem.train, problem.clean, problem.num_classes
    order = np.argsort(np.concatenate([train.index, clean.index]))  # as `refit` has them, in the order of the table
    index, given, verified = (
        np.concatenate([getattr(train, name), getattr(clean, name)])[order]
        for name in ("index", "labels", "clean_labels")
    )
    place = np.argsort(order)
    of_train, of_clean = place[: len(train)], place[len(train) :]
    sources, inputs, table = [taken(joined(log_p.train, log_p.clean), order)], None, False
    if config.beliefs == "all" and (kind := kind_of_inputs(train.inputs, config.normalise)) is not None:
        inputs, table = taken(train.inputs, index).astype(np.float32, copy=False), kind == TABLE
        if len(index) * classes <= MOST_SCORES:
            sources += column_scores(inputs, given, classes, table, seed)
    scores = side_by_side(sources, np.float32)
    answer = answer_scores(
        scores, given, verified, classes, seed, inputs=inputs, table=table, by_row=config.simulation != "transition"
    )
    found, judged = guarded(answer), np.searchsorted(answer.noise.judges.rows, of_clean)  # [M] among the judges
    chances = np.mean(answer.noise.laws(), axis=0)[judged]  # [M, C]
    labels = np.where(clean.labels != MISSING, clean.labels, draw_labels(chances, stream(seed, "simulated-labels")))
    in_order = np.empty_like(labels)
    in_order[judged] = labels
    return HeldOut(
        chances=chances.astype(np.float32),
        labels=labels,
        train=taken(answer.said.final, of_train),
        clean=answer.of_judges(in_order)[judged],
        returned=HeldOutLabels(
            train=taken(found.targets, of_train),
            cross_fitted=found.cross_fitted[of_clean],
            expected_right=found.expected_right[of_clean],
            train_scores=taken(scores, of_train),
            clean_scores=taken(scores, of_clean),
            guard=found.guard,
        ),
    )
