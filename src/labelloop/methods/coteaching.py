"""Co-teaching: of two networks, each picks the rows with small losses, and the other one trains on them.

Han et al., "Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels", NeurIPS 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.errors import UsageError
from labelloop.models import TwoHeadClassifier
from labelloop.seeds import integer, stream
from labelloop.splits import labelled_rows, one_hot
from labelloop.training.averaging import WeightAverage, from_arrays, to_arrays
from labelloop.training.batches import rank_batches
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer, seed_torch
from labelloop.types import MISSING, Fitted, Problem, Rows

UNKNOWN = -1.0


@dataclass(frozen=True)
class Config(TrainingConfig):
    """Co-teaching's settings. The defaults are those of its published code.

    Attributes:
        noise_rate: The share of wrong labels, which must be known; -1 measures it on the clean rows that also have a
            given label.
        forget_epochs: Over how many epochs the share of rows left out of a batch grows from 0 to `noise_rate`.
    """

    noise_rate: float = UNKNOWN
    forget_epochs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise_rate != UNKNOWN and not 0 <= self.noise_rate < 1:
            raise UsageError(f"noise_rate must be at least 0 and below 1, or -1 to count it, not {self.noise_rate}")
        check_settings(self, counts=("forget_epochs",))


def check(problem: Problem, config: Config) -> None:
    """Refuses a problem whose noise rate is unknown."""
    known_noise_rate(problem.clean, config)


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains two networks on the given labels and returns the first. The clean rows are not trained on.

    Args:
        problem: Training rows with noisy labels.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    noise_rate = known_noise_rate(problem.clean, config)
    given = one_hot(problem.train.labels, problem.num_classes)  # returned unchanged: rows are left out, not corrected
    _, train = labelled_rows(problem.train)
    seeds = (runtime.seed, integer(runtime.seed, "second network"))
    models = [runtime.prepare(new_classifier(config, problem, seed)) for seed in seeds]
    optimizers = [new_optimizer(model, config) for model in models]
    average = WeightAverage(models[0], optimizers[0], config.average_weights)
    if saved := runtime.restore(models[0], optimizers[0], average):
        from_arrays("second", models[1], saved.arrays)
        from_arrays("second-optimizer", optimizers[1], saved.arrays)

    for epoch in runtime.epochs(config.epochs):
        forgotten = forget_rate(noise_rate, config.forget_epochs, epoch)
        with runtime.phase("train"):
            loss = _epoch(models, optimizers, train, forgotten, config, runtime, epoch)
        runtime.record(epoch, average.model, problem, given, {"loss": loss, "forgotten": forgotten})
        arrays = to_arrays("second", models[1]) | to_arrays("second-optimizer", optimizers[1])
        runtime.save(epoch, models[0], optimizers[0], arrays, average=average)
    return Fitted(average.model, given, (), "epoch limit")


def known_noise_rate(clean: Rows, config: Config) -> float:
    """The configured share of wrong labels, or that among the paired clean rows."""
    if config.noise_rate != UNKNOWN:
        return config.noise_rate
    paired = clean.labels != MISSING
    if not paired.any():
        raise UsageError(
            "co-teaching must know the share of wrong labels: set noise_rate, or give clean rows their given label too"
        )
    return float((clean.labels != clean.clean_labels)[paired].mean())


def forget_rate(noise_rate: float, forget_epochs: int, epoch: int) -> float:
    """The share of a batch that is left out in an epoch (counted from 1): none in the first."""
    return noise_rate * min(1.0, (epoch - 1) / max(forget_epochs - 1, 1))


def _epoch(
    models: Sequence[TwoHeadClassifier],
    optimizers: Sequence[torch.optim.Optimizer],
    train: Rows,
    forgotten: float,
    config: Config,
    runtime: Runtime,
    epoch: int,
) -> float:
    """One epoch of both networks over the same batches. Returns the first one's mean loss on the rows it trained on."""
    for model, optimizer in zip(models, optimizers, strict=True):
        model.train()
        optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch)
    labels = torch.from_numpy(train.labels).to(runtime.device)
    seed_torch(integer(runtime.seed, "dropout", epoch, *runtime.ranks.names))
    order = stream(runtime.seed, "batches", epoch).permutation(len(train))
    total, alpha = torch.zeros((), device=runtime.device), config.mixup
    with ExitStack() as stack:
        networks = [stack.enter_context(runtime.sharing(model, model.noisy_head.parameters())) for model in models]
        for position, mine, x, partner, share in rank_batches(train, order, alpha, config, runtime, epoch):
            index = torch.from_numpy(position).to(runtime.device)
            logits = [network(x).logits for network in networks]
            losses = [F.cross_entropy(each, labels[index[mine]], reduction="none") for each in logits]  # [b] each
            if partner is not None:
                other = labels[index[partner][mine]]
                losses = [
                    share * loss + (1 - share) * F.cross_entropy(each, other, reduction="none")
                    for loss, each in zip(losses, logits, strict=True)
                ]
            whole = [runtime.ranks.whole(loss.detach(), mine, len(position)) for loss in losses]  # [B] each
            picked = exchanged(losses, whole, forgotten, mine)
            for loss, optimizer in zip(picked, optimizers, strict=True):
                optimizer.zero_grad()
                runtime.backward(loss)
                optimizer.step()
            total += picked[0].detach() * len(position)
    return float(runtime.ranks.total(total)) / len(train)


def exchanged(losses: Sequence[Tensor], whole: Sequence[Tensor], forgotten: float, mine: slice) -> list[Tensor]:
    """Each network's mean loss on the rows of a batch that the other one finds easiest: this process's part of it.

    Args:
        losses: Of both networks, on this process's rows [b].
        whole: The same for the whole batch, without gradients [B].
        forgotten: The share of the batch that is left out.
        mine: Which rows this process has.
    """
    count = max(1, int((1 - forgotten) * len(whole[0])))
    places = torch.arange(len(whole[0]), device=whole[0].device)[mine]
    parts = []
    for loss, by_other in zip(losses, whole[::-1], strict=True):
        easy = by_other.topk(count, largest=False).indices
        own = easy[torch.isin(easy, places)] - (mine.start or 0)
        parts.append(loss[own].sum() / count)
    return parts
