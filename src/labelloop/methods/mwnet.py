"""MW-Net: a small network maps a row's loss to its weight, and is trained to lower the loss on clean rows.

Shu et al., "Meta-Weight-Net: Learning an Explicit Mapping For Sample Weighting", NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.methods import bilevel
from labelloop.seeds import integer, stream
from labelloop.splits import labelled_rows, one_hot
from labelloop.training.averaging import from_arrays, to_arrays
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_model, seed_torch
from labelloop.types import Fitted, Problem

WEIGHT_NORMS = ("mean", "sum")


@dataclass(frozen=True)
class Config(TrainingConfig):
    """MW-Net's settings. The defaults are those of its published code.

    Attributes:
        clean_batch_size: Clean rows per step.
        weighting_hidden: The width of the weighting network's hidden layer.
        weighting_learning_rate: Of its Adam; it does not drop.
        weighting_weight_decay: Of its Adam.
        weight_norm: What the weighted losses are divided by: "mean" for the number of rows, or "sum" for the sum of
            weights, which keeps the step as large as cross-entropy's when all weights shrink.
    """

    clean_batch_size: int = 128
    weighting_hidden: int = 100
    weighting_learning_rate: float = 1e-3
    weighting_weight_decay: float = 1e-4
    weight_norm: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(
            self,
            counts=("clean_batch_size", "weighting_hidden"),
            positive=("weighting_learning_rate",),
            not_negative=("weighting_weight_decay",),
            choices={"weight_norm": WEIGHT_NORMS},
        )


class WeightingNetwork(nn.Module):
    """Maps each row's loss to a weight in (0, 1)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(1, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, losses: Tensor) -> Tensor:  # [B] -> [B]
        return torch.sigmoid(self.out(F.relu(self.hidden(losses[:, None]))))[:, 0]


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains on the given labels, weighted. The clean rows train only the weighting network.

    Args:
        problem: Training rows with noisy labels, and the clean rows.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    given = one_hot(problem.train.labels, problem.num_classes)  # returned unchanged: rows are weighted, not corrected
    _, train = labelled_rows(problem.train)
    model, optimizer, average = new_model(config, problem, runtime)
    with torch.random.fork_rng(devices=[]):
        seed_torch(integer(runtime.seed, "weighting"))
        weighting = WeightingNetwork(config.weighting_hidden).to(runtime.device)
    weighting_optimizer = torch.optim.Adam(
        weighting.parameters(), lr=config.weighting_learning_rate, weight_decay=config.weighting_weight_decay
    )
    if saved := runtime.restore(model, optimizer, average):
        from_arrays("weighting", weighting, saved.arrays)
        from_arrays("weighting-optimizer", weighting_optimizer, saved.arrays)

    for epoch in runtime.epochs(config.epochs):
        model.train()
        optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch)
        total, weight_sum = torch.zeros(2, device=runtime.device)
        blends = stream(runtime.seed, "mixup", epoch)
        with runtime.phase("train"):
            for batch in bilevel.batches_with_clean(
                train, problem.clean, config.batch_size, config.clean_batch_size, config, runtime, epoch
            ):
                batch = bilevel.blended(batch, config.mixup, problem.num_classes, blends)
                loss, weights = step(model, weighting, optimizer, weighting_optimizer, batch, config.weight_norm)
                total += loss * len(batch.x)
                weight_sum += weights.sum()
            values = {"loss": float(total) / len(train), "mean_weight": float(weight_sum) / len(train)}
        runtime.record(epoch, average.model, problem, given, values)
        arrays = to_arrays("weighting", weighting) | to_arrays("weighting-optimizer", weighting_optimizer)
        runtime.save(epoch, model, optimizer, arrays, average=average)
    return Fitted(average.model, given, (), "epoch limit")


def step(
    model: nn.Module,
    weighting: nn.Module,
    optimizer: torch.optim.Optimizer,
    weighting_optimizer: torch.optim.Optimizer,
    batch: bilevel.Batch,
    weight_norm: str,
) -> tuple[Tensor, Tensor]:
    """One step of the weighting network, then one of the classifier with the new weights.

    Returns:
        The weighted loss and the weights [B], both detached.
    """
    seed_torch(batch.draw)
    losses = row_losses(model(batch.x).logits, batch.labels)  # [B]
    known = losses.detach()
    shares = share(weighting(known), weight_norm)  # [B], a function of the weighting network
    loss_gradient = weighting_gradient(model, losses, shares.detach(), optimizer.param_groups[0]["lr"], batch)
    weighting_optimizer.zero_grad()
    (loss_gradient * shares).sum().backward()
    weighting_optimizer.step()

    with torch.no_grad():
        weights = weighting(known)
    loss = (share(weights, weight_norm) * losses).sum()  # on the graph of the first pass: the classifier has not moved
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach(), weights


def weighting_gradient(model: nn.Module, losses: Tensor, shares: Tensor, lr: float, batch: bilevel.Batch) -> Tensor:
    """The gradient of the clean loss after a plain SGD step with respect to each row's share in that step [B]."""
    parameters = bilevel.parameters_of(model)
    moved = bilevel.gradient((shares * losses).sum(), parameters, retain_graph=True)
    virtual = {name: value.detach() - lr * moved[name] for name, value in parameters.items() if name in moved}
    direction = bilevel.clean_gradient(model, virtual, batch.clean_x, batch.clean_labels)
    seed_torch(batch.draw)
    return -lr * bilevel.slopes(model, parameters, direction, batch.x, lambda logits: row_losses(logits, batch.labels))


def share(weights: Tensor, weight_norm: str) -> Tensor:
    """The factor of each row's loss [B]."""
    if weight_norm == "mean":
        return weights / len(weights)
    return weights / weights.sum().clamp(min=1e-10)  # all weights zero: no step, rather than a division by zero


def row_losses(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, reduction="none")  # [B]
