"""Files of named columns as Arrow tables: names first, then the columns, so that it can be said which stay text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelloop.data.readers.csv_file import csv_header, read_csv
from labelloop.data.readers.jsonl_file import read_jsonl
from labelloop.errors import DataError


@dataclass(frozen=True)
class ColumnFile:
    """A file of named columns.

    Attributes:
        names: Of its columns.
        read: Gives the columns; those named to it stay as they are written, where the format has no types.
        untyped: Whether the format has no types, so that a label 3 is only text that looks like a number.
    """

    names: list[str]
    read: Callable[[Iterable[str]], pa.Table]
    untyped: bool = False


def open_columns(path: Path) -> ColumnFile:
    """Opens a .csv, .tsv, .parquet or .jsonl file.

    Raises:
        DataError: It is of another kind, is not there, is empty or cannot be read.
    """
    ending = path.suffix.lower()
    if ending not in OPENERS:
        raise DataError(
            f"{path}: cannot read {ending or 'a name without an ending'!r} here; use one of {', '.join(OPENERS)}"
        )
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    return OPENERS[ending](path)


def as_text(arrow: pa.Table, name: str) -> NDArray:
    """A column as text, empty where missing."""
    return np.char.strip(np.array(arrow[name].cast(pa.string()).fill_null("").to_pylist(), dtype=str))


def _csv(path: Path) -> ColumnFile:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    names = csv_header(path, delimiter)
    return ColumnFile(names, lambda text: read_csv(path, delimiter, len(names), text), untyped=True)


def _jsonl(path: Path) -> ColumnFile:
    arrow = read_jsonl(path)
    return ColumnFile(arrow.column_names, lambda _: arrow)


def _parquet(path: Path) -> ColumnFile:
    try:
        names = pq.read_schema(path).names
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}); write the file again") from error
    return ColumnFile(names, lambda _: _read_parquet(path))


OPENERS: dict[str, Callable[[Path], ColumnFile]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".jsonl": _jsonl,
}


def _read_parquet(path: Path) -> pa.Table:
    try:
        arrow = pq.read_table(path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}); write the file again") from error
    return pa.table([_decoded(column) for column in arrow.columns], names=arrow.column_names)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A categorical column as its plain values."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
