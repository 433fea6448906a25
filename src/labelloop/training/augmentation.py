"""Random crop with zero padding, and horizontal flip, for a whole batch of uint8 images at once."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

PADDING = 4  # PAPER.md, guess 31


def crop_and_flip(
    images: NDArray[np.uint8],
    rng: np.random.Generator,
    padding: int = PADDING,
    among: tuple[int, NDArray[np.int64]] | None = None,
) -> NDArray[np.uint8]:
    """Shifts every image by up to `padding` pixels each way, filled with zeros, and mirrors it half of the time.

    Args:
        images: [B, H, W, C].
        rng: Draws three numbers for every image.
        padding: Pixels.
        among: If these are only some images of a batch, the size of the batch and their positions in it; each is
            augmented as it would be in the whole batch.
    """
    count, height, width, channels = images.shape
    total, place = (count, slice(None)) if among is None else among
    shifts = 2 * padding + 1
    top, left, flipped = (drawn[place] for drawn in draw_crops(total, rng, padding))
    padded = np.zeros((count, height + 2 * padding, width + 2 * padding, channels), np.uint8)
    padded[:, padding : padding + height, padding : padding + width] = images
    # All crops of all images as a view [B, shifts, shifts, H, W, C]; choosing one of each copies whole rows of pixels.
    image, row, column, channel = padded.strides
    shape = (count, shifts, shifts, height, width, channels)
    crops = as_strided(padded, shape, (image, row, column, row, column, channel), writeable=False)
    chosen = crops[np.arange(count), top, left]  # [B, H, W, C]
    pixels = chosen.view(f"V{channels}")[..., 0]  # [B, H, W]: a pixel is moved in one piece, not channel by channel
    pixels[flipped] = pixels[flipped][:, :, ::-1]
    return chosen


def draw_crops(
    count: int, rng: np.random.Generator, padding: int = PADDING
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """How far each of `count` images is shifted down and right, and whether it is mirrored."""
    top, left = rng.integers(0, 2 * padding + 1, (2, count))
    return top, left, rng.random(count) < 0.5
