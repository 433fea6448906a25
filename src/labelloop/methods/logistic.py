"""One correction by logistic regression: the floor that any learned correction must beat.

A network is briefly trained on the noisy labels. On the clean rows, a regression learns to predict the true label from
the noisy label and the network's log probabilities. It corrects every training label once, and a fresh network is
trained on the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.errors import DataError
from labelloop.splits import one_hot
from labelloop.training.epoch import extract, train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_model
from labelloop.types import MISSING, Fitted, Floats, Labels, Problem

LOWEST = -12.0  # log probabilities below this add no information and would dominate the regression


@dataclass(frozen=True)
class Config(TrainingConfig):
    """Network, optimiser and schedule of both networks, and the regression.

    Attributes:
        warm_up: Epochs on the noisy labels, before `epochs` on the corrected ones. Few, because the network predicts
            its own training rows, and is of no use once it has memorised their wrong labels.
        penalty: Weight of the regression's squared coefficients.
    """

    warm_up: int = 40
    penalty: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, counts=("warm_up",), positive=("penalty",))


def check(problem: Problem, config: Config) -> None:
    """Refuses clean rows of a single class, from which nothing can be learnt."""
    if len(np.unique(problem.clean.clean_labels)) < 2:
        raise DataError("the logistic corrector needs clean rows of at least two classes; verify more")


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains on the noisy labels, corrects them once, and trains a new network on the corrected ones.

    The clean rows train only the regression. It sees the noisy label of a paired row as given; for an unpaired row, the
    network's prediction of it (the simulated noisy posterior) takes its place. As that is a function of the inputs, the
    regression then learns less about the noise. Training rows without a label are treated in the same way, and get one.

    Args:
        problem: Training rows with noisy labels, and the clean rows.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    check(problem, config)
    targets = noisy = one_hot(problem.train.labels, problem.num_classes)  # [N, C]
    rounds: list[dict[str, Any]] = []
    model, optimizer, average = new_model(config, problem, runtime)
    if saved := runtime.restore(model, optimizer, average):
        targets, rounds = saved.arrays["targets"], saved.values["rounds"]

    for epoch in runtime.epochs(config.warm_up + config.epochs):
        if epoch == config.warm_up + 1:
            with runtime.phase("extract"):
                on_train = extract(average.model, problem.train, runtime).logits  # [N, C]
                on_clean = extract(average.model, problem.clean, runtime).logits  # [M, C]
                runtime.check_outputs(epoch - 1, on_train, on_clean)
            with runtime.phase("corrector"):
                targets = runtime.from_first(partial(corrected, problem, on_train, on_clean, config.penalty))
            moved = noisy.any(axis=1) & (targets.argmax(axis=1) != noisy.argmax(axis=1))
            rounds.append({"round": 1, "epoch": config.warm_up, "labels_moved": float(moved.mean())})
            model, optimizer, average = new_model(config, problem, runtime)  # independent of the first network
        step = (
            epoch if epoch <= config.warm_up else epoch - config.warm_up
        )  # each network has a full schedule of its own
        with runtime.phase("train"):
            loss = train_epoch(model, problem.train, targets, targets, 0.0, optimizer, config, runtime, step)
        stage = "warm-up" if epoch <= config.warm_up else "corrected labels"
        runtime.record(epoch, average.model, problem, targets, {"loss": loss, "stage": stage})
        runtime.save(epoch, model, optimizer, {"targets": targets}, values={"rounds": rounds}, average=average)
    return Fitted(average.model, targets, tuple(rounds), "epoch limit")


def corrected(problem: Problem, on_train: Floats, on_clean: Floats, penalty: float) -> Floats:
    """The soft labels of the training rows [N, C], from the logits of both kinds of rows."""
    regression = fit_regression(columns(problem.clean.labels, on_clean), problem.clean.clean_labels, penalty)
    return correct(regression, columns(problem.train.labels, on_train), problem.num_classes)


def columns(noisy_labels: Labels, logits: Floats) -> Floats:
    """Inputs of the regression: the noisy label of every row (or its prediction) and log probabilities [N, 2C]."""
    log_p = log_softmax(logits.astype(np.float64), axis=1)
    known = (noisy_labels != MISSING)[:, None]
    label = np.where(known, one_hot(noisy_labels, logits.shape[1]), np.exp(log_p))
    return np.concatenate([label, np.maximum(log_p, LOWEST)], axis=1)


def fit_regression(seen: Floats, labels: Labels, penalty: float) -> Any:
    """A multinomial logistic regression from `seen` [M, 2C] to the labels [M]."""
    from sklearn.linear_model import LogisticRegression  # half a second to import, so only when needed
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    with threadpool_limits(1):  # threads would only slow down so small a problem
        return LogisticRegression(C=1 / penalty, max_iter=2000).fit(seen, labels)


def correct(regression: Any, seen: Floats, num_classes: int) -> Floats:
    """Corrected soft labels [N, C]; a class without clean rows gets probability 0."""
    targets = np.zeros((len(seen), num_classes), np.float32)
    targets[:, regression.classes_] = regression.predict_proba(seen)
    return targets
