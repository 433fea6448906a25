"""Files of named columns as Arrow tables: names first, then columns, so that some can be kept as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelloop.data.readers.compressed import PACKED, ending_of
from labelloop.data.readers.csv_file import open_csv, padded_columns, read_csv
from labelloop.data.readers.json_file import read_json_table
from labelloop.data.readers.jsonl_file import read_jsonl
from labelloop.data.readers.parquet_parts import column_names, parts_of, read_parquet
from labelloop.errors import DataError, some

PARTS = "parquet-folder"


@dataclass(frozen=True)
class ColumnFile:
    """A file of named columns.

    Attributes:
        names: The names of its columns.
        kind: "csv", "tsv", "parquet", "parquet-folder", "jsonl" or "json".
        read: Reads the columns. For formats without types it takes the names of columns to keep as text and the texts
            that mean a missing number.
        untyped: Whether the format has no types, so that a label 3 is only text that looks like a number.
        remarks: What was decided while opening it.
        delimiter: The delimiter, if it is not the one that the extension implies.
        padded: Columns of numbers that are written with leading zeros, and an example of each.
    """

    names: list[str]
    kind: str
    read: Callable[[Iterable[str], Iterable[str]], pa.Table]
    untyped: bool = False
    remarks: tuple[str, ...] = ()
    delimiter: str | None = None
    padded: Mapping[str, str] = field(default_factory=dict)


def open_columns(path: Path) -> ColumnFile:
    """Opens a .csv, .tsv, .parquet, .jsonl or .json file, or a folder of Parquet parts; text may be compressed.

    Raises:
        DataError: It is of another kind, missing, empty or unreadable.
    """
    if path.is_dir() and parts_of(path):
        return _with_own_names(_parquet(path), path)
    ending = ending_of(path)
    if ending not in OPENERS:
        raise DataError(
            f"{path}: cannot read {ending or 'a name without an extension'!r} here; use one of {', '.join(OPENERS)}"
        )
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    return _with_own_names(OPENERS[ending](path), path)


def _with_own_names(file: ColumnFile, path: Path) -> ColumnFile:
    twice = sorted({name for name in file.names if file.names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: columns named twice: {some(map(repr, twice))}; give every column its own name")
    return file


def own_columns(path: Path) -> pa.Table:
    """All columns of a file as they are written."""
    opened = open_columns(path)
    return opened.read(opened.names, ())


def as_text(arrow: pa.Table, name: str) -> NDArray:
    """A column as text, empty where missing."""
    return np.char.strip(np.array(arrow[name].cast(pa.string()).fill_null("").to_pylist(), dtype=str))


def _csv(path: Path) -> ColumnFile:
    file = open_csv(path)
    kind = ending_of(path).removeprefix(".")
    other = file.delimiter if file.remarks else None
    padded = padded_columns(file)
    return ColumnFile(file.names, kind, lambda text, na: read_csv(file, text, na), True, file.remarks, other, padded)


def _jsonl(path: Path) -> ColumnFile:
    arrow = read_jsonl(path)
    return ColumnFile(arrow.column_names, "jsonl", lambda *_: arrow)


def _json(path: Path) -> ColumnFile:
    arrow = read_json_table(path)
    return ColumnFile(arrow.column_names, "json", lambda *_: arrow)


def _parquet(path: Path) -> ColumnFile:
    if path.suffix.lower() in PACKED:
        raise DataError(f"{path}: Parquet is already compressed; unpack the file")
    return ColumnFile(column_names(path), PARTS if path.is_dir() else "parquet", lambda *_: read_parquet(path))


OPENERS: dict[str, Callable[[Path], ColumnFile]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".jsonl": _jsonl,
    ".json": _json,
}
