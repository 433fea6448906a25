"""FasTEN: two heads; at every step, the noisy head estimates the transition matrix on a few clean rows of each class.

Kye et al., "Learning with Noisy Labels by Efficient Transition Matrix Estimation to Combat Label Miscorrection",
ECCV 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.models import Outputs, TwoHeadClassifier
from labelloop.seeds import integer, stream
from labelloop.splits import labelled_rows, one_hot
from labelloop.training.augmentation import mix
from labelloop.training.batches import augmented_batches
from labelloop.training.epoch import class_mean, forward_corrected_nll, need_every_class
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_model, seed_torch
from labelloop.types import Fitted, Labels, Problem

EPS = 1e-7  # inside the logarithm of the corrected loss


@dataclass(frozen=True)
class Config(TrainingConfig):
    """FasTEN's settings. The defaults are those of its published code for CIFAR-10.

    Attributes:
        clean_per_class: Clean rows of each class at every step. Published: 10 for 10 classes, 1 for 100.
        threshold: The confidence from which the network's label replaces the given one.
        noisy_head_weight: The weight of the noisy head's loss.
    """

    clean_per_class: int = 10
    threshold: float = 0.8
    noisy_head_weight: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, counts=("clean_per_class",), positive=("noisy_head_weight",), not_negative=("threshold",))


def check(problem: Problem, config: Config) -> None:
    """Refuses clean rows that lack a class."""
    need_every_class(problem)


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains both heads with the corrected loss while the labels are corrected.

    Args:
        problem: Training rows with noisy labels, and clean rows of every class.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    check(problem, config)
    known, train = labelled_rows(problem.train)
    given = torch.from_numpy(train.labels).to(runtime.device)  # [N]
    current = given.clone()  # [N] the label used for each row when it was last seen
    model, optimizer, average = new_model(config, problem, runtime)
    if saved := runtime.restore(model, optimizer, average):
        current = torch.from_numpy(saved.arrays["labels"]).to(runtime.device)

    targets = one_hot(problem.train.labels, problem.num_classes)
    for epoch in runtime.epochs(config.epochs):
        with runtime.phase("train"):
            loss = _epoch(model, problem, given, current, optimizer, config, runtime, epoch)
        labels = current.cpu().numpy()
        targets[known] = one_hot(labels, problem.num_classes)
        corrected = float((labels != train.labels).mean())
        runtime.record(epoch, average.model, problem, targets, {"loss": loss, "corrected": corrected})
        runtime.save(epoch, model, optimizer, {"labels": labels}, average=average)
    targets[known] = one_hot(
        current.cpu().numpy(), problem.num_classes
    )  # here too, since a finished run that is resumed has no epoch
    return Fitted(average.model, targets, (), "epoch limit")


def _epoch(
    model: TwoHeadClassifier,
    problem: Problem,
    given: Tensor,
    current: Tensor,
    optimizer: torch.optim.Optimizer,
    config: Config,
    runtime: Runtime,
    epoch: int,
) -> float:
    """One epoch; changes the model and the current labels. Returns the mean loss."""
    model.train()
    optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch)
    seed_torch(integer(runtime.seed, "dropout", epoch))
    _, train = labelled_rows(problem.train)
    clean, seed = problem.clean, runtime.seed
    order = stream(seed, "batches", epoch).permutation(len(train))
    steps = -(-len(train) // config.batch_size)
    clean_order = balanced(clean.clean_labels, config.clean_per_class, steps, stream(seed, "clean-batches", epoch))
    clean_size = config.clean_per_class * problem.num_classes
    noisy_batches = augmented_batches(train, order, config.batch_size, config, runtime, epoch)
    clean_batches = augmented_batches(clean, clean_order, clean_size, config, runtime, epoch, "clean")
    blends = stream(seed, "mixup", epoch)
    total = torch.zeros((), device=runtime.device)
    # Not strict: a left-over row that joins the last batch leaves a clean batch over.
    for (position, x), (clean_position, clean_x) in zip(noisy_batches, clean_batches, strict=False):
        index = torch.from_numpy(position).to(runtime.device)
        clean_labels = torch.from_numpy(clean.clean_labels[clean_position]).to(runtime.device)
        blend, partner, share = mix(x, config.mixup, blends)
        out, clean_out = model(blend), model(clean_x)
        loss = step_loss(out, clean_out, current[index], clean_labels, config.noisy_head_weight)
        logits = out.logits.detach()
        if partner is not None:
            other = step_loss(out, clean_out, current[index[partner]], clean_labels, config.noisy_head_weight)
            loss = share * loss + (1 - share) * other
            with torch.no_grad():
                logits = model(x).logits  # predictions for blended rows must not correct labels
        # Written now, used when the row comes next.
        current[index] = corrected_labels(logits, given[index], config.threshold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(position)
    return float(total) / len(train)


def step_loss(
    out: Outputs, clean_out: Outputs, labels: Tensor, clean_labels: Tensor, noisy_head_weight: float
) -> Tensor:
    """The loss of one step. The clean rows send no gradient into the noisy head.

    Args:
        out: Of the noisy rows.
        clean_out: Of the clean rows.
        labels: The current labels of the noisy rows [B].
        clean_labels: Labels of the clean rows, with every class [M].
        noisy_head_weight: λ.
    """
    transition = class_mean(torch.softmax(clean_out.noisy_logits.detach(), dim=1), clean_labels)  # [C, C]
    on_noisy = forward_corrected_nll(out.logits, labels, transition, EPS)  # [B]
    on_clean = F.cross_entropy(clean_out.logits, clean_labels, reduction="none")  # [M]
    return torch.cat([on_noisy, on_clean]).mean() + noisy_head_weight * F.cross_entropy(out.noisy_logits, labels)


def corrected_labels(logits: Tensor, given: Tensor, threshold: float) -> Tensor:
    """The network's label where it is confident, and the given one elsewhere, whatever the current one was [B]."""
    confidence, own = torch.softmax(logits, dim=1).max(dim=1)
    return torch.where(confidence >= threshold, own, given)


def balanced(labels: Labels, per_class: int, steps: int, rng: np.random.Generator) -> Labels:
    """Positions for `steps` batches with `per_class` rows of each class, ordered by class.

    Within a batch no row comes twice, unless its class has fewer rows than that.
    """
    members = [np.flatnonzero(labels == number) for number in np.unique(labels)]
    return np.concatenate([np.resize(rng.permutation(rows), per_class) for _ in range(steps) for rows in members])
