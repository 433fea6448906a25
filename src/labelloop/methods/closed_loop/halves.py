"""Two half-networks, each trained on half of the noisy rows, so that every row is predicted without its own label.

They are the warm-up, and take the place of the noisy head. They and the clean rows give an estimate of the noise, a
noisy label for every clean row, and a first correction of every noisy row, all before the loop begins.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax

from labelloop.large_arrays import by_chunks, is_on_disk, put, soft_dtype, zeros
from labelloop.methods.closed_loop.combination import Weights
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.inputs_alone import inputs_alone
from labelloop.methods.closed_loop.simulation import RowNoise, estimate_rate, estimate_row_noise, estimate_transition
from labelloop.methods.closed_loop.views import draw_labels
from labelloop.models import TwoHeadClassifier
from labelloop.seeds import integer, stream
from labelloop.training.averaging import WeightAverage
from labelloop.training.epoch import train_epoch
from labelloop.training.extract import extract
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer
from labelloop.training.targets import one_hot, take
from labelloop.types import MISSING, Correction, Floats, Labels, Problem, Rows

SAMPLE = 2000  # rows on which a half-network is evaluated after each epoch
NOISE_ROWS = 10_000  # rows for the estimate of row-dependent noise: more change little and take time
ROW_CLASSES = 60  # with more classes, the estimate of row-dependent noise takes minutes


@dataclass(frozen=True)
class HeldOut:
    """What is known before the loop begins, from networks that have not seen the row.

    Attributes:
        chances: P(ỹ | y, x) of the clean rows, the distribution of their noisy label [M, C].
        labels: A noisy label for every clean row: the real one where there is one, else drawn from `chances` [M].
        noisy_train: p(ỹ | x) of the noisy rows [N, C].
        noisy_clean: The same for the clean rows [M, C].
        train: P(y | x, ỹ) of the noisy rows, the first correction [N, C].
        clean: The same for the clean rows, given their noisy label [M, C].
        weights: The weight of each learner in q(y | x) [K].
        gap: The half-networks' agreement with labels they were trained on, minus that with the others.
    """

    chances: Floats
    labels: Labels
    noisy_train: Floats
    noisy_clean: Floats
    train: Floats
    clean: Floats
    weights: Weights
    gap: float

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All fields, as a checkpoint stores them."""
        found = {f"held_out_{field.name}": np.asanyarray(getattr(self, field.name)) for field in fields(self)}
        # Copies: the targets may be one of these arrays, and a safetensors file cannot hold shared memory twice. Large
        # arrays have files of their own.
        return {name: array if is_on_disk(array) else array.copy() for name, array in found.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> HeldOut | None:
        """What `to_arrays` stored, or None if it stored nothing."""
        if "held_out_chances" not in arrays:
            return None
        values: dict[str, Any] = {field.name: arrays[f"held_out_{field.name}"] for field in fields(cls)}
        return cls(**values | {"gap": float(values["gap"])})


def hold_out(problem: Problem, clean_fit: Labels, config: Config, runtime: Runtime) -> HeldOut:
    """Trains the half-networks, and estimates the noise from them.

    Args:
        problem: Training rows with given labels, and the clean rows.
        clean_fit: The clean rows whose pairs the estimate of the noise may use.
        config: Settings.
        runtime: Device and seed.
    """
    train, clean, seed = problem.train, problem.clean, runtime.seed
    half = stream(seed, "halves").permutation(len(train)) % 2  # [N]
    log_p = zeros((len(train), problem.num_classes), np.float64)
    log_p_clean, gaps = [], []
    for k in range(2):
        network, gap = _half_network(problem, half != k, k, config, runtime)
        put(log_p, np.flatnonzero(half == k), _log_p(network, take(train, half == k), runtime))
        log_p_clean.append(_log_p(network, clean, runtime))
        gaps.append(gap)
    on = Correction(log_p, np.log(np.exp(log_p_clean).mean(axis=0)))
    gap = float(np.mean(gaps))
    # With several processes, only the first one continues from here, and sends the others the result.
    return HeldOut(**runtime.from_first(lambda: vars(_from_networks(problem, on, gap, clean_fit, config, seed))))


def _from_networks(
    problem: Problem, on: Correction, gap: float, clean_fit: Labels, config: Config, seed: int
) -> HeldOut:
    """All that follows from log p(ỹ | x) of the half-networks."""
    train, clean, log_p = problem.train, problem.clean, on.train
    noisy_clean = np.exp(on.clean)  # [M, C]
    q, weights = inputs_alone(problem, on, config, seed)
    noise = _noise(problem, q, on, clean_fit, config)
    chances = noise.of_labels(on.clean, clean.clean_labels)  # [M, C]
    labels = np.where(clean.labels != MISSING, clean.labels, draw_labels(chances, stream(seed, "simulated-labels")))

    def corrected(rows: slice) -> np.ndarray:
        return noise.posterior(q.train[rows], log_p[rows], train.labels[rows])

    return HeldOut(
        chances=chances.astype(np.float32),
        labels=labels,
        noisy_train=by_chunks(lambda rows: np.exp(log_p[rows]), log_p.shape, soft_dtype()),
        noisy_clean=noisy_clean.astype(np.float32),
        train=by_chunks(corrected, log_p.shape, soft_dtype()),
        clean=noise.posterior(q.clean, on.clean, labels).astype(np.float32),
        weights=weights,
        gap=gap,
    )


def _noise(problem: Problem, q: Correction, on: Correction, clean_fit: Labels, config: Config) -> RowNoise:
    """The noise, estimated from the noisy rows and from the paired rows of clean_fit."""
    clean, given, classes = problem.clean, problem.train.labels, problem.num_classes
    paired = clean_fit[clean.labels[clean_fit] != MISSING]
    pairs = np.zeros((classes, classes))
    np.add.at(pairs, (clean.clean_labels[paired], clean.labels[paired]), 1)
    enough = (given != MISSING).sum() >= classes * classes  # as many as a matrix has entries
    estimate = estimate_transition if enough else estimate_rate
    transition = estimate(q.train, given, pairs=pairs)
    if config.simulation == "transition" or not enough or classes > ROW_CLASSES:
        return RowNoise(np.log(np.maximum(transition, 1e-12)), 0.0)
    rows = np.flatnonzero(given != MISSING)
    rows = stream(0, "noise-rows").permutation(rows)[:NOISE_ROWS]
    known = np.concatenate([q.train[rows], one_hot(clean.clean_labels[paired], classes)])
    labels = np.concatenate([given[rows], clean.labels[paired]])
    return estimate_row_noise(known, np.concatenate([on.train[rows], on.clean[paired]]), labels, start=transition)


def _half_network(
    problem: Problem, mine: np.ndarray, number: int, config: Config, runtime: Runtime
) -> tuple[TwoHeadClassifier, float]:
    """A network trained on some rows, from the epoch that predicted the labels of the others best; and its gap."""
    train, short = problem.train, config.of_half_networks()
    known = train.labels != MISSING
    rows = take(train, mine & known)
    rng = stream(runtime.seed, "half-sample", number)
    seen, unseen = (take(train, _some(part & known, rng)) for part in (mine, ~mine))
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
    agreement = [
        float((_log_p(kept, part, runtime).argmax(axis=1) == part.labels).mean()) if len(part) else 0.0
        for part in (seen, unseen)
    ]
    return kept, agreement[0] - agreement[1]


def _log_p(network: TwoHeadClassifier, rows: Rows, runtime: Runtime) -> np.ndarray:
    if not len(rows):
        return np.empty((0, network.head.out_features))
    logits = extract(network, rows, runtime).logits
    return by_chunks(lambda rows: log_softmax(logits[rows].astype(np.float64), axis=1), logits.shape, np.float64)


def _some(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A mask of at most SAMPLE of the rows in a mask."""
    chosen = np.zeros_like(mask)
    chosen[rng.permutation(np.flatnonzero(mask))[:SAMPLE]] = True
    return chosen
