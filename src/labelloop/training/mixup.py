"""Mixup: every row of a batch is blended with another row of the same batch.

Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Blend(NamedTuple):
    """How a batch is blended: row i becomes `share` of itself plus 1 - `share` of row `partner[i]`."""

    partner: Tensor | None  # [B]; None if nothing is blended
    share: float


class Mixed(NamedTuple):
    """A batch in which row i is `share` of itself plus 1 - `share` of row `partner[i]`.

    The loss of the blend is the loss on each row's own label plus that on its partner's, with the same shares.
    """

    x: Tensor
    partner: Tensor | None  # [B]; None if nothing is blended
    share: float


def mix(x: Tensor, alpha: float, rng: np.random.Generator) -> Mixed:
    """Blends a batch with itself in another order.

    Args:
        x: Inputs [B, ...]. Pixels become floats in [0, 1] first, as they would in the network.
        alpha: One share for the whole batch is drawn from Beta(alpha, alpha). With 0 the batch is not changed.
        rng: Draws the share and the order.
    """
    partner, share = draw_blend(len(x), alpha, rng)
    if partner is None:
        return Mixed(x, None, share)
    x = as_floats(x)
    return Mixed(torch.lerp(x[partner.to(x.device)], x, share), partner, share)


def draw_blend(count: int, alpha: float, rng: np.random.Generator) -> Blend:
    """Draws how a batch of `count` rows is blended."""
    if alpha == 0:
        return Blend(None, 1.0)
    share = float(rng.beta(alpha, alpha))
    return Blend(torch.from_numpy(rng.permutation(count)), share)


def as_floats(x: Tensor) -> Tensor:
    """Inputs that can be blended: pixels become floats from 0 to 1, as they would in the network."""
    return x / 255 if x.dtype == torch.uint8 else x
