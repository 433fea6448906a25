"""Instance-dependent noise (Xia et al. 2020): the input decides how likely its label is to flip, and to which class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from labelloop.errors import DataError, UsageError, nearest
from labelloop.noise.draw import Noisy, checked_labels, checked_rate, checked_rng, draw
from labelloop.types import MISSING, Labels

SCALES = ("raw", "unit", "standard")
SPREAD = 0.1  # standard deviation of a sample's own rate, before truncation
_CHUNK = 2**24  # numbers of one chunk of inputs: 128 MB in float64


def instance(
    labels: ArrayLike, num_classes: int, rate: float, rng: Generator, images: Any = None, *, scale: str = "raw"
) -> Noisy:
    """Each sample has its own flip rate, and a random projection of its input decides the new class.

    The projections depend only on the generator, and a row's rate and draw only on its position: with "raw" or "unit",
    the first rows get the same probabilities and labels however many follow.

    Args:
        labels: The true labels [N]; -1 is missing and stays so.
        num_classes: How many classes there are.
        rate: The mean of the samples' rates before truncation to [0, 1]; 0 changes nothing.
        rng: From `labelloop.seeds.stream`.
        images: Pixels [N, height, width, channels] or features [N, D], aligned with the labels.
        scale: "raw" takes the numbers as they are: the mean image dominates, so each class flips mostly to a few
            others. "unit" divides uint8 pixels by 255. "standard" gives every channel (or column) mean 0 and
            deviation 1 over these rows, which is closer to symmetric noise and easier.
    """
    labels, rate = checked_labels(labels, num_classes), checked_rate(rate)
    laws = np.zeros((len(labels), num_classes))  # [N, C]
    if rate == 0:  # the truncated normal would not be zero: its mean is 0.08
        present = np.flatnonzero(labels != MISSING)
        laws[present, labels[present]] = 1
        return Noisy(labels=labels, matrix=None, probabilities=laws, rate=rate)

    inputs = _checked_inputs(images, len(labels))
    shift, divisor = _scaling(inputs, scale)
    rate_rng, projection_rng, label_rng = checked_rng(rng).spawn(3)
    own_rates = _truncated_normal(rate_rng.random(len(labels)), rate)  # [N]
    for true, class_rng in enumerate(projection_rng.spawn(num_classes)):
        rows = np.flatnonzero(labels == true)
        if len(rows):  # one class at a time: all projections of CIFAR-100 at once would take 250 MB
            activations = _project(inputs, rows, class_rng, num_classes, shift, divisor)
            laws[rows] = _flip_laws(activations, true, own_rates[rows])
    noisy = draw(labels, laws, label_rng.random(len(labels)))
    return Noisy(labels=noisy, matrix=None, probabilities=laws, rate=rate)


def _truncated_normal(uniform: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Normal around `mean`, truncated to [0, 1], by inverting its distribution function at `uniform`."""
    low, high = ndtr(-mean / SPREAD), ndtr((1 - mean) / SPREAD)
    return np.clip(mean + SPREAD * ndtri(low + uniform * (high - low)), 0, 1)


def _project(
    inputs: NDArray[Any],
    rows: Labels,
    rng: Generator,
    num_classes: int,
    shift: NDArray[np.float64],
    divisor: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The projected inputs of one class: x W, with W standard normal."""
    size = int(np.prod(inputs.shape[1:]))
    projection = rng.standard_normal((size, num_classes))  # [S, C]
    step = max(1, _CHUNK // size)
    parts = []
    for start in range(0, len(rows), step):
        chunk = rows[start : start + step]
        # float64: in float32 the sum over raw pixels would depend on how many rows are multiplied at once.
        scaled = (inputs[chunk].astype(np.float64) - shift) / divisor
        part = scaled.reshape(len(chunk), size) @ projection  # [B, C]
        bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
        if len(bad):
            raise DataError(f"row {chunk[bad[0]]}: the input holds NaN or infinity: fill it in or leave the row out")
        parts.append(part)
    return np.concatenate(parts)  # [N of the class, C]


def _flip_laws(activations: NDArray[np.float64], true: int, own_rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The true label has probability 1 - q; the others share q by softmax."""
    activations[:, true] = -np.inf
    weights = np.exp(activations - activations.max(axis=1, keepdims=True))
    laws = own_rates[:, None] * weights / weights.sum(axis=1, keepdims=True)  # [N of the class, C]
    laws[:, true] = 1 - own_rates
    return laws


def _checked_inputs(images: Any, rows: int) -> NDArray[Any]:
    if images is None:
        raise UsageError("instance noise looks at the inputs: give images=, pixels or features, one row per label")
    inputs = np.asarray(images)
    if inputs.ndim < 2 or inputs.dtype.kind not in "biuf" or 0 in inputs.shape[1:]:
        raise DataError(
            f"images are {inputs.dtype} of shape {inputs.shape}: give pixels [N, H, W, C] or features [N, D]"
        )
    if len(inputs) != rows:
        raise DataError(f"{rows} labels but {len(inputs)} images: give those of exactly these rows, in their order")
    return inputs


def _scaling(inputs: NDArray[Any], scale: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What to subtract from every input, and what to divide it by."""
    if scale not in SCALES:
        raise UsageError(f"instance noise has no scale {scale!r}: {nearest(str(scale), SCALES)}")
    if scale == "unit":
        if inputs.dtype != np.uint8:
            raise UsageError(f"scale 'unit' is for uint8 pixels, not {inputs.dtype}: use 'raw' or 'standard'")
        return np.array(0.0), np.array(255.0)
    if scale == "standard" and len(inputs):
        # One mean per column of a table, per channel of colour images; a single one for grey images.
        axes = {2: (0,), 4: (0, 1, 2)}.get(inputs.ndim)
        mean = inputs.mean(axis=axes, dtype=np.float64)
        deviation = inputs.std(axis=axes, dtype=np.float64)
        return mean, np.where(deviation > 0, deviation, 1.0)
    return np.array(0.0), np.array(1.0)
