"""From configuration and rows to a network and its optimiser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from labelloop.models import Normalise, TwoHeadClassifier, build_encoder, load_encoder, mean_and_std
from labelloop.seeds import integer
from labelloop.training.batches import input_shape, is_images
from labelloop.training.config import TrainingConfig
from labelloop.types import Problem

Config = TypeVar("Config", bound=TrainingConfig)


def resolve(config: Config, problem: Problem) -> Config:
    """Replaces every "auto" by what it means for these rows, so that the run folder says what was done."""
    network, augment = config.network, config.augment
    shape = input_shape(problem.train)
    if network == "auto":
        network = "mlp" if len(shape) == 1 else "small-cnn"
    if augment == "auto":  # grey images are often digits or letters, which do not survive a mirror
        augment = "crop-flip" if is_images(problem.train) and shape[0] == 3 else "none"
    return replace(config, network=network, augment=augment)


def new_classifier(config: TrainingConfig, problem: Problem, seed: int) -> TwoHeadClassifier:
    """A network with fresh weights (or those of `config.weights`), fixed by the seed alone."""
    train = problem.train
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(seed, "network"))
        encoder = build_encoder(config.network, input_shape(train), config.network_options)
        if config.normalise and isinstance(train.inputs, np.ndarray):
            normalise = Normalise(*mean_and_std(train.inputs, train.index))
        else:
            normalise = Normalise.identity()
        model = TwoHeadClassifier(encoder, problem.num_classes, normalise)
    if config.weights:
        load_encoder(model.encoder, Path(config.weights))
    return model


def new_optimizer(model: TwoHeadClassifier, config: TrainingConfig) -> torch.optim.SGD:
    return torch.optim.SGD(
        model.parameters(), lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay
    )
