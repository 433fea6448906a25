"""GLC: a network trained on noisy labels estimates the transition matrix on the clean rows; a second network uses it.

Hendrycks et al., "Using Trusted Data to Train Deep Networks on Labels Corrupted by Severe Noise", NeurIPS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional as F

from labelloop.config.base import TrainingConfig
from labelloop.models import TwoHeadClassifier
from labelloop.seeds import integer, stream
from labelloop.splits import labelled_rows, one_hot, together
from labelloop.training.averaging import WeightAverage
from labelloop.training.batches import rank_batches
from labelloop.training.epoch import class_mean, extract, forward_corrected_nll, need_every_class, train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_model, new_optimizer, seed_torch
from labelloop.types import Fitted, Floats, Problem, Rows


@dataclass(frozen=True)
class Config(TrainingConfig):
    """No settings of its own. Both stages take `epochs` epochs with the whole schedule, so it costs twice as much.

    Mixup applies to the second stage only.
    """


def check(problem: Problem, config: Config) -> None:
    """Refuses clean rows that lack a class."""
    need_every_class(problem)


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains on the noisy labels, estimates the transition matrix, and trains a new network with the corrected loss.

    Args:
        problem: Training rows with noisy labels, and clean rows of every class.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    check(problem, config)
    given = one_hot(problem.train.labels, problem.num_classes)  # returned unchanged: only the loss is corrected
    _, noisy = labelled_rows(problem.train)
    noisy_targets = one_hot(noisy.labels, problem.num_classes)
    model, optimizer, average = new_model(config, problem, runtime)
    transition: Floats | None = None
    if saved := runtime.restore(model, optimizer, average):
        transition = saved.arrays.get("transition")

    for epoch in runtime.epochs(2 * config.epochs):
        if epoch <= config.epochs:
            stage, plain = "noisy labels", replace(config, mixup=0.0)  # blended rows would blur the estimate
            with runtime.phase("train"):  # without the clean rows, or the estimate would be too optimistic
                loss = train_epoch(model, noisy, noisy_targets, noisy_targets, 0.0, optimizer, plain, runtime, epoch)
        else:
            stage = "corrected loss"
            if transition is None:
                with runtime.phase("extract"):
                    transition = estimate(average.model, problem.clean, runtime)
                model.load_state_dict(new_classifier(config, problem, runtime.seed).state_dict())
                optimizer = new_optimizer(model, config)  # without the momentum of the first stage
                average = WeightAverage(model, optimizer, config.average_weights)
            with runtime.phase("train"):
                loss = corrected_epoch(model, noisy, problem.clean, transition, optimizer, config, runtime, epoch)
        runtime.record(epoch, average.model, problem, given, {"loss": loss, "stage": stage})
        arrays = {} if transition is None else {"transition": transition}
        runtime.save(epoch, model, optimizer, arrays, average=average)
    assert transition is not None
    rounds = ({"round": 1, "epoch": config.epochs, "transition": transition.round(4).tolist()},)
    return Fitted(average.model, given, rounds, "epoch limit")


def estimate(model: TwoHeadClassifier, clean: Rows, runtime: Runtime) -> Floats:
    """T[true, noisy]: the mean prediction of the noisy-label network on the clean rows of each class [C, C]."""
    posterior = torch.softmax(torch.from_numpy(extract(model, clean, runtime).logits), dim=1)  # [M, C]
    return class_mean(posterior, torch.from_numpy(clean.clean_labels)).numpy()


def corrected_epoch(
    model: TwoHeadClassifier,
    noisy: Rows,
    clean: Rows,
    transition: Floats,
    optimizer: torch.optim.Optimizer,
    config: Config,
    runtime: Runtime,
    epoch: int,
) -> float:
    """One epoch of the second stage over noisy and clean rows together. Returns the mean loss.

    Args:
        model: Changed in place.
        noisy: Rows with a given label; their loss is corrected.
        clean: Their loss is plain cross-entropy.
        transition: T[true, noisy] [C, C].
        optimizer: Its learning rate is set for this epoch.
        config: Schedule, batch size, augmentation, mixup.
        runtime: Device and seed.
        epoch: Counted from the start of the first stage.
    """
    model.train()
    optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch - config.epochs)
    rows = together(noisy, clean)
    labels = torch.from_numpy(np.concatenate([noisy.labels, clean.clean_labels])).to(runtime.device)
    trusted = torch.arange(len(rows), device=runtime.device) >= len(noisy)
    matrix = runtime.tensor(transition)
    seed_torch(integer(runtime.seed, "dropout", epoch, *runtime.ranks.names))
    order = stream(runtime.seed, "batches", epoch).permutation(len(rows))
    alpha, total = config.mixup, torch.zeros((), device=runtime.device)
    with runtime.sharing(model, model.noisy_head.parameters()) as network:
        for position, mine, x, partner, share in rank_batches(rows, order, alpha, config, runtime, epoch):
            index = torch.from_numpy(position).to(runtime.device)
            # Noisy and clean rows in one pass, or batch norm would see batches of a few clean rows.
            logits, own = network(x).logits, index[mine]
            loss = row_losses(logits, labels[own], trusted[own], matrix).sum() / len(index)
            if partner is not None:
                other = index[partner][mine]
                losses = row_losses(logits, labels[other], trusted[other], matrix)
                loss = share * loss + (1 - share) * (losses.sum() / len(index))
            optimizer.zero_grad()
            runtime.backward(loss)
            optimizer.step()
            total += loss.detach() * len(position)
    return float(runtime.ranks.total(total)) / len(rows)


def row_losses(
    logits: torch.Tensor, labels: torch.Tensor, trusted: torch.Tensor, transition: torch.Tensor
) -> torch.Tensor:
    """Cross-entropy of the trusted rows, the corrected loss of the others [B]."""
    plain = F.cross_entropy(logits, labels, reduction="none")
    return torch.where(trusted, plain, forward_corrected_nll(logits, labels, transition))
