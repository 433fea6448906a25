"""The labels before the loop begins: instant correction of what the half-networks predict for rows they have not seen.

Where the inputs are columns of numbers, learners of the given labels and learners of the clean rows alone join them.
The same labels, after the guard, are what a run with `final_labels = "held_out"` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.special import softmax

from labelloop.large_arrays import by_chunks, is_on_disk, joined, put, taken
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.views import draw_labels
from labelloop.relabel.calibration import Inputs, side_by_side
from labelloop.relabel.learners import MOST_SCORES, TABLE, column_scores, kind_of_inputs
from labelloop.relabel.relabel import ENOUGH, guarded, relabel
from labelloop.relabel.stacking import combine, fit_simplex_weights, with_prior
from labelloop.seeds import stream
from labelloop.splits import one_hot
from labelloop.types import MISSING, Correction, Floats, HeldOutLabels, Labels, Problem

OWN = ("chances", "labels", "train", "clean")
PREFIX, OF_LABELS = "held_out_", "held_out_labels_"  # of the names under which a checkpoint stores the arrays


@dataclass(frozen=True)
class HeldOut:
    """What is known before the loop begins, from networks that have not seen the row.

    Attributes:
        chances: P(ỹ | y, x) of the clean rows, the distribution of their noisy label [M, C].
        labels: A noisy label for every clean row: the real one where there is one, else drawn from `chances` [M].
        train: ȳ_0, the first labels of the noisy rows: P(y | x, ỹ), without a guard, combined with the given label as
            in Eq. 5 [N, C]. Where there are fewer than ENOUGH clean rows, it is as if each missing one had chosen the
            learners' predictions of the given label as they are.
        clean: The same for the clean rows, given their noisy label; learnt without the row, but for the weight that
            combines it with the given label [M, C].
        returned: The labels after the guard, what they were made from, and how they do on clean rows.
    """

    chances: Floats
    labels: Labels
    train: Floats
    clean: Floats
    returned: HeldOutLabels

    @property
    def noisy_clean(self) -> Floats:
        """The half-networks' p(ỹ | x) of the clean rows [M, C]: theirs are the first of the scores."""
        return softmax(self.returned.clean_scores[:, : self.train.shape[1]], axis=1)

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


def _mixed(posterior: Floats, scores: Floats, share: float) -> Floats:
    """Soft labels [n, C], mixed with the geometric mean of all sources' predictions of the given label."""
    if share == 1:
        return posterior

    def uncalibrated(rows: slice) -> Floats:
        by_source = scores[rows].reshape(len(scores[rows]), -1, posterior.shape[1])
        return softmax(by_source.mean(axis=1), axis=1)

    return combine([posterior, by_chunks(uncalibrated, posterior.shape)], np.array([share, 1 - share]))


def _with_given(posterior: Correction, given: Correction, clean_labels: Labels, prior: float) -> Correction:
    """Soft labels and given labels [n, C], combined by Eq. 5; rows without a given label keep their soft one.

    All clean rows may judge here, because `posterior` of a clean row was made without it.

    Args:
        posterior: Soft labels.
        given: One-hot given labels; zeros where missing.
        clean_labels: Of the clean rows [M].
        prior: Prior rows of the weights, half of them for each side.
    """
    best = fit_simplex_weights([given.clean, posterior.clean], clean_labels)
    weights = with_prior(best, len(clean_labels), prior * np.full(2, 0.5))

    def mixed(some: Floats, labels: Floats) -> Floats:
        unlabelled = np.flatnonzero(~labels.any(axis=1))
        whole = by_chunks(lambda rows: labels[rows], labels.shape) if len(unlabelled) else labels
        put(whole, unlabelled, some[unlabelled])
        return combine([whole, some], weights)

    return Correction(mixed(posterior.train, given.train), mixed(posterior.clean, given.clean))


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
    sources, inputs = [taken(joined(log_p.train, log_p.clean), order)], None
    if config.beliefs != "networks" and (kind := kind_of_inputs(train.inputs, config.normalise)) is not None:
        rows = taken(train.inputs, index).astype(np.float32, copy=False)
        inputs = Inputs(rows, kind == TABLE, again=config.beliefs == "all")
        if len(index) * classes <= MOST_SCORES:
            sources += column_scores(rows, given, classes, inputs.table, seed)
    scores = side_by_side(sources, np.float32)
    by_row = config.simulation != "transition"
    answer = relabel(scores, given, verified, classes, seed, inputs=inputs, by_row=by_row)
    found, validation = guarded(answer), answer.noise.validation
    label_probs = np.mean(answer.noise.label_probs(), axis=0)  # [M, C], in the order of the table
    drawn = draw_labels(label_probs, stream(seed, "simulated-labels"))
    shown = np.where(validation.given != MISSING, validation.given, drawn)
    judged = np.searchsorted(validation.rows, of_clean)  # [M] among the judges
    chances, labels = label_probs[judged], shown[judged]
    share = min(len(clean) / ENOUGH, 1.0)
    posterior = Correction(
        _mixed(taken(answer.posterior.final, of_train), taken(scores, of_train), share),
        _mixed(answer.of_validation(shown)[judged], taken(scores, of_clean), share),
    )
    one_hots = Correction(one_hot(train.labels, classes), one_hot(labels, classes))
    first = _with_given(posterior, one_hots, clean.clean_labels, config.combination_prior)
    return HeldOut(
        chances=chances.astype(np.float32),
        labels=labels,
        train=first.train,
        clean=first.clean,
        returned=HeldOutLabels(
            train=taken(found.targets, of_train),
            cross_fitted=found.cross_fitted[of_clean],
            expected_right=found.expected_right[of_clean],
            train_scores=taken(scores, of_train),
            clean_scores=taken(scores, of_clean),
            guard=found.guard,
        ),
    )
