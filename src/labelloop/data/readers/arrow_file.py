"""Files of named columns as Arrow tables: names first, then the columns, so that it can be said which stay text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelloop.data.readers.compressed import PACKED, ending_of
from labelloop.data.readers.csv_file import open_csv, read_csv
from labelloop.data.readers.json_file import read_json_table
from labelloop.data.readers.jsonl_file import read_jsonl
from labelloop.errors import DataError


@dataclass(frozen=True)
class ColumnFile:
    """A file of named columns.

    Attributes:
        names: Of its columns.
        kind: "csv", "tsv", "parquet", "jsonl" or "json".
        read: Gives the columns, from the names of those that stay as they are written and the texts that mean a
            missing number, where the format has no types.
        untyped: Whether the format has no types, so that a label 3 is only text that looks like a number.
        remarks: What was decided while opening it.
        delimiter: What stands between its fields, where that is not what its ending says.
    """

    names: list[str]
    kind: str
    read: Callable[[Iterable[str], Iterable[str]], pa.Table]
    untyped: bool = False
    remarks: tuple[str, ...] = ()
    delimiter: str | None = None


def open_columns(path: Path) -> ColumnFile:
    """Opens a .csv, .tsv, .parquet, .jsonl or .json file; text may be packed as .gz or .zst.

    Raises:
        DataError: It is of another kind, is not there, is empty or cannot be read.
    """
    ending = ending_of(path)
    if ending not in OPENERS:
        raise DataError(
            f"{path}: cannot read {ending or 'a name without an ending'!r} here; use one of {', '.join(OPENERS)}"
        )
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    return OPENERS[ending](path)


def own_columns(path: Path) -> pa.Table:
    """All columns of a file as they are written there."""
    opened = open_columns(path)
    return opened.read(opened.names, ())


def as_text(arrow: pa.Table, name: str) -> NDArray:
    """A column as text, empty where missing."""
    return np.char.strip(np.array(arrow[name].cast(pa.string()).fill_null("").to_pylist(), dtype=str))


def _csv(path: Path) -> ColumnFile:
    file = open_csv(path)
    kind = ending_of(path).removeprefix(".")
    other = file.delimiter if file.remarks else None
    return ColumnFile(file.names, kind, lambda text, na: read_csv(file, text, na), True, file.remarks, other)


def _jsonl(path: Path) -> ColumnFile:
    arrow = read_jsonl(path)
    return ColumnFile(arrow.column_names, "jsonl", lambda *_: arrow)


def _json(path: Path) -> ColumnFile:
    arrow = read_json_table(path)
    return ColumnFile(arrow.column_names, "json", lambda *_: arrow)


def _parquet(path: Path) -> ColumnFile:
    if path.suffix.lower() in PACKED:
        raise DataError(f"{path}: a Parquet file is packed inside already; unpack it")
    try:
        names = pq.read_schema(path).names
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}); write the file again") from error
    return ColumnFile(names, "parquet", lambda *_: _read_parquet(path))


OPENERS: dict[str, Callable[[Path], ColumnFile]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".jsonl": _jsonl,
    ".json": _json,
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
