"""CSV and TSV files as Arrow tables, with the line number when a row is broken."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from labelloop.data.written import NULL_NUMBERS, is_number
from labelloop.errors import DataError, some

BLOCK_SIZE = 8 << 20  # bytes; a row has to fit in one
SEPARATORS = (",", ";", "\t", "|")


def csv_header(path: Path, delimiter: str) -> list[str]:
    """The column names of the first line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = next(filter(None, csv.reader(file, delimiter=delimiter)), [])
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {_not_utf8(path)}") from error
    except csv.Error as error:
        raise DataError(f"{path}: the first line cannot be read ({error}); save the file as CSV in UTF-8") from error
    if not names:
        raise DataError(f"{path}: the file is empty; the first line must hold the column names")
    other = next((mark for mark in SEPARATORS if mark != delimiter and mark in names[0]), None)
    if len(names) == 1 and other is not None:
        raise DataError(
            f"{path}: only one column, {names[0]!r}: its fields seem to be separated by {other!r}, and a"
            f" {path.suffix} file has {delimiter!r} between them; save it so (and numbers with a point)"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: columns named twice: {some(map(repr, twice))}; give every column its own name")
    if all(is_number(name) for name in names):
        raise DataError(
            f"{path}: the first line holds only numbers ({some(names)}); put a line with column names above it"
        )
    return names


def read_csv(path: Path, delimiter: str, width: int, as_text: Iterable[str]) -> pa.Table:
    """The rows below a header of `width` names. Columns `as_text` stay as written: 3 is no 3.0 beside a blank."""
    try:
        return pa_csv.read_csv(
            path,
            read_options=pa_csv.ReadOptions(block_size=BLOCK_SIZE),
            parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in as_text},
                null_values=list(NULL_NUMBERS),
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: {_broken_line(path, delimiter, width) or error}") from error


def _broken_line(path: Path, delimiter: str, width: int) -> str | None:
    """Looks for the first row that has another number of fields than the header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            line, rows = 1, 0
            for row in reader:
                rows += bool(row)
                if row and len(row) != width:
                    text = delimiter.join(row)
                    return (
                        f"line {line} has {len(row)} fields, and the header has {width}:"
                        f" {text[:80]!r}; repair or remove that line (a field with a comma or a quote needs quotes)"
                    )
                line = reader.line_num + 1
            if rows == 1:
                return "column names and no rows; add the rows"
    except UnicodeDecodeError:
        return _not_utf8(path)
    except csv.Error as error:
        return f"line {line}: {error}"
    return None


def _not_utf8(path: Path) -> str:
    with path.open("rb") as file:
        for line, text in enumerate(file, start=1):
            try:
                text.decode()
            except UnicodeDecodeError as error:
                return f"line {line} is not in UTF-8 ({error.reason}); save the file as CSV in UTF-8"
    return "not in UTF-8; save the file as CSV in UTF-8"
