"""DMLP: purifies the labels on fixed features, where the best linear classifier has a closed form, then trains on them.

Tu et al., "Learning from Noisy Labels with Decoupled Meta Label Purifier", CVPR 2023. Its published code keeps two
copies of the labels, on the same features; here there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.errors import UsageError
from labelloop.models import TwoHeadClassifier
from labelloop.seeds import stream
from labelloop.splits import labelled_rows, one_hot
from labelloop.training.averaging import WeightAverage
from labelloop.training.batches import batches, input_shape
from labelloop.training.epoch import extract, train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_model, new_optimizer
from labelloop.types import Fitted, Floats, Labels, Problem, Rows

BETAS = (0.5, 0.999)  # of Adam on the labels


@dataclass(frozen=True)
class Config(TrainingConfig):
    """DMLP's settings. The defaults are those of its published code, except for the two marked below.

    Attributes:
        weights: Self-supervised weights of the encoder whose features the labels are purified on. Without them, the
            inputs must be columns, such as embeddings, and serve as the features.
        purify_epochs: Passes of the purifier over the labels.
        block_size: Rows for which one linear classifier is solved.
        label_learning_rate: Of Adam on the labels.
        label_weight_decay: Of Adam on the labels.
        ridge: Added to the Gram matrix, as a share of its mean diagonal: features after a ReLU make it singular.
        clean_prior_weight: The weight of the penalty that pulls the solved classifier towards predicting all classes
            equally often.
        probe_batch_size: Rows per step of the probe, in a full block.
        probe_learning_rate: Of Adam on the probe; a tenth of it after three epochs.
        confidence_penalty: The weight of the penalty on confident predictions of the probe.
        probe_prior_weight: The weight of the penalty that pulls the probe towards predicting all classes equally often.
            The published 2200 multiplies a term with a softmax of a softmax, which hardly changes.
        write_back_every: Epochs between updates of the labels by the probe. The published code never reaches one.
        write_back_rate: The probe's share in an update; 1 replaces the labels.
    """

    purify_epochs: int = 100
    block_size: int = 7000
    label_learning_rate: float = 0.01
    label_weight_decay: float = 3e-4
    ridge: float = 1e-4
    clean_prior_weight: float = 1.0
    probe_batch_size: int = 500
    probe_learning_rate: float = 0.006
    confidence_penalty: float = 0.4
    probe_prior_weight: float = 1.0
    write_back_every: int = 1
    write_back_rate: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(
            self,
            counts=("purify_epochs", "block_size", "probe_batch_size", "write_back_every"),
            positive=("label_learning_rate", "ridge", "probe_learning_rate"),
            not_negative=("label_weight_decay", "clean_prior_weight", "confidence_penalty", "probe_prior_weight"),
        )
        if not 0 < self.write_back_rate <= 1:
            raise UsageError(f"write_back_rate must be above 0 and at most 1, not {self.write_back_rate}")


@dataclass(frozen=True)
class NoSslConfig(Config):
    """DMLP on the features of a network that was briefly trained on the noisy labels.

    Attributes:
        warm_up: Epochs of that training; `epochs` of training on the purified labels follow.
    """

    warm_up: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, counts=("warm_up",))


# --- training --------------------------------------------------------------------------------------------------------


def check(problem: Problem, config: Config) -> None:
    """Refuses images without self-supervised weights."""
    if not config.weights and len(input_shape(problem.train)) != 1:
        raise UsageError(
            "dmlp needs self-supervised features: set weights to a file with such an encoder, give embeddings instead "
            "of images, or use the method dmlp-nossl"
        )


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Purifies the labels on self-supervised features, then trains on the likeliest ones.

    Args:
        problem: Training rows with noisy labels, and the clean rows.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    check(problem, config)
    return _fit(problem, config, runtime, 0, "weights" if config.weights else "inputs")


def fit_without_ssl(problem: Problem, config: NoSslConfig, runtime: Runtime) -> Fitted:
    """The same on the features of a warm-up network, for lack of self-supervised ones."""
    return _fit(problem, config, runtime, config.warm_up, "warm-up")


def _fit(problem: Problem, config: Config, runtime: Runtime, warm_up: int, source: str) -> Fitted:
    known, train = labelled_rows(problem.train)
    given = one_hot(problem.train.labels, problem.num_classes)
    targets, rounds = given, list[dict[str, Any]]()
    model, optimizer, average = new_model(config, problem, runtime)
    if saved := runtime.restore(model, optimizer, average):
        targets, rounds = saved.arrays["targets"], saved.values["rounds"]

    for epoch in runtime.epochs(warm_up + config.epochs):
        if epoch == warm_up + 1:
            with runtime.phase("extract"):
                features, clean_features = (
                    _features(average.model, rows, source, runtime) for rows in (train, problem.clean)
                )
                runtime.check_outputs(epoch - 1, features, clean_features)
            with runtime.phase("purify"):
                labels, summary = runtime.from_first(
                    partial(
                        purify, features, clean_features, train.labels, problem.clean.clean_labels,
                        problem.num_classes, config, runtime.seed,
                    )
                )  # fmt: skip
            targets = given.copy()
            targets[known] = labels
            rounds = [{"round": 1, "epoch": warm_up, "features": source, **summary}]
            model.load_state_dict(new_classifier(config, problem, runtime.seed).state_dict())
            optimizer = new_optimizer(model, config)
            average = WeightAverage(model, optimizer, config.average_weights)
        # The schedule starts again after the warm-up, whose learning rate never drops.
        warming = epoch <= warm_up
        schedule = replace(config, learning_rate_drops=()) if warming else config
        number = epoch if warming else epoch - warm_up
        with runtime.phase("train"):
            hard = one_hot(targets[known].argmax(axis=1), problem.num_classes)
            loss = train_epoch(model, train, hard, hard, 0.0, optimizer, schedule, runtime, number)
        values = {"loss": loss, "stage": "warm-up" if warming else "purified labels"}
        runtime.record(epoch, average.model, problem, targets, values)
        runtime.save(epoch, model, optimizer, {"targets": targets}, values={"rounds": rounds}, average=average)
    return Fitted(average.model, targets, tuple(rounds), "epoch limit")


def _features(model: TwoHeadClassifier, rows: Rows, source: str, runtime: Runtime) -> Floats:
    """The features on which the labels are purified [N, D]."""
    if source != "inputs":
        return extract(model, rows, runtime).features
    parts = batches(rows, np.arange(len(rows)), 4096, workers=runtime.workers)
    return np.concatenate([model.normalise(runtime.inputs(x)).cpu().numpy() for _, x in parts])


# --- the purifier ----------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """Some training rows, and the Cholesky factor of their Gram matrix, which never changes."""

    rows: Labels  # [B] positions
    features: Tensor  # [B, D]
    factor: Tensor  # [D, D]


def purify(
    features: Floats,
    clean_features: Floats,
    labels: Labels,
    clean_labels: Labels,
    num_classes: int,
    config: Config,
    seed: int,
) -> tuple[Floats, dict[str, float]]:
    """Finds soft labels whose linear classifier does well on the clean rows.

    Args:
        features: Of the training rows [N, D].
        clean_features: Of the clean rows [M, D].
        labels: The given labels [N].
        clean_labels: The clean labels [M].
        num_classes: C.
        config: Settings.
        seed: Of the run.

    Returns:
        Soft labels [N, C] and what to record.
    """
    scale = np.float32(np.sqrt(np.mean(np.square(features, dtype=np.float64))) or 1)
    order = stream(seed, "blocks").permutation(len(features))
    blocks = []
    for rows in np.array_split(order, -(-len(order) // config.block_size)):
        z = with_bias(features[rows] / scale)
        blocks.append(Block(rows, z, gram_factor(z, config.ridge)))
    clean_z, clean_y = with_bias(clean_features / scale), torch.from_numpy(clean_labels)
    start = torch.from_numpy(one_hot(labels, num_classes))
    current = [start[block.rows].clone().requires_grad_() for block in blocks]  # [B, C] each
    adam = torch.optim.Adam(
        current, lr=config.label_learning_rate, betas=BETAS, weight_decay=config.label_weight_decay
    )  # fmt: skip
    probe = torch.zeros(clean_z.shape[1], num_classes, requires_grad=True)  # [D, C]
    probe_adam = torch.optim.Adam([probe], lr=config.probe_learning_rate)
    for epoch in range(1, config.purify_epochs + 1):
        probe_adam.param_groups[0]["lr"] = config.probe_learning_rate * (1.0 if epoch <= 3 else 0.1)
        for number, (block, soft) in enumerate(zip(blocks, current, strict=True)):
            adam.zero_grad()  # sets gradients to None, so that Adam leaves the other blocks' labels alone
            weight = solve(block.features, block.factor, soft)
            clean_loss(weight, block.features, clean_z, clean_y, config.clean_prior_weight).backward()
            adam.step()
            train_probe(probe, probe_adam, block.features, soft, config, stream(seed, "probe", epoch, number))
        if epoch % config.write_back_every == 0:
            for block, soft in zip(blocks, current, strict=True):
                write_back(soft, block.features @ probe, config.write_back_rate)
    purified = np.empty((len(order), num_classes), np.float32)
    for block, soft in zip(blocks, current, strict=True):
        purified[block.rows] = on_simplex(soft.detach()).numpy()
    return purified, {
        "labels_moved": 1 - float((purified.argmax(axis=1) == labels).mean()),
        "probe_clean_accuracy": float(((clean_z @ probe).argmax(dim=1).numpy() == clean_labels).mean()),
    }


def with_bias(features: Floats) -> Tensor:
    return torch.from_numpy(np.pad(features, ((0, 0), (0, 1)), constant_values=1))  # [N, D + 1]


def gram_factor(features: Tensor, ridge: float) -> Tensor:
    """The Cholesky factor of ZᵀZ plus a ridge [D, D], in double precision: features may be nearly dependent."""
    z = features.double()
    gram = z.T @ z
    return torch.linalg.cholesky(gram + ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype))


def solve(features: Tensor, factor: Tensor, labels: Tensor) -> Tensor:
    """W = (ZᵀZ)⁻¹ZᵀY, the linear classifier of these labels [D, C], through which gradients reach the labels."""
    return torch.cholesky_solve(features.double().T @ labels.double(), factor).to(features.dtype)


def clean_loss(weight: Tensor, features: Tensor, clean_features: Tensor, labels: Tensor, prior_weight: float) -> Tensor:
    """The loss of a linear classifier on the clean rows, and a penalty on uneven predictions of the training rows."""
    scores = clean_features @ weight  # [M, C]
    squared = squared_error(scores, F.one_hot(labels, scores.shape[1]))
    prior = uniform_divergence(torch.softmax(features @ weight, dim=1))
    return F.cross_entropy(scores, labels) + squared + prior_weight * prior


def squared_error(scores: Tensor, targets: Tensor) -> Tensor:
    return (scores - targets).square().sum()


def uniform_divergence(posterior: Tensor) -> Tensor:
    """KL(uniform || mean posterior), zero if and only if all classes are predicted equally often."""
    mean = posterior.mean(dim=0)  # [C]
    return -torch.log(mean * len(mean)).mean()


def train_probe(
    probe: Tensor, optimizer: Optimizer, features: Tensor, labels: Tensor, config: Config, rng: Generator
) -> None:
    """One pass over a block: the probe learns the current labels, with a penalty on confidence."""
    hard = labels.detach().argmax(dim=1)
    # A partial block gets as many steps as a full one; otherwise the probe hardly learns on a small data set.
    size = max(1, round(config.probe_batch_size * min(1.0, len(hard) / config.block_size)))
    for rows in torch.from_numpy(rng.permutation(len(hard))).split(size):
        logits = features[rows] @ probe
        posterior, log_posterior = torch.softmax(logits, dim=1), F.log_softmax(logits, dim=1)
        sureness = (posterior * log_posterior).sum(dim=1).mean()
        loss = F.cross_entropy(logits, hard[rows]) + config.confidence_penalty * sureness
        loss = loss + config.probe_prior_weight * uniform_divergence(posterior)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def write_back(labels: Tensor, logits: Tensor, rate: float) -> None:
    """Moves the labels, in place, by `rate` towards the probe's predictions."""
    with torch.no_grad():
        labels.lerp_(torch.softmax(logits, dim=1), rate)


def on_simplex(labels: Tensor) -> Tensor:
    """Turns unconstrained labels into rows of probabilities [N, C]."""
    positive = labels.clamp(min=0)
    positive = torch.where(positive.sum(dim=1, keepdim=True) > 0, positive, torch.ones_like(positive))
    return positive / positive.sum(dim=1, keepdim=True)
