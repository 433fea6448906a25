"""Class-conditional noise: every label is drawn from one matrix T[true, noisy]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from labelloop.errors import UsageError, nearest
from labelloop.noise.draw import Noisy, changes_nothing, checked_labels, checked_matrix, checked_rate, checked_rng, draw
from labelloop.types import MISSING

CONVENTIONS = ("all", "others")

_FOUR_FLIPS = {9: 1, 2: 0, 4: 7, 3: 5}  # truck -> automobile, bird -> airplane, deer -> horse, cat -> dog
CIFAR10_FLIPS = {"four": _FOUR_FLIPS, "five": {**_FOUR_FLIPS, 5: 3}}  # the fifth: dog -> cat

# Ten classes per line, in the data set's own (alphabetical) order, from apple to worm.
CIFAR100_COARSE = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3),
    *(3, 14, 9, 18, 7, 11, 3, 9, 7, 11),
    *(6, 11, 5, 10, 7, 6, 13, 15, 3, 15),
    *(0, 11, 1, 10, 12, 14, 16, 9, 11, 5),
    *(5, 19, 8, 8, 15, 13, 14, 17, 18, 10),
    *(16, 4, 17, 4, 2, 0, 17, 4, 18, 17),
    *(10, 3, 2, 12, 12, 16, 12, 1, 9, 19),
    *(2, 10, 0, 1, 16, 12, 9, 13, 15, 13),
    *(16, 19, 2, 4, 6, 19, 5, 5, 8, 19),
    *(18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)


def symmetric(
    labels: ArrayLike, num_classes: int, rate: float, rng: Generator, images: Any = None, *, convention: str = "all"
) -> Noisy:
    """The same noise for every class.

    Args:
        labels: The true labels [N]; -1 is missing and stays so.
        num_classes: How many classes there are.
        rate: The probability that a label is redrawn.
        rng: From `labelloop.seeds.stream`.
        images: Ignored.
        convention: "all" redraws among all classes, so that a share of `rate * (C - 1) / C` is wrong; "others" redraws
            among the other classes, so that a share of `rate` is wrong.
    """
    labels, rate = checked_labels(labels, num_classes), checked_rate(rate)
    if convention not in CONVENTIONS:
        raise UsageError(f"symmetric noise has no convention {convention!r}: {nearest(str(convention), CONVENTIONS)}")
    if convention == "all":
        transition = (1 - rate) * np.eye(num_classes) + rate / num_classes
    else:
        transition = np.full((num_classes, num_classes), rate / (num_classes - 1))
        np.fill_diagonal(transition, 1 - rate)
    return _drawn(labels, transition, rate, rng)


def asymmetric_cifar10(
    labels: ArrayLike, num_classes: int, rate: float, rng: Generator, images: Any = None, *, flips: str = "four"
) -> Noisy:
    """Flips between CIFAR-10 classes that look alike: each in the map becomes its partner with probability `rate`.

    `flips` is "four" (truck -> automobile, bird -> airplane, deer -> horse, cat -> dog) or "five" (dog -> cat as well).
    The other arguments are those of `symmetric`.
    """
    _need_classes(num_classes, 10, "asymmetric-cifar10", "CIFAR-10")
    labels, rate = checked_labels(labels, num_classes), checked_rate(rate)
    if flips not in CIFAR10_FLIPS:
        raise UsageError(f"asymmetric-cifar10 noise has no flips {flips!r}: {nearest(str(flips), CIFAR10_FLIPS)}")
    transition = np.eye(10)
    for true, noisy in CIFAR10_FLIPS[flips].items():
        transition[true, true] = 1 - rate
        transition[true, noisy] = rate
    return _drawn(labels, transition, rate, rng)


def asymmetric_cifar100(labels: ArrayLike, num_classes: int, rate: float, rng: Generator, images: Any = None) -> Noisy:
    """Flips within a CIFAR-100 super-class: to each of its four other classes with probability `rate / 4`.

    The arguments are those of `symmetric`.
    """
    _need_classes(num_classes, 100, "asymmetric-cifar100", "CIFAR-100")
    labels, rate = checked_labels(labels, num_classes), checked_rate(rate)
    coarse = np.array(CIFAR100_COARSE)
    transition = (coarse[:, None] == coarse[None, :]) * (rate / 4)  # [C, C]
    np.fill_diagonal(transition, 1 - rate)
    return _drawn(labels, transition, rate, rng)


def pair(labels: ArrayLike, num_classes: int, rate: float, rng: Generator, images: Any = None) -> Noisy:
    """Asymmetric noise for any data: class i becomes i + 1, and the last becomes the first, with probability `rate`.

    The arguments are those of `symmetric`.
    """
    labels, rate = checked_labels(labels, num_classes), checked_rate(rate)
    same = np.eye(num_classes)
    return _drawn(labels, (1 - rate) * same + rate * np.roll(same, 1, axis=1), rate, rng)


def matrix(
    labels: ArrayLike,
    num_classes: int,
    rate: float | None,
    rng: Generator,
    images: Any = None,
    *,
    matrix: ArrayLike | None = None,
) -> Noisy:
    """Noise from any row-stochastic matrix.

    `matrix[true][noisy]` holds the probabilities and so sets the rate: `rate` is 1 (or None) to draw from it, or 0 for
    no noise. The nominal rate of the result is the one expected from the matrix on these labels.
    The other arguments are those of `symmetric`.
    """
    labels = checked_labels(labels, num_classes)
    if changes_nothing(rate, "the matrix"):
        transition = np.eye(num_classes)
    elif matrix is None:
        raise UsageError("matrix noise needs a matrix: give matrix=[[...], ...], T[true][noisy], rows that sum to 1")
    else:
        transition = checked_matrix(matrix, num_classes)
    present = labels[labels != MISSING]
    expected = float(np.mean(1 - np.diag(transition)[present])) if len(present) else 0.0
    return _drawn(labels, transition, expected, rng)


def _need_classes(num_classes: int, needed: int, noise: str, data: str) -> None:
    if num_classes != needed:
        raise UsageError(
            f"{noise} noise is made for the {needed} classes of {data}, but there are {num_classes}: "
            "use 'pair' for asymmetric noise on other data, or 'matrix' for your own map"
        )


def _drawn(labels: NDArray[np.int64], transition: NDArray[np.float64], rate: float, rng: Generator) -> Noisy:
    uniform = checked_rng(rng).random(len(labels))  # [N]; that of a row does not depend on the rows behind it
    noisy = draw(labels, transition[labels], uniform)  # a missing label (-1) reads the last row, and stays missing
    return Noisy(labels=noisy, matrix=transition, probabilities=None, rate=rate)
