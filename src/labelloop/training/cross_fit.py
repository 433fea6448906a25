"""Networks that predict rows they have not seen: one for every fold of the rows, trained on the other folds."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_softmax

from labelloop.config.base import TrainingConfig
from labelloop.large_arrays import by_chunks, joined, put, taken, zeros
from labelloop.models import TwoHeadClassifier
from labelloop.seeds import integer, stream
from labelloop.splits import deal, one_hot, take, together
from labelloop.training.averaging import WeightAverage
from labelloop.training.epoch import extract, train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer
from labelloop.types import FLOOR, Correction, Floats, Labels, Problem


@dataclass(frozen=True)
class Folds:
    """The fold that a row is in. Network k learns from the rows of the other folds, and predicts fold k.

    Attributes:
        train: Of the training rows [N].
        clean: Of the clean rows [M].
        count: K.
    """

    train: Labels
    clean: Labels
    count: int

    @classmethod
    def dealt(cls, problem: Problem, seed: int, count: int) -> Folds:
        """Folds drawn at random; those of the clean rows have their share of every class."""
        return cls(
            stream(seed, "halves").permutation(len(problem.train)) % count,
            deal(problem.clean.clean_labels, stream(seed, "clean-halves"), count),
            count,
        )

    def taught(self, k: int) -> Labels:
        """The training rows that network k learns from, ascending."""
        return np.flatnonzero(self.train != k)


@dataclass(frozen=True)
class Teaching:
    """What the networks learn.

    Attributes:
        targets: For every network, soft labels of the rows that it learns from, [rows, C] each; a row of zeros has none
            and is not learnt from.
        repeats: How often an epoch shows a clean row, with its clean label.
    """

    targets: Sequence[Floats]
    repeats: int


def cross_fit(
    problem: Problem,
    folds: Folds,
    teaching: Teaching,
    config: TrainingConfig,
    runtime: Runtime,
    networks: Sequence[TwoHeadClassifier] = (),
) -> tuple[list[TwoHeadClassifier], Correction]:
    """A network for every fold, and their log-probabilities of the rows that they have not seen, [N, C] and [M, C].

    Args:
        problem: Training rows and clean rows.
        folds: Who learns from which rows.
        teaching: What they learn.
        config: The whole schedule of a network.
        runtime: Device and seed.
        networks: Networks of the same folds to go on from; without them, from new weights.
    """
    parts = (problem.train, problem.clean)
    log_p = [zeros((len(rows), problem.num_classes)) for rows in parts]
    trained = []
    for k in range(folds.count):
        start = networks[k] if networks else new_classifier(config, problem, integer(runtime.seed, "half", k))
        trained.append(_network(problem, folds, teaching, k, config, runtime, start))
        for rows, fold, found in zip(parts, (folds.train, folds.clean), log_p, strict=True):
            mine = np.flatnonzero(fold == k)
            if len(mine):
                logits = extract(trained[k], take(rows, mine), runtime).logits
                runtime.check_outputs(config.epochs, logits)
                put(found, mine, _log_p(logits))
    return trained, Correction(*log_p)


def _network(
    problem: Problem,
    folds: Folds,
    teaching: Teaching,
    k: int,
    config: TrainingConfig,
    runtime: Runtime,
    start: TwoHeadClassifier,
) -> TwoHeadClassifier:
    """A network taught by the targets and the clean rows of all folds but one."""
    soft = teaching.targets[k]
    told = np.flatnonzero(soft.any(axis=1))
    clean = np.tile(np.flatnonzero(folds.clean != k), teaching.repeats)
    rows = together(take(problem.train, folds.taught(k)[told]), take(problem.clean, clean))
    targets = joined(taken(soft, told), one_hot(problem.clean.clean_labels[clean], problem.num_classes))
    model = runtime.prepare(deepcopy(start).requires_grad_(True))
    optimizer = new_optimizer(model, config)
    average = WeightAverage(model, optimizer, config.average_weights)
    with torch.random.fork_rng(devices=[]):
        epochs = config.epochs if len(rows) else 0
        for epoch in runtime.counted(epochs, f"cross-fitted network {k + 1} of {folds.count}"):
            train_epoch(model, rows, targets, targets, 0.0, optimizer, config, runtime, epoch)
    return average.model


def _log_p(logits: Floats) -> Floats:
    """Log-probabilities, none of them below that of a rare event [n, C]."""
    return by_chunks(lambda some: np.maximum(log_softmax(logits[some], axis=1), np.log(FLOOR)), logits.shape)
