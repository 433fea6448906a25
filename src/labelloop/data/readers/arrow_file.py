"""Files of named columns as Arrow tables: names first, then columns. Parquet may be a folder of parts.

Of an .xlsx file the first sheet is read, with column names in its first row. That needs openpyxl.
"""

from __future__ import annotations

import datetime
import errno
import mmap
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelloop.data.frames import check_names, in_text, plain_columns
from labelloop.data.pillow import needing
from labelloop.data.readers import csv_file
from labelloop.errors import DataError
from labelloop.large_arrays import current_limit, is_large, keep_track
from labelloop.trust import TooLarge, check_growth, check_parquet

ROWS = 16_384  # rows at a time, or fewer
SHARE = 64  # the rows that are read at a time take at most this part of the limit
READ = 2**20  # bytes read from a file at a time
ENDING = ".parquet"

PARTS = "parquet-folder"
MOST_CELLS = 20_000_000


def parts_of(path: Path) -> list[Path]:
    """The parts in a folder and its subfolders, sorted by name; a file is its only part."""
    if not path.is_dir():
        return [path]
    return sorted(part for part in path.rglob(f"*{ENDING}") if part.is_file() and not part.name.startswith((".", "_")))


def column_names(path: Path) -> list[str]:
    """The names of the columns, the same in every part.

    Raises:
        DataError: A part cannot be read, or has other columns.
    """
    parts = parts_of(path)
    first = _schema(parts[0])
    for part in parts[1:]:
        other = _schema(part)
        if not other.equals(first):
            odd = next((f.name for f in (*first, *other) if f not in list(first) or f not in list(other)), None)
            why = "they are in another order" if odd is None else f"column {odd!r} is missing or of another type"
            raise DataError(
                f"{part}: its columns differ from those of {parts[0]} ({why}); write all parts alike, or move it away"
            )
    return first.names


def read_parquet(path: Path) -> pa.Table:
    """All columns of a file, or of the parts of a folder one after the other; categorical ones as plain values."""
    parts = parts_of(path)
    with _as_parquet(path):
        metadata = [pq.read_metadata(part) for part in parts]
        for part, about in zip(parts, metadata, strict=True):
            check_parquet(part, about)
        if is_large(sum(map(_bytes_of, metadata))):
            return _mapped(parts)
        arrow = pa.concat_tables([pq.read_table(part) for part in parts])
        arrow.validate(full=True)  # or a text that is none is found where it is read
    return plain_columns(arrow)


def _schema(part: Path) -> pa.Schema:
    with _as_parquet(part):
        return pq.read_schema(part).remove_metadata()


@contextmanager
def _as_parquet(path: Path) -> Iterator[None]:
    """Says in one line that a file cannot be read; a full disk is no fault of the file."""
    try:
        yield
    except TooLarge as error:
        raise DataError(f"{path}: {error}") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        if _is_full(error):
            raise
        raise DataError(f"{path}: cannot be read as Parquet ({error}); write the file again") from error


def _mapped(parts: Sequence[Path]) -> pa.Table:
    """The rows in an unnamed memory-mapped file: only the parts in use take memory."""
    schema = pa.schema([_plain(field) for field in _schema(parts[0])])
    folder = current_limit().folder
    with tempfile.TemporaryFile(dir=folder, prefix="labelloop-") as file:
        try:
            with pa.ipc.new_file(pa.PythonFile(file, mode="w"), schema) as writer:
                for batch in _batches(parts):
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        except OSError as error:
            if not _is_full(error):
                raise
            words = "no disk space for rows that are too large for memory (see --max-memory)"
            raise OSError(errno.ENOSPC, words, str(folder or tempfile.gettempdir())) from error
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    keep_track(mapped)
    return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped))).read_all()


def _is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and (error.errno == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(error))


def _batches(parts: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        with pq.ParquetFile(part, buffer_size=READ, pre_buffer=False) as file:
            rows = current_limit().bytes // SHARE * file.metadata.num_rows // max(_bytes_of(file.metadata), 1)
            for batch in file.iter_batches(batch_size=min(max(rows, 1), ROWS)):
                batch.validate(full=True)
                yield batch
                pa.default_memory_pool().release_unused()


def _bytes_of(metadata: pq.FileMetaData) -> int:
    """The size of a file's rows, decompressed."""
    return sum(metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups))


def _plain(field: pa.Field) -> pa.Field:
    kind = field.type
    return pa.field(field.name, kind.value_type if pa.types.is_dictionary(kind) else kind)


