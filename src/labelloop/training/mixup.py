"""Mixup: a batch is trained on as a blend of itself with itself in another order.

Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Mixed(NamedTuple):
    """A batch in which row i is `share` of itself and 1 - `share` of row `partner[i]`.

    The loss of the blend is that towards each row's own label and that towards its partner's, by the same shares.
    """

    x: Tensor
    partner: Tensor | None  # [B]; None where nothing is blended
    share: float


def mix(x: Tensor, alpha: float, rng: np.random.Generator) -> Mixed:
    """Blends a batch with itself in another order.

    Args:
        x: Inputs [B, ...]. Pixels become floats in [0, 1] first, as the network would make them.
        alpha: The share is drawn from Beta(alpha, alpha), one for the batch. With 0 the batch stays as it is.
        rng: What share and order are drawn from.
    """
    if alpha == 0:
        return Mixed(x, None, 1.0)
    share = float(rng.beta(alpha, alpha))
    partner = torch.from_numpy(rng.permutation(len(x)))
    x = x / 255 if x.dtype == torch.uint8 else x
    return Mixed(torch.lerp(x[partner.to(x.device)], x, share), partner, share)
