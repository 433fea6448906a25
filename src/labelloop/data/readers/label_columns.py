"""Labels and ids from the columns of an Arrow table, as written by the user."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelloop.data.classes import numbers_where_all_are
from labelloop.data.columns import Roles, plain
from labelloop.errors import DataError, some
from labelloop.types import MISSING

# What people write in a column that says whether a row was verified.
WORDS = "true false yes no y n t f x ok 0 1 done checked verified none nan"


def labels_of(
    arrow: pa.Table, roles: Roles, path: Path, untyped: bool, markers: Sequence[str]
) -> tuple[NDArray | None, NDArray | None]:
    """The given and the clean labels. In an `untyped` file, labels that are all whole numbers become numbers."""
    names = (roles.label, roles.clean)
    columns = [None if name is None else _label(arrow[name], name, path, markers) for name in names]
    labels, clean_labels = numbers_where_all_are(columns, markers) if untyped else columns
    return labels, clean_labels


def without_flags(arrow: pa.Table, roles: Roles, path: Path) -> Roles:
    """The roles without a guessed column `verified` that only says whether or by whom, and holds no labels."""
    name = roles.clean
    if name is None or not roles.clean_guessed or plain(name) != "verified":
        return roles
    values = _values(arrow[name])
    given = set() if roles.label is None else _values(arrow[roles.label])
    if not {value.lower() for value in values} <= set(WORDS.split()) and (not given or values <= given):
        return roles
    warnings.warn(
        f"{path}: column {name!r} holds {some(sorted(values), 3)}, which {'say' if len(values) > 1 else 'says'} that a"
        " row was verified, not its label, so it is not used as clean labels; name the column that holds them"
        " with clean_column",
        stacklevel=4,
    )
    return replace(roles, clean=None, clean_guessed=False, flag=name)


def _values(column: pa.ChunkedArray) -> set[str]:
    return {str(value).strip().removesuffix(".0") for value in column.unique().to_pylist() if value is not None} - {""}


def refuse_lists(arrow: pa.Table, roles: Roles, path: Path) -> None:
    """Refuses columns of lists or records as labels."""
    for name in (roles.label, roles.clean):
        if name is not None and pa.types.is_nested(arrow[name].type):
            raise _no_labels(name, arrow[name].type, path)


def _no_labels(name: str, kind: pa.DataType, path: Path) -> DataError:
    return DataError(f"{path}: column {name!r} is of type {kind}, which cannot hold labels; use text or whole numbers")


def written(arrow: pa.Table, name: str | None, *, stripped: bool = True) -> Counter[str]:
    """The count of each label in a column that is not blank; blanks around labels are removed if `stripped`."""
    if name is None:
        return Counter()
    counts = arrow[name].value_counts().to_pylist()
    found: Counter[str] = Counter()
    for pair in counts:
        value = pair["values"]
        if value is not None and value == value:
            text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
            found[text.strip() if stripped else text] += pair["counts"]
    return found


def ids_of(arrow: pa.Table, name: str, path: Path) -> NDArray:
    """A column of ids as text; none may be blank."""
    ids = np.array(arrow[name].cast(pa.string()).fill_null("").to_pylist(), dtype=str)
    blank = np.flatnonzero(ids == "")
    if len(blank):
        raise DataError(f"{path}: column {name!r} has no id in row {some(blank)} (the first row is 0); fill it in")
    return ids


def _label(column: pa.ChunkedArray, name: str, path: Path, markers: Sequence[str]) -> NDArray:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(column.fill_null("").to_pylist(), dtype=str)
    if column.null_count and (pa.types.is_uint64(kind) or (pa.types.is_integer(kind) and "-1" not in markers)):
        return np.array(column.to_pylist(), dtype=object)  # some may be too large for a signed integer
    if pa.types.is_integer(kind):
        return column.to_numpy() if not column.null_count else column.cast(pa.int64()).fill_null(MISSING).to_numpy()
    if pa.types.is_floating(kind):
        return column.cast(pa.float64()).to_numpy()
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        values = column.to_pylist()
        return np.array(values, dtype=object if column.null_count else bool)
    raise _no_labels(name, kind, path)
