"""Cross-entropy, the simple baselines: on noisy rows, on clean rows, on both, or on noisy rows and then clean ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.splits import one_hot, together
from labelloop.training.epoch import train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_model
from labelloop.types import Fitted, Floats, Problem, Rows


@dataclass(frozen=True)
class Config(TrainingConfig):
    """No settings beyond network, optimiser and schedule."""


@dataclass(frozen=True)
class FineTuneConfig(TrainingConfig):
    """Cross-entropy on the noisy rows, then on the clean rows.

    Attributes:
        fine_tune_epochs: Epochs on the clean rows, after `epochs` on the noisy ones.
        fine_tune_learning_rate: Their learning rate.
    """

    fine_tune_epochs: int = 20
    fine_tune_learning_rate: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, counts=("fine_tune_epochs",))


def fit_noisy(problem: Problem, config: TrainingConfig, runtime: Runtime) -> Fitted:
    """On the training rows with their given labels. The clean rows are not used."""
    return _fit(problem, _noisy(problem), config, runtime)


def fit_clean(problem: Problem, config: TrainingConfig, runtime: Runtime) -> Fitted:
    """On the clean rows alone, repeated until an epoch has as many steps as one over the training rows."""
    rows, targets = _clean(problem)
    again = np.resize(np.arange(len(rows)), max(len(problem.train), len(rows)))
    return _fit(problem, (_take(rows, again), targets[again]), config, runtime)


def fit_both(problem: Problem, config: TrainingConfig, runtime: Runtime) -> Fitted:
    """On the training rows with their given labels and the clean rows with their clean ones."""
    (noisy, noisy_targets), (clean, clean_targets) = _noisy(problem), _clean(problem)
    return _fit(problem, (together(noisy, clean), np.concatenate([noisy_targets, clean_targets])), config, runtime)


def fit_fine_tune(problem: Problem, config: FineTuneConfig, runtime: Runtime) -> Fitted:
    """On the training rows with their given labels, then on the clean rows at a lower learning rate."""
    return _fit(problem, _noisy(problem), config, runtime, config.fine_tune_epochs)


def _fit(
    problem: Problem, stage: tuple[Rows, Floats], config: TrainingConfig, runtime: Runtime, fine_tune_epochs: int = 0
) -> Fitted:
    given = one_hot(problem.train.labels, problem.num_classes)  # returned unchanged
    model, optimizer, average = new_model(config, problem, runtime)
    runtime.restore(model, optimizer, average)
    for epoch in runtime.epochs(config.epochs + fine_tune_epochs):
        rows, targets, schedule = *stage, config
        if epoch > config.epochs:
            assert isinstance(config, FineTuneConfig)
            rows, targets = _clean(problem)
            schedule = replace(config, learning_rate=config.fine_tune_learning_rate, learning_rate_drops=())
        with runtime.phase("train"):
            loss = train_epoch(model, rows, targets, targets, 0.0, optimizer, schedule, runtime, epoch)
        runtime.record(epoch, average.model, problem, given, {"loss": loss})
        runtime.save(epoch, model, optimizer, average=average)
    return Fitted(average.model, given, (), "epoch limit")


def _noisy(problem: Problem) -> tuple[Rows, Floats]:
    return problem.train, one_hot(problem.train.labels, problem.num_classes)


def _clean(problem: Problem) -> tuple[Rows, Floats]:
    return problem.clean, one_hot(problem.clean.clean_labels, problem.num_classes)


def _take(rows: Rows, position: np.ndarray) -> Rows:
    return replace(
        rows,
        index=rows.index[position],
        labels=rows.labels[position],
        clean_labels=rows.clean_labels[position],
        extra=None,
    )
