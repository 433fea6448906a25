"""What an encoder returned, as float32 [N, D], or a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, some
from labelloop.types import Floats


def to_numbers(found: Any) -> NDArray:
    """An array from an array, a sparse matrix, a tensor or lists."""
    if hasattr(found, "toarray"):  # a sparse matrix
        found = found.toarray()
    elif hasattr(found, "detach"):  # a tensor, perhaps on another device
        found = found.detach().cpu().float()
    return np.asarray(found)


def checked(found: Any, rows: Sequence[int], width: int | None, where: str) -> Floats:
    """Refuses all that is not finite numbers [N, D] with the D of before.

    Args:
        found: What the encoder returned.
        rows: The rows it was asked for, for messages.
        width: The numbers per row before, or None.
        where: Begins a message.
    """
    found = to_numbers(found)
    if found.dtype.kind not in "biuf":
        raise DataError(f"{where}: returned {found.dtype} and not numbers; return an array [N, D] of numbers")
    count = len(rows)
    if found.ndim != 2 or len(found) != count or not found.shape[1]:
        raise DataError(f"{where}: {count} rows gave an array of shape {found.shape}; expected ({count}, D)")
    if width is not None and found.shape[1] != width:
        raise DataError(
            f"{where}: {found.shape[1]} numbers per row, and {width} before; every row needs the same, so take the"
            " encoder as it was"
        )
    with np.errstate(over="ignore"):  # said below
        values = found.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise DataError(
            f"{where}: numbers that are NaN, infinite or too large for float32 in row"
            f" {some(sorted(rows[position] for position in bad.tolist()))} (the first row is 0)"
        )
    return values
