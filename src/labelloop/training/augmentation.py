"""What is done to a batch at random: crops and flips of uint8 images, and mixup, which blends rows of the batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from torch import Tensor

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


class Blend(NamedTuple):
    """How a batch is blended: row i becomes `share` of itself plus 1 - `share` of row `partner[i]`."""

    partner: Tensor | None  # [B]; None if nothing is blended
    share: float


def mix(x: Tensor, alpha: float, rng: np.random.Generator) -> tuple[Tensor, Tensor | None, float]:
    """Blends a batch with itself in another order; returns it with the fields of its Blend.

    The loss of the blend is the loss on each row's own label plus that on its partner's, with the same shares.

    Args:
        x: Inputs [B, ...]. Pixels become floats in [0, 1] first, as they would in the network.
        alpha: One share for the whole batch is drawn from Beta(alpha, alpha). With 0 the batch is not changed.
        rng: Draws the share and the order.
    """
    partner, share = draw_blend(len(x), alpha, rng)
    if partner is None:
        return x, None, share
    x = as_floats(x)
    return torch.lerp(x[partner.to(x.device)], x, share), partner, share


def draw_blend(count: int, alpha: float, rng: np.random.Generator) -> Blend:
    """Draws how a batch of `count` rows is blended."""
    if alpha == 0:
        return Blend(None, 1.0)
    share = float(rng.beta(alpha, alpha))
    return Blend(torch.from_numpy(rng.permutation(count)), share)


def as_floats(x: Tensor) -> Tensor:
    """Inputs that can be blended: pixels become floats from 0 to 1, as they would in the network."""
    return x / 255 if x.dtype == torch.uint8 else x
