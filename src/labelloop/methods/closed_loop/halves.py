"""Two half-networks, each trained on half of the noisy rows, so that every row is predicted without its own label.

All that the other half decides is which epoch of a network is kept.
They are the warm-up, and take the place of the noisy head. What they predict gives a first correction of every row, an
estimate of the noise, and a noisy label for every clean row, all before the loop begins (first_labels.py).
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from scipy.special import log_softmax

from labelloop.large_arrays import by_chunks, put, zeros
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.first_labels import HeldOut, first_labels
from labelloop.models import TwoHeadClassifier
from labelloop.relabel.calibration import FLOOR
from labelloop.seeds import integer, stream
from labelloop.splits import one_hot, take
from labelloop.training.averaging import WeightAverage
from labelloop.training.epoch import extract, train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer
from labelloop.types import MISSING, Correction, Floats, Problem, Rows

SAMPLE = 1000  # rows on which a half-network is evaluated after each epoch


def hold_out(problem: Problem, config: Config, runtime: Runtime) -> HeldOut:
    """Trains the half-networks, and corrects every label once from what they predict.

    Args:
        problem: Training rows with given labels, and the clean rows.
        config: Settings.
        runtime: Device and seed.
    """
    log_p = half_networks(problem, config, runtime)

    def made() -> HeldOut:
        with runtime.clock("correcting labels"):
            return first_labels(problem, log_p, config, runtime.seed)

    if runtime.ranks.count == 1:
        return made()
    return HeldOut.from_arrays(*runtime.from_first(lambda: made().to_arrays()))  # made by the first process for all


def half_networks(problem: Problem, config: Config, runtime: Runtime) -> Correction:
    """log p(ỹ | x) of every row, each from one network that has not seen it; clean rows train neither."""
    parts = (problem.train, problem.clean)
    halves = [
        stream(runtime.seed, name).permutation(len(rows)) % 2
        for name, rows in zip(("halves", "clean-halves"), parts, strict=True)
    ]
    log_p = [zeros((len(rows), problem.num_classes)) for rows in parts]
    for k in range(2):
        network = _half_network(problem, halves[0] != k, k, config, runtime)
        for rows, half, found in zip(parts, halves, log_p, strict=True):
            put(found, np.flatnonzero(half == k), _log_p(network, take(rows, half == k), runtime))
    return Correction(*log_p)


def _half_network(
    problem: Problem, mine: np.ndarray, number: int, config: Config, runtime: Runtime
) -> TwoHeadClassifier:
    """A network trained on some rows, from the epoch that predicted the labels of the others best."""
    train, short = problem.train, config.of_half_networks()
    known = train.labels != MISSING
    rows = take(train, mine & known)
    others = stream(runtime.seed, "half-sample", number).permutation(np.flatnonzero(~mine & known))[:SAMPLE]
    unseen = take(train, np.sort(others))
    targets = one_hot(rows.labels, problem.num_classes)
    model = runtime.prepare(new_classifier(short, problem, integer(runtime.seed, "half", number)))
    optimizer = new_optimizer(model, short)
    average = WeightAverage(model, optimizer, config.average_weights)
    best, kept = np.inf, average.model
    with torch.random.fork_rng(devices=[]):
        for epoch in runtime.counted(short.epochs if len(rows) else 0, f"half-network {number + 1} of 2"):
            train_epoch(model, rows, targets, targets, 0.0, optimizer, short, runtime, epoch)
            log_p = _log_p(average.model, unseen, runtime)
            loss = -log_p[np.arange(len(unseen)), unseen.labels].mean() if len(unseen) else -epoch
            if loss < best:
                best, kept = loss, deepcopy(average.model)
    return kept


def _log_p(network: TwoHeadClassifier, rows: Rows, runtime: Runtime) -> Floats:
    if not len(rows):
        return np.empty((0, network.head.out_features), np.float32)
    logits, floor = extract(network, rows, runtime).logits, np.log(FLOOR)
    return by_chunks(lambda some: np.maximum(log_softmax(logits[some], axis=1), floor), logits.shape)
