"""Checks what an encoder returned, and converts it to float32 [N, D]."""

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
    """Refuses anything but finite numbers [N, D] with the same D as before.

    Args:
        found: What the encoder returned.
        rows: The rows it was given, for messages.
        width: The numbers per row so far, or None.
        where: The start of every message.
    """
    found = to_numbers(found)
    if found.dtype.kind not in "biuf":
        raise DataError(f"{where}: returned {found.dtype}, not numbers; return an array [N, D] of numbers")
    count = len(rows)
    if found.ndim != 2 or len(found) != count or not found.shape[1]:
        raise DataError(f"{where}: returned an array of shape {found.shape} for {count} rows; expected ({count}, D)")
    if width is not None and found.shape[1] != width:
        raise DataError(
            f"{where}: returned {found.shape[1]} numbers per row, but {width} before; every row needs the same"
            " number, so use the same encoder"
        )
    with np.errstate(over="ignore"):  # reported below
        values = found.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise DataError(
            f"{where}: returned numbers that are NaN, infinite or too large for float32, in row"
            f" {some(sorted(rows[position] for position in bad.tolist()))} (the first row is 0)"
        )
    return values
