"""Networks that predict rows they have not seen: two half-networks, each trained on half of the rows."""

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
class Halves:
    """The half that a row is in, 0 or 1. Network k learns from the rows of the other half, and predicts half k."""

    train: Labels  # [N]
    clean: Labels  # [M]

    @classmethod
    def dealt(cls, problem: Problem, seed: int) -> Halves:
        """Halves drawn at random; those of the clean rows have their share of every class."""
        return cls(
            stream(seed, "halves").permutation(len(problem.train)) % 2,
            deal(problem.clean.clean_labels, stream(seed, "clean-halves"), 2),
        )


@dataclass(frozen=True)
class Teaching:
    """What the half-networks learn.

    Attributes:
        targets: Soft labels of the training rows [N, C]; a row of zeros has none and is not learnt from.
        repeats: How often an epoch shows a clean row, with its clean label.
    """

    targets: Floats
    repeats: int


def cross_fit(
    problem: Problem,
    halves: Halves,
    teaching: Teaching,
    config: TrainingConfig,
    runtime: Runtime,
    networks: Sequence[TwoHeadClassifier] = (),
) -> tuple[list[TwoHeadClassifier], Correction]:
    """Two half-networks, and their log-probabilities of the rows that they have not seen, [N, C] and [M, C].

    Args:
        problem: Training rows and clean rows.
        halves: Who learns from which rows.
        teaching: What they learn.
        config: The whole schedule of a half-network.
        runtime: Device and seed.
        networks: Half-networks of the same halves to go on from; without them, from new weights.
    """
    parts = (problem.train, problem.clean)
    log_p = [zeros((len(rows), problem.num_classes)) for rows in parts]
    trained = []
    for k in range(2):
        start = networks[k] if networks else new_classifier(config, problem, integer(runtime.seed, "half", k))
        trained.append(_half_network(problem, halves, teaching, k, config, runtime, start))
        for rows, half, found in zip(parts, (halves.train, halves.clean), log_p, strict=True):
            mine = np.flatnonzero(half == k)
            if len(mine):
                logits = extract(trained[k], take(rows, mine), runtime).logits
                runtime.check_outputs(config.epochs, logits)
                put(found, mine, _log_p(logits))
    return trained, Correction(*log_p)


def _half_network(
    problem: Problem,
    halves: Halves,
    teaching: Teaching,
    k: int,
    config: TrainingConfig,
    runtime: Runtime,
    start: TwoHeadClassifier,
) -> TwoHeadClassifier:
    """A network taught by the targets and the clean rows of the other half."""
    mine = np.flatnonzero((halves.train != k) & teaching.targets.any(axis=1))
    clean = np.tile(np.flatnonzero(halves.clean != k), teaching.repeats)
    rows = together(take(problem.train, mine), take(problem.clean, clean))
    targets = joined(taken(teaching.targets, mine), one_hot(problem.clean.clean_labels[clean], problem.num_classes))
    model = runtime.prepare(deepcopy(start).requires_grad_(True))
    optimizer = new_optimizer(model, config)
    average = WeightAverage(model, optimizer, config.average_weights)
    with torch.random.fork_rng(devices=[]):
        for epoch in runtime.counted(config.epochs if len(rows) else 0, f"half-network {k + 1} of 2"):
            train_epoch(model, rows, targets, targets, 0.0, optimizer, config, runtime, epoch)
    return average.model


def _log_p(logits: Floats) -> Floats:
    """Log-probabilities, none of them below that of a rare event [n, C]."""
    return by_chunks(lambda some: np.maximum(log_softmax(logits[some], axis=1), np.log(FLOOR)), logits.shape)
