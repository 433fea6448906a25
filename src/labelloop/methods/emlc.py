"""EMLC: a teacher mixes given labels with its own predictions, and learns from its student's loss on clean rows.

Taraday and Baskin, "Enhanced Meta Label Correction for Coping with Label Corruption", ICCV 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.errors import UsageError
from labelloop.methods.bilevel import Batch, batches_with_clean, gradient, parameters_of, slopes
from labelloop.seeds import integer
from labelloop.splits import labelled_rows, one_hot
from labelloop.training.augmentation import mix
from labelloop.training.averaging import from_arrays, to_arrays
from labelloop.training.epoch import soft_cross_entropy
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_model, seed_torch
from labelloop.types import Fitted, Problem

GATE_LOSSES = ("none", "random", "adversarial")


@dataclass(frozen=True)
class Config(TrainingConfig):
    """EMLC's settings. The defaults are those of its published code for CIFAR, without self-supervised weights.

    Attributes:
        weights: A file of initial weights for the encoders of both student and teacher, or empty.
        clean_batch_size: Clean rows for each step of the teacher.
        student_steps: K, the steps of the student per step of the teacher. With 1 the teacher's gradient is exact.
        teacher_learning_rate_factor: The teacher's learning rate, as a multiple of the student's.
        gate_width: The width of the gate's label embedding and of its hidden layer.
        gate_loss: A further loss of the gate, which must reject a false label on every second clean row: "random",
            "adversarial" (the teacher's likeliest wrong class), or "none" for no such loss.
        mix_g: Whether the student also trains on half of each clean batch; the teacher then learns from the other half.
        official_order: Follow the published code: the last batch's slopes are paired with the first batch's labels,
            and the mean is over all K batches.
    """

    clean_batch_size: int = 128
    student_steps: int = 5
    teacher_learning_rate_factor: float = 1.0
    gate_width: int = 128
    gate_loss: str = "none"
    mix_g: bool = False
    official_order: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(
            self,
            counts=("clean_batch_size", "student_steps", "gate_width"),
            positive=("teacher_learning_rate_factor",),
            choices={"gate_loss": GATE_LOSSES},
        )
        if self.mix_g and self.clean_batch_size < 2:
            raise UsageError("mix_g halves the clean batch: clean_batch_size must be at least 2")


class Gate(nn.Module):
    """Whether to keep a label, as a logit, from the teacher's features of the row and the label."""

    def __init__(self, feature_dim: int, num_classes: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_classes, width)
        self.hidden = nn.Linear(feature_dim + width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:  # [B, D], [B] -> [B]
        return self.out(F.relu(self.hidden(torch.cat([features, self.embedding(labels)], dim=1))))[:, 0]


class Lesson(NamedTuple):
    """The state and the data of one step of the student, before the step."""

    parameters: dict[str, Tensor]
    x: Tensor  # all inputs of the step; those with a target of the teacher come first
    targets: Tensor  # [B, C]


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains a student on the soft labels of a teacher, and the teacher along with it. Returns the student.

    Args:
        problem: Training rows with noisy labels, and the clean rows.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    known, train = labelled_rows(problem.train)
    targets = one_hot(problem.train.labels, problem.num_classes)  # [N, C], later the student's last targets
    student, optimizer, average = new_model(config, problem, runtime)
    teacher = runtime.prepare(new_classifier(config, problem, integer(runtime.seed, "teacher")))
    with torch.random.fork_rng(devices=[]):
        seed_torch(integer(runtime.seed, "gate"))
        gate = Gate(teacher.head.in_features, problem.num_classes, config.gate_width).to(runtime.device)
    teacher_optimizer = torch.optim.SGD([*teacher.parameters(), *gate.parameters()])  # no momentum: nothing to store
    if saved := runtime.restore(student, optimizer, average):
        from_arrays("teacher", teacher, saved.arrays)
        from_arrays("gate", gate, saved.arrays)
        targets = saved.arrays["targets"]

    for epoch in runtime.epochs(config.epochs):
        student.train()
        teacher.train()
        optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch)
        teacher_optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch) * config.teacher_learning_rate_factor
        total, kept = torch.zeros(2, device=runtime.device)
        rows = config.batch_size * config.student_steps
        with runtime.phase("train"):
            for batch in batches_with_clean(
                train, problem.clean, rows, config.clean_batch_size, config, runtime, epoch
            ):  # fmt: skip
                loss, taught, keep = step(
                    student, teacher, gate, optimizer, teacher_optimizer, batch, config, config.mixup
                )
                targets[known[batch.position]] = taught.cpu().numpy()
                total += loss * len(batch.x)
                kept += keep.sum()
            values = {"loss": float(total) / len(train), "kept": float(kept) / len(train)}
        runtime.record(epoch, average.model, problem, targets, values)
        arrays = {"targets": targets} | to_arrays("teacher", teacher) | to_arrays("gate", gate)
        runtime.save(epoch, student, optimizer, arrays, average=average)
    return Fitted(average.model, targets, (), "epoch limit")