@dataclass(frozen=True)
class ColumnFile:
    """A file of named columns.

    Attributes:
        names: The names of its columns.
        kind: "csv", "tsv", "parquet", "parquet-folder", "jsonl", "json" or "xlsx".
        read: Reads the columns. For formats without types it takes the names of columns to keep as text and the texts
            that mean a missing number.
        untyped: Whether the format has no types, so that a label 3 is only text that looks like a number.
        remarks: What was decided while opening it.
        delimiter: The delimiter, if it is not the one that the extension implies.
        padded: Columns of numbers that may be meant in another way, and how they are read.
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
    parted = path.is_dir() and bool(parts_of(path))
    ending = ENDING if parted else csv_file.ending_of(path)
    if ending not in OPENERS:
        raise DataError(
            f"{path}: cannot read {ending or 'a name without an extension'!r} here; use one of {', '.join(OPENERS)}"
        )
    if not parted:
        csv_file.check_file(path)
    file = OPENERS[ending](path)
    check_names(file.names, path)
    return file


def own_columns(path: Path) -> pa.Table:
    """All columns of a file as they are written."""
    opened = open_columns(path)
    return opened.read(opened.names, ())


def as_text(arrow: pa.Table, name: str) -> NDArray:
    """A column as text, empty where missing."""
    return np.char.strip(np.array(arrow[name].cast(pa.string()).fill_null("").to_pylist(), dtype=str))


def _csv(path: Path) -> ColumnFile:
    file, kind = csv_file.open_csv(path), csv_file.ending_of(path).removeprefix(".")
    read, padded = partial(csv_file.read_csv, file), csv_file.padded_columns(file)
    return ColumnFile(file.names, kind, read, True, file.remarks, file.other_delimiter, padded)


def _json(path: Path) -> ColumnFile:
    kind = csv_file.ending_of(path).removeprefix(".")
    arrow = csv_file.read_json_table(path) if kind == "json" else csv_file.read_jsonl(path)
    return ColumnFile(arrow.column_names, kind, lambda *_: arrow)


def _parquet(path: Path) -> ColumnFile:
    if path.suffix.lower() in csv_file.PACKED:
        raise DataError(f"{path}: Parquet is already compressed; unpack the file")
    return ColumnFile(column_names(path), PARTS if path.is_dir() else "parquet", lambda *_: read_parquet(path))


def _xlsx(path: Path) -> ColumnFile:
    arrow, remarks = read_xlsx(path)

    def read(text: Iterable[str], _: Iterable[str]) -> pa.Table:
        """Labels are text, because a sheet may hold 1 and "1"."""
        found = arrow
        for place, name in enumerate(arrow.column_names):
            if name in set(text) and not pa.types.is_boolean(arrow[name].type):
                found = found.set_column(place, name, found[name].cast(pa.string()))
        return found

    return ColumnFile(arrow.column_names, "xlsx", read, True, remarks)


OPENERS: dict[str, Callable[[Path], ColumnFile]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".jsonl": _json,
    ".json": _json,
    ".xlsx": _xlsx,
}


def read_xlsx(path: Path) -> tuple[pa.Table, tuple[str, ...]]:
    """The rows of the first sheet, and remarks. Formulas count as the values that were stored with them.

    Raises:
        UsageError: openpyxl is not installed.
        DataError: It cannot be read, or has no names in its first row.
    """
    with needing("xlsx", f"{path}: reading .xlsx"):
        openpyxl = import_module("openpyxl")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles that nobody reads
            with zipfile.ZipFile(path) as archive:
                check_growth(path.stat().st_size, sum(info.file_size for info in archive.infolist()))
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            sheets = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"] or book.worksheets
            sheet = sheets[0]
            if (sheet.max_row or 0) * (sheet.max_column or 0) > MOST_CELLS:
                raise DataError(f"{path}: more than {MOST_CELLS:,} cells; save the sheet as .csv or .parquet")
            rows = [list(row) for row in sheet.iter_rows(values_only=True)]
            book.close()
            if any(all(value is None for value in column[1:]) for column in zip(*rows, strict=False)):
                with closing(openpyxl.load_workbook(path, read_only=True)) as book:
                    _refuse_formulas(book[sheet.title], path)
    except DataError:
        raise
    except Exception as error:  # a broken archive may raise anything of zipfile and of the parser of XML
        raise DataError(f"{path}: cannot be read as .xlsx ({error}); save it again, or as .csv") from error
    rows = [row for row in rows if any(value is not None for value in row)]
    if not rows:
        raise DataError(f"{path}: the sheet {sheet.title!r} is empty; the first row must hold the column names")
    width = max(len(row) for row in rows)
    names = [*rows[0], *[None] * (width - len(rows[0]))]
    used = [j for j in range(width) if names[j] is not None or any(len(row) > j and row[j] is not None for row in rows)]
    if unnamed := [j + 1 for j in used if names[j] is None]:
        raise DataError(
            f"{path}: column {unnamed[0]} of sheet {sheet.title!r} has no name in the first row; name all columns"
        )
    arrays = [_cells([row[j] if len(row) > j else None for row in rows[1:]]) for j in used]
    remarks = (f"the first sheet of {len(sheets)} is read, {sheet.title!r}",) if len(sheets) > 1 else ()
    return pa.Table.from_arrays(arrays, names=[str(names[j]).strip() for j in used]), remarks


def _refuse_formulas(sheet: Any, path: Path) -> None:
    """Refuses a column of formulas without stored values, which would read as empty."""
    for column in zip(*sheet.iter_rows(values_only=True), strict=False):
        if formula := next((value for value in column if isinstance(value, str) and value.startswith("=")), None):
            raise DataError(
                f"{path}: column {column[0]!r} holds formulas without values, such as {formula:.40}; save the values"
            )


def _cells(values: list[Any]) -> pa.Array:
    """Numbers, truth values, dates or text; text where they are mixed."""
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and max(map(abs, known)) < 2**63:
        return pa.array(values, pa.int64())
    if kinds in ({float}, {int, float}):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if kinds == {datetime.datetime}:
        return pa.array(values, pa.timestamp("s"))
    return pa.array([in_text(value) for value in values], pa.string())
