"""Named random streams: the same seed and names always give the same stream, and no stream touches another.

Because a stream is named by what it is for (and by the epoch or round), nothing random has to be saved to resume a run.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from labelloop.errors import UsageError


def _sequence(seed: int, names: tuple[str | int, ...]) -> np.random.SeedSequence:
    words = [zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names]
    return np.random.SeedSequence([seed, *words])


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator of its own for `names`, such as ("batches", epoch)."""
    return np.random.default_rng(_sequence(seed, names))


def integer(seed: int, *names: str | int) -> int:
    """A seed for a library that wants a number, such as torch."""
    return int(_sequence(seed, names).generate_state(1, np.uint64)[0]) >> 1


def whole_seed(seed: Any) -> int:
    """A seed as a user gave it, if it is one."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise UsageError(f"seed must be a whole number, but is {seed!r}")
    if seed < 0:
        raise UsageError(f"seed must not be negative, but is {seed}")
    return int(seed)
