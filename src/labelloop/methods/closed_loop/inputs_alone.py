"""q(y | x) from all learners that suit the data, combined as in Eq. 2 and 5; each predicts rows it has not learnt from.

Learners of the given labels (the half-networks, and for columns of numbers a discriminant and trees) are recalibrated
on the clean rows. Where the inputs are columns of numbers, learners of the clean rows alone join them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelloop.large_arrays import by_chunks, joined, soft_dtype, taken
from labelloop.methods.closed_loop.beliefs import beliefs, fit_beliefs
from labelloop.methods.closed_loop.combination import Weights, clean_loss, fit_simplex_weights, with_prior
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.learners.clean_rows import STRENGTHS, Scale, clean_forest, clean_logistic
from labelloop.methods.closed_loop.learners.columns import TABLE, column_scores, kind_of_inputs
from labelloop.seeds import stream
from labelloop.splits import FOLDS, deal
from labelloop.types import Correction, Floats, Labels, Problem

FOLDS_OF_MANY = 2
MANY_CLASSES = 100  # a learner has a number for every pair of classes, so with more classes there are fewer folds
PRIOR_ROWS = 5.0  # prior clean rows, split evenly among the learners of the given labels
MOST_SCORES = 50_000_000  # rows times classes: beyond this, only networks learn from the given labels

Values = NDArray[np.floating]
Says = Callable[[Values], Values]  # rows of inputs, or of log-probabilities, to P(y | x) [n, C]
Learner = Callable[[Values, Labels], Says]  # from clean rows and their labels


@dataclass(frozen=True)
class _Part:
    """One predictor of the true label.

    Attributes:
        clean: Its predictions for every clean row, learnt from the other folds [M, C].
        learn: Learns from all clean rows; called only for the best of several candidates.
        train: Its inputs for the noisy rows [N, any].
        of_given: Whether it learnt from given labels, so that clean rows only recalibrate it.
    """

    clean: Floats
    learn: Callable[[], Says]
    train: Values
    of_given: bool


def inputs_alone(problem: Problem, of_networks: Correction, config: Config, seed: int) -> tuple[Correction, Weights]:
    """q(y | x) of the noisy and of the clean rows, each clean row's learnt without it; and the weights [K].

    Args:
        problem: Training rows with given labels, and the clean rows.
        of_networks: log p(ỹ | x) of the half-networks.
        config: Settings; its `beliefs` choose the learners.
        seed: Deals the clean rows into folds.
    """
    labels, classes = problem.clean.clean_labels, problem.num_classes
    fold = deal(labels, stream(seed, "clean-folds"), FOLDS if classes <= MANY_CLASSES else FOLDS_OF_MANY)
    parts = [_cross_fitted(of_networks.train, of_networks.clean, labels, fold, _recalibrated)]
    if config.beliefs == "all" and (kind := kind_of_inputs(problem.train.inputs, config.normalise)) is not None:
        parts += list(_of_columns(problem, kind == TABLE, fold, seed))
    said = _keep_absent([part.clean for part in parts], labels)
    of_given = np.array([part.of_given for part in parts])  # [K]
    prior = PRIOR_ROWS * of_given / of_given.sum()
    weights = with_prior(fit_simplex_weights(said, labels), len(labels), prior)
    says = [part.learn() for part in parts]

    def mixed(rows: slice) -> Values:
        opinions = [say(part.train[rows]) for say, part in zip(says, parts, strict=True)]
        return _mix(_keep_absent(opinions, labels), weights)

    shape, width = (len(problem.train), classes), max(part.train.shape[1] for part in parts)
    return Correction(by_chunks(mixed, shape, soft_dtype(), width=width), _mix(said, weights)), weights


def _of_columns(problem: Problem, table: bool, fold: Labels, seed: int) -> Iterator[_Part]:
    """Learners for inputs that are columns of numbers."""
    inputs, labels, classes = problem.train.inputs, problem.clean.clean_labels, problem.num_classes
    picked = (taken(inputs, part.index) for part in (problem.train, problem.clean))
    rows = Correction(*(part.astype(np.float32, copy=False) for part in picked))
    everything, count = joined(rows.train, rows.clean), len(rows.train)
    if len(everything) * classes <= MOST_SCORES:
        given = np.concatenate([problem.train.labels, problem.clean.labels])
        for scores in column_scores(everything, given, classes, table, seed):
            yield _cross_fitted(scores[:count], scores[count:], labels, fold, _recalibrated)
    scale = Scale.of(everything)
    learners = [partial(clean_logistic, num_classes=classes, strength=each, scale=scale) for each in STRENGTHS]
    tried = [_cross_fitted(rows.train, rows.clean, labels, fold, learner) for learner in learners]
    yield min(tried, key=lambda part: clean_loss([part.clean], labels, np.ones(1)))
    if table:
        yield _cross_fitted(
            rows.train, rows.clean, labels, fold, partial(clean_forest, num_classes=classes, seed=seed % 2**31)
        )


def _recalibrated(log_p: Values, labels: Labels) -> Says:
    return partial(beliefs, coefficients=fit_beliefs(np.asarray(log_p, np.float64), labels))


def _cross_fitted(train: Values, clean: Values, labels: Labels, fold: Labels, learn: Learner) -> _Part:
    mine = [fold == k for k in range(fold.max() + 1)]
    said = [learn(clean[~each], labels[~each])(clean[each]) for each in mine]
    unseen = np.empty((len(labels), said[0].shape[1]), np.float32)
    for each, values in zip(mine, said, strict=True):
        unseen[each] = values
    return _Part(unseen, partial(learn, clean, labels), train, learn is _recalibrated)


def _keep_absent(said: Sequence[Values], labels: Labels) -> list[Values]:
    """Takes the probability of classes without a clean row from the first part, the networks."""
    absent = np.bincount(labels, minlength=said[0].shape[1]) == 0  # [C]
    if not absent.any():
        return list(said)
    aside = said[0] * absent
    others = [np.where(absent, 0, part) for part in said]
    left = 1 - aside.sum(axis=1, keepdims=True)
    return [aside + left * part / np.maximum(part.sum(axis=1, keepdims=True), 1e-12) for part in others]


def _mix(said: Sequence[Values], weights: Values) -> Floats:
    mixed = sum(weight * part for weight, part in zip(weights, said, strict=True))
    return np.asarray(mixed / np.sum(mixed, axis=1, keepdims=True), np.float32)
