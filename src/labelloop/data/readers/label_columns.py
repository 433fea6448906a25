"""Labels and ids from the columns of an Arrow table, as the user wrote them."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelloop.data.classes import numbers_where_all_are
from labelloop.data.columns import Roles
from labelloop.errors import DataError, some
from labelloop.types import MISSING


def labels_of(arrow: pa.Table, roles: Roles, path: Path, untyped: bool) -> tuple[NDArray | None, NDArray | None]:
    """The given and the clean labels. In an `untyped` file, labels that are all whole numbers become numbers."""
    clean_name = roles.clean
    if clean_name == "verified" and roles.clean_guessed and _is_flag(arrow[clean_name]):
        # Yes or no for "was it verified" is not a label; taking it for one would make two classes of it.
        warnings.warn(
            f"{path}: column 'verified' holds true and false, so it is not taken for the clean labels;"
            " name the column that holds them with clean_column",
            stacklevel=4,
        )
        clean_name = None
    columns = [None if name is None else _label(arrow[name], name, path) for name in (roles.label, clean_name)]
    labels, clean_labels = numbers_where_all_are(columns) if untyped else columns
    return labels, clean_labels


def ids_of(arrow: pa.Table, name: str, path: Path) -> NDArray:
    """A column of ids as text; none may be blank."""
    ids = np.array(arrow[name].cast(pa.string()).fill_null("").to_pylist(), dtype=str)
    blank = np.flatnonzero(ids == "")
    if len(blank):
        raise DataError(f"{path}: column {name!r} has no id in row {some(blank)} (the first row is 0); fill it in")
    return ids


def _is_flag(column: pa.ChunkedArray) -> bool:
    if pa.types.is_string(column.type):
        return {str(value).strip().lower() for value in column.unique().to_pylist()} <= {"true", "false", "none", ""}
    return pa.types.is_boolean(column.type)


def _label(column: pa.ChunkedArray, name: str, path: Path) -> NDArray:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(column.fill_null("").to_pylist(), dtype=str)
    if pa.types.is_uint64(kind) and column.null_count:
        return np.array(column.to_pylist(), dtype=object)  # some may be too large for a signed number
    if pa.types.is_integer(kind):
        return column.to_numpy() if not column.null_count else column.cast(pa.int64()).fill_null(MISSING).to_numpy()
    if pa.types.is_floating(kind):
        return column.cast(pa.float64()).to_numpy()
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        values = column.to_pylist()
        return np.array(values, dtype=object if column.null_count else bool)
    raise DataError(f"{path}: column {name!r} is of type {kind}, which cannot hold labels; use text or whole numbers")
