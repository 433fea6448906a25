"""L2B: each row has two weights, for its given label and for the network's own, set by what lowers the clean loss now.

Zhou et al., "L2B: Learning to Bootstrap Robust Models for Combating Label Noise", CVPR 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.methods import bilevel
from labelloop.seeds import stream
from labelloop.splits import labelled_rows, one_hot
from labelloop.training.epoch import train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_model, seed_torch
from labelloop.types import Fitted, Problem

WEIGHT_NORMS = ("org", "softmax", "sigmoid")


@dataclass(frozen=True)
class Config(TrainingConfig):
    """L2B's settings. The defaults are those of its published code for CIFAR-10.

    Attributes:
        clean_batch_size: Clean rows per step, drawn anew each time.
        warm_up: Epochs of plain cross-entropy at the start.
        clip: The gradient is clipped to this norm; 0 turns clipping off. The published value for CIFAR-100 is 0.8.
        weight_norm: How gains become weights that sum to 1: "org" normalises the positive gains, "sigmoid" their
            sigmoids, and "softmax" takes their softmax.
        temperature: The gains are divided by this before the softmax, since they are as small as the learning rate.
    """

    clean_batch_size: int = 128
    warm_up: int = 10
    clip: float = 0.25
    weight_norm: str = "org"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(
            self,
            counts=("clean_batch_size",),
            positive=("temperature",),
            not_negative=("warm_up", "clip"),
            choices={"weight_norm": WEIGHT_NORMS},
        )


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains on given labels and the network's own, reweighted at every step. The clean rows only set the weights.

    Args:
        problem: Training rows with noisy labels, and the clean rows.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    known, train = labelled_rows(problem.train)
    targets = one_hot(problem.train.labels, problem.num_classes)  # [N, C], later each row's last target
    given = targets[known]
    model, optimizer, average = new_model(config, problem, runtime)
    if saved := runtime.restore(model, optimizer, average):
        targets = saved.arrays["targets"]

    for epoch in runtime.epochs(config.epochs):
        idle_steps = 0
        with runtime.phase("train"):
            if epoch <= config.warm_up:
                loss = train_epoch(model, train, given, given, 0.0, optimizer, config, runtime, epoch)
            else:
                model.train()
                optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch)
                total, blends = torch.zeros((), device=runtime.device), stream(runtime.seed, "mixup", epoch)
                for batch in bilevel.batches_with_clean(
                    train, problem.clean, config.batch_size, config.clean_batch_size, config, runtime, epoch, fresh=True
                ):
                    given_labels = batch.labels
                    batch = bilevel.blended(batch, config.mixup, problem.num_classes, blends)
                    step_loss, weights, own = step(model, optimizer, batch, config)
                    total += step_loss * len(batch.x)
                    weighted, towards = implied_targets(weights, given_labels, own, problem.num_classes)
                    targets[known[batch.position[weighted.numpy()]]] = towards[weighted].numpy()
                    idle_steps += int(not weighted.any())
                loss = float(total) / len(train)
        # In an idle step no weight was above zero: only momentum and weight decay moved the network.
        runtime.record(epoch, average.model, problem, targets, {"loss": loss, "idle_steps": idle_steps})
        runtime.save(epoch, model, optimizer, {"targets": targets}, average=average)
    return Fitted(average.model, targets, (), "epoch limit")


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: bilevel.Batch, config: Config
) -> tuple[Tensor, Tensor, Tensor]:
    """Sets the weights of a batch and takes one step with them.

    Returns:
        The weighted loss, the weights [2, B] and the network's own labels [B], all detached.
    """
    weights = to_weights(gains(model, optimizer, batch), config)  # [2, B]
    seed_torch(batch.draw)
    logits = model(batch.x).logits
    loss = (weights * both_losses(logits, batch.labels)).sum()
    optimizer.zero_grad()
    loss.backward()
    if config.clip > 0:
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    optimizer.step()
    return loss.detach(), weights, logits.detach().argmax(dim=1)


def gains(model: nn.Module, optimizer: torch.optim.Optimizer, batch: bilevel.Batch) -> Tensor:
    """How much the clean loss falls per unit of each weight, at weights of zero [2, B]."""
    seed_torch(batch.draw)
    direction = bilevel.clean_gradient(model, virtual_parameters(model, optimizer), batch.clean_x, batch.clean_labels)
    seed_torch(batch.draw)  # again, so that the real pass drops the same values
    lr = optimizer.param_groups[0]["lr"]
    return lr * bilevel.slopes(
        model, bilevel.parameters_of(model), direction, batch.x, lambda logits: both_losses(logits, batch.labels)
    )


def virtual_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The parameters after a step with all weights zero: only momentum and weight decay act, so no pass is needed."""
    group = optimizer.param_groups[0]
    virtual = {}
    for name, value in bilevel.parameters_of(model).items():
        moved = value.detach() * (1 - group["lr"] * group["weight_decay"])
        velocity = optimizer.state.get(value, {}).get("momentum_buffer")
        if velocity is not None:  # there is none before the first real step
            moved.sub_(velocity, alpha=group["lr"] * group["momentum"])
        virtual[name] = moved
    return virtual


def both_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Each row's loss on its given label and on the network's own [2, B]."""
    own = logits.detach().argmax(dim=1)
    return torch.stack([F.cross_entropy(logits, y, reduction="none") for y in (labels, own)])


def to_weights(gain: Tensor, config: Config) -> Tensor:
    """Weights [2, B] that sum to 1, or to 0 if nothing helps the clean rows."""
    if config.weight_norm == "softmax":
        return torch.softmax(gain.flatten() / config.temperature, dim=0).view_as(gain)
    raw = gain.clamp(min=0) if config.weight_norm == "org" else torch.sigmoid(gain)
    total = raw.sum()
    return raw / torch.where(total > 0, total, 1)


def implied_targets(weights: Tensor, labels: Tensor, own: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Which rows have any weight [B], and the soft label equivalent to the two losses of each [B, C], on the CPU."""
    weights = weights.cpu()
    total = weights.sum(dim=0)  # [B]
    on_given, on_own = (weights / torch.where(total > 0, total, 1)).unsqueeze(2)  # [B, 1]
    return total > 0, on_given * F.one_hot(labels.cpu(), num_classes) + on_own * F.one_hot(own.cpu(), num_classes)
