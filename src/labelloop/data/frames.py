"""Data frames of pandas, polars and Arrow: as Arrow tables, aligned by their index, and back in the user's type."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labelloop.data.classes import is_nan
from labelloop.data.column_kinds import CATEGORY, is_numeric
from labelloop.errors import DataError, some

SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # of a duration


def is_frame(values: Any) -> bool:
    """Whether this is a table with named columns, of pandas, polars or Arrow."""
    if isinstance(values, pa.Table | pa.RecordBatch) or _is_polars(values):
        return type(values).__name__ != "Series"
    return hasattr(values, "columns") and hasattr(values, "iloc")


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
    """A frame as an Arrow table of plain columns: see `plain_columns`; and texts as one type.

    Raises:
        DataError: A column cannot be converted, or two have the same name.

    Warns:
        UserWarning: A column holds text and numbers, which are read as text.
    """
    if _is_polars(frame):
        try:
            arrow = (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
        except pa.ArrowInvalid as error:
            raise DataError(f"{source}: a type of column that Arrow does not have ({error}); cast it") from error
    elif isinstance(frame, pa.Table):
        arrow = frame
    elif isinstance(frame, pa.RecordBatch):
        arrow = pa.Table.from_batches([frame])
    else:
        arrow = _from_pandas(frame, source)
    names = [str(name) for name in arrow.column_names]
    check_names(names, source)
    found = plain_columns(arrow.rename_columns(names))
    for place, field in enumerate(found.schema):
        if pa.types.is_large_string(field.type) or str(field.type) == "string_view":
            found = found.set_column(place, field.name, found[field.name].cast(pa.string()))
    return found


def check_names(names: Sequence[str], source: object) -> None:
    """Refuses columns of the same name."""
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise DataError(f"{source}: columns named twice: {some(map(repr, twice))}; give every column its own name")


def _from_pandas(frame: Any, source: str) -> pa.Table:
    columns = []
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        kind = str(getattr(getattr(column, "cat", column), "categories", column).dtype)
        if kind.startswith("interval"):  # of pandas.cut
            column = column.astype(object).map(str, na_action="ignore")
        elif kind.startswith(("period", "Sparse")):
            column = column.dt.to_timestamp() if kind.startswith("period") else column.sparse.to_dense()
        try:
            columns.append(pa.array(column, from_pandas=True))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
            columns.append(_mixed(column.tolist(), f"{source}: column {str(name)!r}", error))
    return pa.Table.from_arrays(columns, names=[str(name) for name in frame.columns])


def _mixed(values: list[Any], what: str, error: Exception) -> pa.Array:
    """Text and numbers in one column as text, as a file would have them; numbers of another byte order as numbers."""
    known = {row: value for row, value in enumerate(values) if value is not None and not is_nan(value)}
    if all(isinstance(value, float | np.floating) for value in known.values()):
        return pa.array([float(known.get(row, np.nan)) for row in range(len(values))], from_pandas=True)
    first = next(iter(known))
    other = next((row for row, value in known.items() if type(value) is not type(known[first])), first)
    kinds = " and ".join(dict.fromkeys(type(known[row]).__name__ for row in (first, other)))
    shown = f"{what} holds values of type {kinds}, such as {known[other]!r:.60} in row {other} (the first row is 0)"
    if not all(isinstance(value, str | int | float) for value in known.values()):
        raise DataError(f"{shown}: {error}; write it as text or as numbers, or leave it out") from error
    warnings.warn(f"{shown}; it is read as text", stacklevel=7)
    return pa.array([in_text(known.get(row)) for row in range(len(values))], pa.string())


def in_text(value: Any) -> str | None:
    """A cell as text: 3 for 3.0, and a duration as hours, minutes and seconds."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, timedelta):
        minutes, seconds = divmod(int(abs(value).total_seconds()), 60)
        return f"{'-' * (value < timedelta())}{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
    return None if value is None else str(value)


def plain_columns(arrow: pa.Table) -> pa.Table:
    """The table with categories as their values and durations in seconds.

    A column of numbers that was declared as categories is marked as such: see `is_category`.
    """
    columns, fields = [], []
    for field, found in zip(arrow.schema, arrow.columns, strict=True):
        kind, column, about = field.type, found, None
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
            numbers = is_numeric(kind.value_type) and not pa.types.is_boolean(kind.value_type)
            about = CATEGORY if numbers and not kind.ordered else None
        elif pa.types.is_duration(kind):
            column = pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), SECONDS[kind.unit])
        columns.append(column)
        fields.append(pa.field(field.name, column.type, metadata=about))
    return pa.table(columns, schema=pa.schema(fields))


def _is_polars(values: Any) -> bool:
    return type(values).__module__.partition(".")[0] == "polars"


def are_plain_numbers(arrow: pa.Table) -> bool:
    """Whether every column is numbers without a gap."""
    return all(
        is_numeric(column.type) and not pc.any(pc.is_null(column, nan_is_null=True)).as_py() for column in arrow.columns
    )


def check_parts(**parts: Any) -> None:
    """Refuses masked arrays, whose mask would be lost, and indexes that disagree, by which rows would be mixed up.

    Args:
        parts: By name; frames and series of pandas have an index.

    Raises:
        DataError: With the first row that differs.
    """
    if masked := [name for name, part in parts.items() if isinstance(part, np.ma.MaskedArray) and part.mask.any()]:
        how = "`.filled(np.nan)` of numbers, or `.filled(-1)` or `.filled('')` of labels"
        raise DataError(f"{masked[0]}: a masked array, whose mask would be lost; give {how}")
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
    rows = rows.collect() if hasattr(rows, "collect") else rows  # a LazyFrame
    own = getattr(rows, "column_names", getattr(rows, "columns", ())) if is_frame(rows) else ()
    own = [str(name) for name in own]
    labels = labels.drop_columns(["id"]) if own else labels
    labels = labels.rename_columns([_free(name, own) for name in labels.column_names])
    if isinstance(rows, pa.Table):
        return pa.table([*rows.columns, *labels.columns], names=[*rows.column_names, *labels.column_names])
    if _is_polars(rows):
        polars = import_module("polars")
        found = polars.from_arrow(labels)
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
