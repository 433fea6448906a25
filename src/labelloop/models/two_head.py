"""One encoder, two linear heads, for corrected and for noisy labels; inputs are standardised first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from labelloop.errors import DataError
from labelloop.large_arrays import row_chunks

Statistics = tuple[NDArray[np.float64], NDArray[np.float64]]

_CHUNK_VALUES = 2**20  # 8 MB as float64: small next to the inputs, large next to the overhead of one numpy call


class Normalise(nn.Module):
    """Turns a batch into float32 and (x - mean) / std, per channel of images or per column of a matrix.

    A uint8 batch is first divided by 255. A standard deviation of zero becomes 1, so a constant column becomes 0.

    Args:
        mean: One number for each channel or column.
        std: One number for each channel or column.
    """

    mean: Tensor  # [C] channels, or [D] columns
    std: Tensor

    def __init__(self, mean: ArrayLike, std: ArrayLike) -> None:
        super().__init__()
        mean32, std32 = np.array(mean, np.float32), np.array(std, np.float32)
        std32[std32 == 0] = 1
        self.register_buffer("mean", torch.from_numpy(mean32))
        self.register_buffer("std", torch.from_numpy(std32))

    @classmethod
    def identity(cls, size: int = 1) -> Normalise:
        """No normalisation; pixels are still scaled to [0, 1]. `size` is that of the buffers of a state dict."""
        return cls(np.zeros(size), np.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        pixels = x.dtype == torch.uint8
        x = x.to(self.mean.dtype)
        if pixels:
            x = x / 255
        per_channel = (-1, *[1] * (x.ndim - 2))  # dimension 1 is the channel or the column
        return (x - self.mean.view(per_channel)) / self.std.view(per_channel)


def mean_and_std(inputs: NDArray, index: NDArray) -> Statistics:
    """The statistics of some rows, on the scale that `Normalise` sees, without a float copy of the inputs.

    Args:
        inputs: Features [n, D], or images [n, H, W, C].
        index: The rows to use.

    Returns:
        Mean and population standard deviation over the last axis, [D] or [C]. A column that varies by less than
        float32 can hold has a standard deviation of zero.

    Raises:
        DataError: If there are no rows.
    """
    if len(index) == 0:
        raise DataError("normalisation needs at least one training row, but there is none")
    images = inputs.dtype == np.uint8 and inputs.ndim > 2
    mean, std = _of_pixels(inputs, index) if images else _of_floats(inputs, index)
    # Rounding alone gives a constant column a tiny deviation, and dividing by it would blow up new values.
    return mean, np.where(std <= 1e-7 * np.abs(mean), 0.0, std)


def _chunks(inputs: NDArray, index: NDArray) -> Iterator[NDArray]:
    """The rows, a few at a time, as [values, columns]."""
    for rows in row_chunks(len(index), inputs[0].size, _CHUNK_VALUES):
        yield inputs[index[rows]].reshape(-1, inputs.shape[-1])


def _of_pixels(inputs: NDArray, index: NDArray) -> Statistics:
    """Exact, from the counts of the 256 possible values."""
    counts = np.zeros((inputs.shape[-1], 256), np.int64)  # [C, 256]
    for chunk in _chunks(inputs, index):
        for channel, count in enumerate(counts):
            count += np.bincount(chunk[:, channel], minlength=256)
    values = np.arange(256) / 255
    total = counts.sum(axis=1)  # [C]
    mean = counts @ values / total
    variance = (counts * (values - mean[:, None]) ** 2).sum(axis=1) / total
    return mean, np.sqrt(variance)


def _of_floats(inputs: NDArray, index: NDArray) -> Statistics:
    """In two passes and float64, because the mean of squares loses small deviations around a large mean."""
    scale = 255 if inputs.dtype == np.uint8 else 1
    total, count = np.zeros(inputs.shape[-1]), 0
    for chunk in _chunks(inputs, index):
        total += (chunk.astype(np.float64) / scale).sum(axis=0)
        count += len(chunk)
    mean = total / count
    squares = np.zeros_like(mean)
    for chunk in _chunks(inputs, index):
        squares += ((chunk.astype(np.float64) / scale - mean) ** 2).sum(axis=0)
    return mean, np.sqrt(squares / count)


class Outputs(NamedTuple):
    """The output of the classifier for a batch. Logits are before the softmax."""

    features: Tensor  # [B, D]
    logits: Tensor  # [B, C]
    noisy_logits: Tensor  # [B, C]


class TwoHeadClassifier(nn.Module):
    """An encoder with a head for the labels and a head for the noisy labels.

    Args:
        encoder: A module that maps a batch to features [B, D] and has `feature_dim`, as `build_encoder` returns it.
        num_classes: The number of classes of both heads.
        normalise: Applied to a batch before the encoder; None only scales uint8 pixels to [0, 1].
        bfloat16: Whether the encoder computes in bfloat16 where that is safe; its weights and all else stay in float32.
    """

    def __init__(
        self, encoder: nn.Module, num_classes: int, normalise: Normalise | None = None, bfloat16: bool = False
    ) -> None:
        super().__init__()
        self.in_bfloat16 = bfloat16
        feature_dim: Any = encoder.feature_dim
        self.normalise = Normalise.identity() if normalise is None else normalise
        self.encoder = encoder
        # The noisy head comes last: a one-head network from the same seed then has the same encoder and head.
        self.head = nn.Linear(feature_dim, num_classes)
        self.noisy_head = nn.Linear(feature_dim, num_classes)

    def forward(self, x: Tensor) -> Outputs:
        x = self.normalise(x)
        if self.in_bfloat16:
            with torch.autocast(x.device.type, torch.bfloat16):
                features = self.encoder(x).float()  # [B, D]
        else:
            features = self.encoder(x)  # [B, D]
        return Outputs(features, self.head(features), self.noisy_head(features))
