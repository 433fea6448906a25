"""From configuration and rows to a network and its optimiser; settings of torch and malloc for the whole process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from labelloop.config.base import TrainingConfig
from labelloop.models import Normalise, TwoHeadClassifier, build_encoder, load_encoder, mean_and_std
from labelloop.seeds import integer
from labelloop.training.averaging import WeightAverage
from labelloop.training.batches import input_shape, is_images
from labelloop.types import NARROW, Problem, Rows, StreamedStore

if TYPE_CHECKING:
    from labelloop.training.runtime import Runtime

Config = TypeVar("Config", bound=TrainingConfig)

WIDER = 10.0  # times the deviation of the median column: a wider column would drown out the others


def seed_torch(seed: int) -> None:
    """Does what `torch.manual_seed` does.

    That function formats the call stack once for every kind of device that has not started yet, which takes longer than
    a step of a small network. Where there is no accelerator, only the generator of the CPU is left to seed.
    """
    if _has_accelerator():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@cache
def _has_accelerator() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()


def resolve(config: Config, problem: Problem) -> Config:
    """Replaces every "auto" by its value for these rows, so that the run folder records what was used."""
    network, augment, normalise = config.network, config.augment, config.normalise
    shape = input_shape(problem.train)
    if network == "auto":
        network = "mlp" if len(shape) == 1 else "small-cnn"
    if augment == "auto":  # grey images are often digits or letters, which do not survive a mirror
        own = isinstance(problem.train.inputs, StreamedStore)
        augment = "own" if own else "crop-flip" if is_images(problem.train) and shape[0] == 3 else "none"
    if normalise == "auto":
        normalise = "whole" if len(shape) == 1 and not has_own_scales(problem.train) else "columns"
    if not isinstance(problem.train.inputs, np.ndarray):
        normalise = "none"  # a dataset scales its own items
    return replace(config, network=network, augment=augment, normalise=normalise)


def has_own_scales(rows: Rows) -> bool:
    """Whether an array looks like a table whose columns have their own units: few columns, one far wider than most."""
    if not isinstance(rows.inputs, np.ndarray) or rows.inputs.shape[1] >= NARROW or not len(rows):
        return False
    _, deviation = mean_and_std(rows.inputs, rows.index)
    varying = deviation[deviation > 0]
    return len(varying) > 0 and bool(varying.max() > WIDER * np.median(varying))


def new_classifier(config: TrainingConfig, problem: Problem, seed: int) -> TwoHeadClassifier:
    """A network with new weights (or those of `config.weights`) that depend only on the seed."""
    train = problem.train
    with torch.random.fork_rng(devices=[]):
        seed_torch(integer(seed, "network"))
        encoder = build_encoder(config.network, input_shape(train), config.network_options)
        normalise = _normalise(config.normalise, train)
        model = TwoHeadClassifier(encoder, problem.num_classes, normalise, config.precision == "bfloat16")
    if config.weights:
        load_encoder(model.encoder, Path(config.weights))
    if config.compile:
        model.encoder.compile()
    return model


def _normalise(how: str, train: Rows) -> Normalise:
    size = input_shape(train)[0]
    if how == "none":
        return Normalise.identity(size)
    mean, std = mean_and_std(train.inputs, train.index)
    return Normalise(mean, np.full(size, np.sqrt((std**2).mean())) if how == "whole" else std)


class SGD(torch.optim.SGD):
    """torch's SGD without the decorators that import its compiler at the first call, which takes two seconds."""

    add_param_group = inspect.unwrap(torch.optim.SGD.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.SGD.zero_grad)
    state_dict = inspect.unwrap(torch.optim.SGD.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.SGD.load_state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """A step, without gradients as the decorator has it."""
        return inspect.unwrap(torch.optim.SGD.step)(self, closure)


def new_optimizer(model: TwoHeadClassifier, config: TrainingConfig) -> SGD:
    """SGD; with two parameter groups if the encoder has its own learning rate, each with its `factor`."""
    groups: list[Any] = list(model.parameters())
    if config.encoder_learning_rate_factor != 1:
        encoder = list(model.encoder.parameters())
        own = {id(weight) for weight in encoder}
        groups = [
            {"params": encoder, "factor": config.encoder_learning_rate_factor},
            {"params": [weight for weight in groups if id(weight) not in own], "factor": 1.0},
        ]
    return SGD(groups, lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay)


def new_model(
    config: TrainingConfig, problem: Problem, runtime: Runtime
) -> tuple[TwoHeadClassifier, SGD, WeightAverage]:
    """A new classifier on the device, its optimiser, and its averaged weights: without averaging, its own."""
    model = runtime.prepare(new_classifier(config, problem, runtime.seed))
    optimizer = new_optimizer(model, config)
    return model, optimizer, WeightAverage(model, optimizer, config.average_weights)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of every group, times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)
