"""Random crop with zero padding, and horizontal flip, for a whole batch of uint8 images at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PADDING = 4  # PAPER.md, guess 31


def crop_and_flip(images: NDArray[np.uint8], rng: np.random.Generator, padding: int = PADDING) -> NDArray[np.uint8]:
    """Shifts every image by up to `padding` pixels each way, zeros moving in, and mirrors every second one or so.

    Args:
        images: [B, H, W, C].
        rng: Three numbers are drawn for every image.
        padding: Pixels.
    """
    count, height, width, channels = images.shape
    padded = np.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    top = rng.integers(0, 2 * padding + 1, (count, 1))
    left = rng.integers(0, 2 * padding + 1, (count, 1))
    flipped = rng.random((count, 1)) < 0.5
    columns = np.where(flipped, np.arange(width)[::-1], np.arange(width)) + left  # [B, W]
    rows = np.arange(height) + top  # [B, H]
    # One flat gather of whole pixels is several times faster than three-way fancy indexing.
    line = (np.arange(count)[:, None] * padded.shape[1] + rows) * padded.shape[2]  # [B, H]
    pixel = line[:, :, None] + columns[:, None, :]  # [B, H, W]
    return padded.reshape(-1, channels).take(pixel.ravel(), axis=0).reshape(images.shape)
