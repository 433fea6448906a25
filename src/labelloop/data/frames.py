"""Data frames of pandas, polars and Arrow: as Arrow tables, aligned by their index, and back in the user's type."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labelloop.data.column_kinds import is_numeric
from labelloop.errors import DataError, some


def is_frame(values: Any) -> bool:
    """Whether this is a table with named columns, of pandas, polars or Arrow."""
    if isinstance(values, pa.Table | pa.RecordBatch):
        return True
    return hasattr(values, "columns") and (hasattr(values, "iloc") or _is_polars(values))


def is_path(values: Any) -> bool:
    """Whether this is the path of a file."""
    return isinstance(values, str | Path)


def are_texts(values: Any) -> bool:
    """Whether these are texts in a list, an array or a column."""
    column = hasattr(values, "iloc") or _is_polars(values) or isinstance(values, list | tuple | np.ndarray)
    if not column or is_frame(values) or getattr(values, "ndim", 1) != 1 or not len(values):
        return False
    return all(isinstance(value, str) for value in values)


def arrow_of(frame: Any, source: str) -> pa.Table:
    """A frame as an Arrow table of plain columns: categories as their values, texts as one type.

    Raises:
        DataError: A column cannot be converted, or two have the same name.
    """
    if _is_polars(frame):
        arrow = (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
    elif isinstance(frame, pa.Table):
        arrow = frame
    elif isinstance(frame, pa.RecordBatch):
        arrow = pa.Table.from_batches([frame])
    else:
        arrow = _from_pandas(frame, source)
    names = [str(name) for name in arrow.column_names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{source}: columns named twice: {some(map(repr, twice))}; give every column its own name")
    return pa.table([_plain(column) for column in arrow.columns], names=names)


def _from_pandas(frame: Any, source: str) -> pa.Table:
    names = [str(name) for name in frame.columns]
    columns = []
    for place, name in enumerate(names):
        try:
            columns.append(pa.array(frame.iloc[:, place], from_pandas=True))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
            kinds = sorted({type(value).__name__ for value in frame.iloc[:, place]})
            raise DataError(
                f"{source}: column {name!r} holds values of several types ({some(kinds)}: {error}); write it as text or"
                " as numbers, or leave it out"
            ) from error
    return pa.Table.from_arrays(columns, names=names)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_large_string(kind) or str(kind) == "string_view":
        return column.cast(pa.string())
    return column


def _is_polars(values: Any) -> bool:
    return type(values).__module__.partition(".")[0] == "polars"


def are_plain_numbers(arrow: pa.Table) -> bool:
    """Whether every column is numbers without a gap."""
    return all(is_numeric(column.type) and not column.null_count and not _has_nan(column) for column in arrow.columns)


def _has_nan(column: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def check_aligned(**parts: Any) -> None:
    """Refuses parts with indexes that disagree: by position, rows would get labels of other rows.

    Args:
        parts: By name, frames or series of pandas; anything else has no index.

    Raises:
        DataError: With the first row that differs.
    """
    indexed = {name: part.index for name, part in parts.items() if hasattr(part, "iloc")}
    if len(indexed) < 2:
        return
    (first, index), *others = indexed.items()
    for name, other in others:
        if len(index) != len(other):
            continue  # said where lengths are compared
        if not index.equals(other):
            row = int(np.argmax(np.asarray(index != other)))
            raise DataError(
                f"{first} and {name} have different indexes: row {row} is {index[row]!r} in {first} and {other[row]!r}"
                f" in {name} (the first row is 0); align them, as in {name}.loc[{first}.index], or drop the indexes"
                " with .to_numpy() if the rows are in the same order"
            )


def in_their_type(labels: pa.Table, rows: Any) -> Any:
    """The columns of labels.parquet beside the user's own, in the user's type and with its index.

    Args:
        labels: labels.parquet, in the order of the rows.
        rows: The user's frame, or a series or another frame with the index; None for arrays and files.

    Returns:
        For None, a data frame of pandas if that is installed, else an Arrow table.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    own = [str(name) for name in rows.columns] if _is_polars(rows) or (hasattr(rows, "iloc") and is_frame(rows)) else []
    own = rows.column_names if isinstance(rows, pa.Table) else own
    labels = labels if rows is None or not own else labels.drop_columns(["id"])
    labels = labels.rename_columns([_free(name, own) for name in labels.column_names])
    if isinstance(rows, pa.Table):
        return pa.table([*rows.columns, *labels.columns], names=[*rows.column_names, *labels.column_names])
    if _is_polars(rows):
        polars = import_module("polars")
        found = polars.from_arrow(labels)
        rows = rows.collect() if hasattr(rows, "collect") else rows
        return found if not own else polars.concat([rows, found], how="horizontal")
    try:
        pandas = import_module("pandas")
    except ImportError:
        return labels
    found = labels.to_pandas()
    if not hasattr(rows, "iloc"):
        return found
    found.index = rows.index
    return found if not own else pandas.concat([rows, found], axis=1)


def _free(name: str, taken: Sequence[str]) -> str:
    return f"labelloop_{name}" if name in taken else name
