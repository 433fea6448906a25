"""The only place where labels are drawn: one uniform number per sample, compared with its cumulative probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import UsageError
from labelloop.types import MISSING, Labels


def checked_rng(rng: Any) -> np.random.Generator:
    """The generator; anything else, such as a seed, is refused."""
    if not isinstance(rng, np.random.Generator):
        raise UsageError(f"rng is {rng!r}: give a generator, such as labelloop.seeds.stream(seed, 'noise')")
    return rng


def uniforms(rng: np.random.Generator, index: Labels) -> NDArray[np.float64]:
    """One number in [0, 1) per row. It depends on the generator and the sample's index, not on the other rows."""
    return rng.random(int(index.max()) + 1 if len(index) else 0)[index]  # [N]


def draw(labels: Labels, laws: NDArray[np.float64], uniform: NDArray[np.float64]) -> Labels:
    """Draws a label from each row of `laws` [N, C]; a missing label stays missing."""
    cumulative = laws.cumsum(axis=1)  # [N, C]
    # Rounding may leave a row's sum just below 1. Compared with that sum, a class of probability 0 is never drawn.
    drawn = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(axis=1)  # [N]
    return np.where(labels == MISSING, MISSING, drawn).astype(np.int64)