def step(
    student: nn.Module,
    teacher: nn.Module,
    gate: nn.Module,
    optimizer: Optimizer,
    teacher_optimizer: Optimizer,
    batch: Batch,
    config: Config,
    alpha: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """K steps of the student on the teacher's labels, then one step of the teacher and its gate.

    Returns:
        The student's mean loss, its soft labels [K B, C] and how much of the given labels they keep [K B], detached.
    """
    count, lr = len(batch.x), optimizer.param_groups[0]["lr"]
    seed_torch(batch.draw)
    out = teacher(torch.cat([batch.x, batch.clean_x]))
    keep = torch.sigmoid(gate(out.features[:count], batch.labels))  # [K B]
    targets = mixed(keep, batch.labels, torch.softmax(out.logits[:count], dim=1))  # [K B, C], of the teacher's graph
    clean_logits, clean_features = out.logits[count:], out.features[count:]
    penalty = gate_loss(gate, clean_features, clean_logits, batch.clean_labels, config.gate_loss)

    loss, lessons = teach(student, optimizer, batch, targets, config, alpha)
    examined = slice(mixed_in(batch, config), None)
    clean_loss = F.cross_entropy(student(batch.clean_x[examined]).logits, batch.clean_labels[examined])
    direction = gradient(clean_loss, parameters_of(student))
    changes = []
    for number, taught in enumerate(lessons):
        seed_torch(batch.draw + 1 + number)  # the values dropped in the lesson
        change = slopes(student, taught.parameters, direction, taught.x, lambda logits: F.log_softmax(logits, dim=1))
        changes.append(change[: len(taught.targets)])  # [B, C]

    effect = effect_on_clean(changes, [taught.targets for taught in lessons], lr, config.official_order)
    teacher_loss = F.cross_entropy(clean_logits, batch.clean_labels) + penalty + effect
    teacher_optimizer.zero_grad()
    teacher_loss.backward()
    teacher_optimizer.step()
    return loss, targets.detach(), keep.detach()


def mixed(keep: Tensor, labels: Tensor, posterior: Tensor) -> Tensor:
    """The given labels where the gate keeps them, the teacher's posterior where not [B, C]."""
    share = keep[:, None]  # [B, 1]
    return share * F.one_hot(labels, posterior.shape[1]) + (1 - share) * posterior


def mixed_in(batch: Batch, config: Config) -> int:
    """How many of the clean rows the student trains on."""
    return len(batch.clean_labels) // 2 if config.mix_g else 0


def teach(
    student: nn.Module, optimizer: Optimizer, batch: Batch, targets: Tensor, config: Config, alpha: float = 0.0
) -> tuple[Tensor, list[Lesson]]:
    """The student's steps. No gradient reaches the teacher from here.

    Returns:
        The mean loss, detached, and the lessons, whose targets are still on the teacher's graph.
    """
    # Parts of nearly the same size, so that no left-over row is alone in a batch.
    parts = max(1, round(len(batch.x) / config.batch_size))
    half = mixed_in(batch, config)
    blends = np.random.default_rng(batch.draw)
    lessons, total = [], torch.zeros((), device=targets.device)
    for number, (x, part) in enumerate(
        zip(batch.x.tensor_split(parts), targets.tensor_split(parts), strict=True)
    ):  # fmt: skip
        x, partner, share = mix(x, alpha, blends)
        part = part if partner is None else torch.lerp(part[partner], part, share)
        x = torch.cat([x, batch.clean_x[:half]]) if half else x
        lessons.append(Lesson({name: p.detach().clone() for name, p in parameters_of(student).items()}, x, part))
        seed_torch(batch.draw + 1 + number)
        logits = student(x).logits
        loss = soft_cross_entropy(logits[: len(part)], part.detach())
        if half:
            loss = loss + F.cross_entropy(logits[len(part) :], batch.clean_labels[:half])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(part)
    return total / len(targets), lessons


def effect_on_clean(
    changes: Sequence[Tensor], targets: Sequence[Tensor], lr: float, official_order: bool = False
) -> Tensor:
    """The effect of the targets of K steps on the student's clean loss, to first order.

    Args:
        changes: For each step, the slopes of its log posteriors along the gradient of the clean loss [B, C].
        targets: For each step, its targets [B, C].
        lr: The student's learning rate. Each later step scales the effect of an earlier one by 1 - lr.
        official_order: As in the configuration.
    """
    fading = max(0.0, 1 - lr)
    faded = [change * fading ** (len(changes) - number) for number, change in enumerate(changes, start=1)]
    if official_order:
        return lr * (torch.cat(faded[::-1]) * torch.cat(list(targets))).sum(dim=1).mean()
    means = [(change * target).sum(dim=1).mean() for change, target in zip(faded, targets, strict=True)]
    return lr * torch.stack(means).sum()


def gate_loss(gate: nn.Module, features: Tensor, logits: Tensor, labels: Tensor, kind: str) -> Tensor:
    """The gate's loss in telling true labels of clean rows from false ones; every second row gets a false one."""
    if kind == "none":
        return torch.zeros((), device=labels.device)
    shown = labels.clone()
    shown[1::2] = false_labels(logits.detach(), labels, kind)[1::2]
    return F.binary_cross_entropy_with_logits(gate(features, shown), (shown == labels).to(features.dtype))


def false_labels(logits: Tensor, labels: Tensor, kind: str) -> Tensor:
    """The likeliest wrong class of each row, or a random class, which may happen to be the true one [B]."""
    if kind == "random":
        return torch.randint(logits.shape[1], labels.shape, device=labels.device)
    first, second = logits.topk(2, dim=1).indices.T
    return torch.where(first == labels, second, first)
