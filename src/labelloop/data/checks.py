"""Checks of rows before training. Each error names the rows and columns, and says what to do."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.data.columns import are_array_names
from labelloop.errors import DataError, some
from labelloop.large_arrays import row_chunks
from labelloop.types import Labels


def check_ids(ids: NDArray, source: str) -> None:
    """Refuses ids that occur more than once."""
    names, first, counts = np.unique(ids, return_index=True, return_counts=True)
    if (counts > 1).any():
        twice = names[counts > 1][np.argsort(first[counts > 1])]
        rows = [f"{name!s} in rows {some(np.flatnonzero(ids == name))}" for name in twice[:5]]
        more = f" and {len(twice) - 5} more" if len(twice) > 5 else ""
        raise DataError(
            f"{source}: {len(twice)} id(s) occur more than once: {'; '.join(rows)}{more} (the first row is 0);"
            " give every row its own id, or name another id column"
        )


def check_finite(values: Any, column_names: Sequence[str], source: str, what: str = "features") -> None:
    """Refuses NaN and infinite numbers. A dataset that is not an array is not checked."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        return
    rows, columns = [], []
    for chunk in row_chunks(len(values), math.prod(values.shape[1:])):
        part = values[chunk]
        bad = ~np.isfinite(part.reshape(len(part), -1))  # [rows, D]
        rows.append(chunk.start + np.flatnonzero(bad.any(axis=1)))
        columns.append(np.flatnonzero(bad.any(axis=0)))
    bad_rows = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
    if len(bad_rows):
        where = np.unique(np.concatenate(columns))
        named = f" in column {some(column_names[j] for j in where)}" if len(column_names) else ""
        raise DataError(
            f"{source}: {what} that are blank, NaN, infinite or too large for float32{named}, row {some(bad_rows)}"
            f" (the first row is 0; {len(bad_rows)} of {len(values)} rows); fill them in, or leave out those rows or"
            " columns"
        )


def check_not_sparse(values: Any, what: str) -> None:
    """Refuses a sparse matrix, which would otherwise pass for a dataset or a single object."""
    if type(values).__module__.startswith("scipy.sparse"):  # without importing scipy, which is slow
        raise DataError(f"{what}: a sparse matrix of shape {values.shape}; convert it with `.toarray()`")


def check_columns(expected: Sequence[str], found: Sequence[str], source: str) -> None:
    """Refuses features that are not those of the model or the other table, in the same order.

    The columns of an array have no names, so for two arrays only the widths are compared.
    """
    alike = are_array_names(expected) and are_array_names(found) and len(expected) == len(found)
    if tuple(expected) == tuple(found) or alike:
        return
    absent = [name for name in expected if name not in set(found)]
    added = [name for name in found if name not in set(expected)]
    parts = [f"missing: {some(absent)}"] if absent else []
    parts += [f"unknown: {some(added)}"] if added else []
    raise DataError(
        f"{source}: found {len(found)} feature columns, expected {len(expected)}"
        f" ({'; '.join(parts) or 'the same in another order'}); name the columns with feature_columns"
    )


def same_content(left: NDArray, right: NDArray) -> tuple[Labels, Labels]:
    """The positions of rows whose input occurs on both sides bit for bit, one pair per row on the left."""
    if left.shape[1:] != right.shape[1:]:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    dtype = np.result_type(left, right)
    return same_ids(_hashes(left, dtype), _hashes(right, dtype))


def _hashes(rows: NDArray, dtype: np.dtype) -> NDArray:
    if not len(rows):
        return np.zeros(0, dtype="S32")
    if dtype.kind == "f":
        rows = rows.astype(dtype) + dtype.type(0)  # -0.0 and 0.0 are the same input
    flat = np.ascontiguousarray(rows.astype(dtype, copy=False)).reshape(len(rows), -1)
    return np.array([hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in flat], dtype="S32")


def same_ids(left: NDArray, right: NDArray) -> tuple[Labels, Labels]:
    """The positions of rows whose id occurs on both sides, as pairs."""
    names, first = np.unique(right, return_index=True)
    if not len(names):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    place = np.minimum(np.searchsorted(names, left), len(names) - 1)
    rows = np.flatnonzero(names[place] == left)
    return rows, first[place[rows]]
