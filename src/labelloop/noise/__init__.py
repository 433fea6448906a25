"""From labels to noisy labels (step 2 of 5).

A noise is a pure function `(labels, num_classes, rate, rng, images=None, **options) -> Noisy`.
"""

from __future__ import annotations

from collections.abc import Callable

from labelloop.noise.class_conditional import asymmetric_cifar10, asymmetric_cifar100, matrix, pair, symmetric
from labelloop.noise.draw import Noisy, realised_rate
from labelloop.noise.instance_dependent import instance
from labelloop.noise.recorded_labels import recorded

Noise = Callable[..., Noisy]

NOISES: dict[str, Noise] = {
    "symmetric": symmetric,
    "asymmetric-cifar10": asymmetric_cifar10,
    "asymmetric-cifar100": asymmetric_cifar100,
    "pair": pair,
    "matrix": matrix,
    "instance": instance,
    "recorded": recorded,
}

__all__ = ["NOISES", "Noise", "Noisy", "realised_rate"]
