"""DivideMix: rows with large losses lose their label, and two networks guess labels for each other.

Li et al., "DivideMix: Learning with Noisy Labels as Semi-supervised Learning", ICLR 2020. The paper evaluates both
networks together; here only the first is evaluated and returned, because a result is one network.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from labelloop.config.base import TrainingConfig, check_settings
from labelloop.errors import UsageError
from labelloop.models import TwoHeadClassifier, evaluating
from labelloop.seeds import integer, stream
from labelloop.splits import labelled_rows, one_hot
from labelloop.training.averaging import WeightAverage, from_arrays, to_arrays
from labelloop.training.batches import augmented_batches
from labelloop.training.epoch import extract
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer, seed_torch
from labelloop.types import MISSING, Fitted, Floats, Labels, Problem, Rows


@dataclass(frozen=True)
class Config(TrainingConfig):
    """DivideMix's settings. The defaults are those of its published code for CIFAR-10.

    Attributes:
        warm_up: Epochs of cross-entropy before labels are dropped. Published: 10 for CIFAR-10, 30 for CIFAR-100.
        confidence_penalty: The weight of a penalty on confident predictions in the warm-up. Published: 1 for asymmetric
            noise, 0 for symmetric.
        threshold: A row keeps its label if the probability that it is right is above this.
        temperature: Values below 1 sharpen the labels that the networks guess.
        mixup: The parameter of the beta distribution from which mixing shares are drawn.
        unlabelled_weight: The weight of the loss on rows without a label. Published: 0 to 150, more for more noise.
        ramp_up: Epochs over which that weight grows from 0.
        jitter: Augments columns, which have no crops and flips, by noise of this many standard deviations.
    """

    warm_up: int = 10
    confidence_penalty: float = 0.0
    threshold: float = 0.5
    temperature: float = 0.5
    mixup: float = 4.0
    unlabelled_weight: float = 25.0
    ramp_up: int = 16
    jitter: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(
            self,
            counts=("warm_up", "ramp_up"),
            positive=("temperature", "mixup"),
            not_negative=("confidence_penalty", "unlabelled_weight", "jitter"),
            below_one=("threshold",),
        )
        if self.warm_up >= self.epochs:
            raise UsageError(
                f"no label would ever be doubted: warm_up is {self.warm_up} and epochs only {self.epochs}; "
                "lower warm_up or raise epochs"
            )


class Learner(NamedTuple):
    """One of the two networks."""

    number: int  # 0 or 1, names its random streams
    model: TwoHeadClassifier
    optimizer: torch.optim.Optimizer


class Trusted(NamedTuple):
    """The training rows, and how far the other network trusts their labels."""

    rows: Rows
    given: Floats  # [N, C] one-hot
    trust: Floats  # [N] the probability that the label is right


class Batch(NamedTuple):
    """Two views of rows with a label and of as many without."""

    labelled: tuple[Tensor, Tensor]
    unlabelled: tuple[Tensor, Tensor]
    given: Tensor  # [B, C] one-hot
    trust: Tensor  # [B] the probability that the label is right


# --- the loop --------------------------------------------------------------------------------------------------------


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains two networks and returns the first. The clean rows are not used.

    Args:
        problem: Training rows with noisy labels.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    targets = given = one_hot(problem.train.labels, problem.num_classes)  # [N, C]
    _, known = labelled_rows(problem.train)
    seeds = (runtime.seed, integer(runtime.seed, "second network"))
    models = [runtime.prepare(new_classifier(config, problem, seed)) for seed in seeds]
    optimizers = [new_optimizer(model, config) for model in models]
    average = WeightAverage(models[0], optimizers[0], config.average_weights)
    if saved := runtime.restore(models[0], optimizers[0], average):
        from_arrays("second", models[1], saved.arrays)
        from_arrays("second-optimizer", optimizers[1], saved.arrays)
        targets = saved.arrays["targets"]

    for epoch in runtime.epochs(config.epochs):
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch)
        losses, kept = [], 1.0
        if epoch > config.warm_up:
            with runtime.phase("divide"):
                logits = [extract(model, problem.train, runtime).logits for model in models]  # [N, C] each
                runtime.check_outputs(epoch - 1, *logits)
                trust = [
                    trusted(problem.train.labels, each, integer(runtime.seed, "mixture", epoch, k))
                    for k, each in enumerate(logits)
                ]  # [N] each
                targets = refined_labels(given, logits, trust, config)
                kept = float((trust[1] > config.threshold).mean())
        for k, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            learner = Learner(k, model, optimizer)
            with runtime.phase("train"):
                seed_torch(integer(runtime.seed, "dropout", epoch, k))
                if epoch <= config.warm_up:
                    loss = warm_up_epoch(learner, known, config, runtime, epoch)
                else:  # each uses the trust of the other, or both would confirm their own mistakes
                    trusted_rows = Trusted(problem.train, given, trust[1 - k])
                    loss = mix_epoch(learner, models[1 - k], trusted_rows, config, runtime, epoch)
            losses.append(loss)
        runtime.record(epoch, average.model, problem, targets, {"loss": losses[0], "kept": kept})
        arrays = {"targets": targets} | to_arrays("second", models[1]) | to_arrays("second-optimizer", optimizers[1])
        runtime.save(epoch, models[0], optimizers[0], arrays, average=average)
    return Fitted(average.model, targets, (), "epoch limit")


def warm_up_epoch(learner: Learner, train: Rows, config: Config, runtime: Runtime, epoch: int) -> float:
    """Cross-entropy on the given labels for one epoch of one network. Returns the mean loss."""
    k, model, optimizer = learner.number, learner.model, learner.optimizer
    model.train()
    labels = torch.from_numpy(train.labels).to(runtime.device)
    order = stream(runtime.seed, "batches", epoch, k).permutation(len(train))
    total = torch.zeros((), device=runtime.device)
    for position, x in augmented_batches(train, order, config.batch_size, config, runtime, epoch, f"network {k}"):
        logits = model(x).logits
        loss = F.cross_entropy(logits, labels[torch.from_numpy(position).to(runtime.device)])
        if config.confidence_penalty > 0:
            sureness = (torch.softmax(logits, dim=1) * F.log_softmax(logits, dim=1)).sum(dim=1).mean()
            loss = loss + config.confidence_penalty * sureness
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(position)
    return float(total) / len(train)


def mix_epoch(
    learner: Learner, peer: TwoHeadClassifier, train: Trusted, config: Config, runtime: Runtime, epoch: int
) -> float:
    """One epoch of one network over the rows whose label the peer trusts. Returns the mean loss."""
    model, optimizer = learner.model, learner.optimizer
    model.train()
    rng = stream(runtime.seed, "mixup", epoch, learner.number)
    kept = np.flatnonzero(train.trust > config.threshold)
    if not len(kept):  # the mixture trusts no label: continue with all of them
        kept = np.flatnonzero(train.given.any(axis=1))
    doubted = np.setdiff1d(np.arange(len(train.rows)), kept)
    order = rng.permutation(kept)
    others = repeated(doubted if len(doubted) else kept, len(order), rng)
    steps = -(-len(order) // config.batch_size)
    total = torch.zeros((), device=runtime.device)
    for step, batch in enumerate(_batches(learner, train, order, others, config, runtime, epoch)):
        weight = config.unlabelled_weight * min(1.0, (epoch - 1 - config.warm_up + step / steps) / config.ramp_up)
        inputs, targets = guessed(model, peer, batch, config.temperature)
        share = rng.beta(config.mixup, config.mixup)
        share = max(share, 1 - share)
        partner = torch.from_numpy(rng.permutation(len(inputs))).to(runtime.device)
        logits = model(torch.lerp(inputs[partner], inputs, share)).logits
        loss = mix_loss(logits, torch.lerp(targets[partner], targets, share), 2 * len(batch.given), weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(batch.given)
    return float(total) / len(order)


def _batches(
    learner: Learner, train: Trusted, order: Labels, others: Labels, config: Config, runtime: Runtime, epoch: int
) -> Iterator[Batch]:
    """Two views of the rows in `order`, with two views of as many others."""
    given, trust = runtime.tensor(train.given), runtime.tensor(train.trust)
    names = [f"network {learner.number} view {view}" for view in range(4)]
    views = [
        augmented_batches(train.rows, rows, config.batch_size, config, runtime, epoch, name)
        for name, rows in zip(names, (order, order, others, others), strict=True)
    ]
    for (position, x1), (_, x2), (_, u1), (_, u2) in zip(*views, strict=True):
        index = torch.from_numpy(position).to(runtime.device)
        x1, x2, u1, u2 = (as_floats(x, config.jitter * learner.model.normalise.std) for x in (x1, x2, u1, u2))
        yield Batch((x1, x2), (u1, u2), given[index], trust[index])


# --- the parts -------------------------------------------------------------------------------------------------------


def trusted(labels: Labels, logits: Floats, seed: int) -> Floats:
    """The probability that each given label is right [N]: that its loss belongs to the lower of two Gaussians."""
    trust = np.zeros(len(labels), np.float32)  # stays 0 for a row without a label
    known = np.flatnonzero(labels != MISSING)
    losses = F.cross_entropy(torch.from_numpy(logits[known]), torch.from_numpy(labels[known]), reduction="none").numpy()
    trust[known] = lower_component(losses, seed)
    return trust


def lower_component(losses: Floats, seed: int) -> Floats:
    """The probability that a loss comes from the lower of two Gaussians [N]."""
    from sklearn.exceptions import ConvergenceWarning  # slow to import, so only when asked for
    from sklearn.mixture import GaussianMixture

    if len(losses) < 2:
        return np.ones(len(losses), np.float32)  # no reason to doubt any
    spread = losses.max() - losses.min()
    scaled = ((losses - losses.min()) / (spread if spread > 0 else 1)).reshape(-1, 1).astype(np.float64)
    mixture = GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=seed % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ten iterations are enough by design
        mixture.fit(scaled)
    return mixture.predict_proba(scaled)[:, mixture.means_.argmin()].astype(np.float32)


def refined_labels(given: Floats, logits: Sequence[Floats], trust: Sequence[Floats], config: Config) -> Floats:
    """What both networks together take the labels for [N, C]."""
    posterior = torch.stack([torch.softmax(torch.from_numpy(each), dim=1) for each in logits]).mean(dim=0)
    share = torch.from_numpy(np.mean(trust, axis=0))  # [N]
    share = torch.where(share > config.threshold, share, 0)
    return sharpened(mixed(torch.from_numpy(given), posterior, share), config.temperature).numpy()


def guessed(
    model: TwoHeadClassifier, peer: TwoHeadClassifier, batch: Batch, temperature: float
) -> tuple[Tensor, Tensor]:
    """All views of a batch and their labels: refined where there is a trusted one, guessed by both networks elsewhere.

    Returns:
        Inputs [4 B, ...], the rows with a label first, and soft labels [4 B, C], detached.
    """
    inputs = torch.cat([*batch.labelled, *batch.unlabelled])
    with torch.no_grad(), evaluating(peer):
        first, second, other_first, other_second = torch.softmax(model(inputs).logits, dim=1).chunk(4)  # [B, C] each
        peer_first, peer_second = torch.softmax(peer(torch.cat(batch.unlabelled)).logits, dim=1).chunk(2)
        refined = sharpened(mixed(batch.given, (first + second) / 2, batch.trust), temperature)
        guess = sharpened((other_first + other_second + peer_first + peer_second) / 4, temperature)
    return inputs, torch.cat([refined, refined, guess, guess])


def mixed(given: Tensor, posterior: Tensor, trust: Tensor) -> Tensor:
    """The given labels as far as they are trusted, the posterior for the rest [B, C]."""
    return torch.lerp(posterior, given, trust[:, None])


def sharpened(posterior: Tensor, temperature: float) -> Tensor:
    """Rows of probabilities to the power of 1 / temperature, summing to 1 again."""
    powers = posterior ** (1 / temperature)
    return powers / powers.sum(dim=1, keepdim=True)


def mix_loss(logits: Tensor, targets: Tensor, labelled: int, unlabelled_weight: float) -> Tensor:
    """Cross-entropy on the first `labelled` rows, squared error on the others, and a pull to all classes alike."""
    posterior = torch.softmax(logits, dim=1)
    cross_entropy = -(targets * F.log_softmax(logits, dim=1))[:labelled].sum(dim=1).mean()
    squared = (posterior - targets)[labelled:].square().mean()
    prior = -torch.log(posterior.mean(dim=0) * posterior.shape[1]).mean()  # KL(uniform || mean posterior)
    return cross_entropy + unlabelled_weight * squared + prior


def as_floats(x: Tensor, jitter: Tensor) -> Tensor:
    """Inputs that can be mixed: pixels from 0 to 1 as the network scales them, columns with some noise."""
    if x.ndim == 2:
        return x + jitter * torch.randn_like(x)
    return x / 255 if x.dtype == torch.uint8 else x


def repeated(rows: Labels, count: int, rng: np.random.Generator) -> Labels:
    """`count` rows at random; all come before one comes again."""
    return np.concatenate([rng.permutation(rows) for _ in range(-(-count // len(rows)))])[:count]
