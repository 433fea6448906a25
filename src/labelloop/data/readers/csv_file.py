"""CSV and TSV files as Arrow tables, decompressed if need be, with the line number when a row is broken."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from labelloop.data.columns import NULL_NUMBERS, is_number
from labelloop.errors import DataError, some

PACKED = {".gz": "gzip", ".zst": "zstd"}

BLOCK_SIZE = 8 << 20  # bytes; a row must fit in one
SEPARATORS = (",", ";", "\t", "|")
PADDED = re.compile(r"0\d+")
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
LOOKED_AT = 200  # rows to look for a decimal comma in


def ending_of(path: Path) -> str:
    """The extension of a file without that of the compression: .csv for rows.csv.gz."""
    packed = path.suffix.lower() in PACKED
    return (path.with_suffix("") if packed else path).suffix.lower()


def content_of(path: Path) -> bytes:
    """The content of a file, decompressed."""
    packing = PACKED.get(path.suffix.lower())
    if packing is None:
        return path.read_bytes()
    try:
        if packing == "gzip":
            return gzip.decompress(path.read_bytes())
        with pa.input_stream(path, compression=packing) as stream:
            return stream.read()
    except (OSError, EOFError, zlib.error, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: cannot be decompressed ({error}); compress it again") from error


@dataclass(frozen=True)
class CsvFile:
    """A file of delimited rows.

    Attributes:
        path: Where it is.
        content: Its bytes, decompressed.
        delimiter: The character between fields.
        names: The names of its columns, from the first line.
        decimal_comma: Whether its numbers are written 1,5.
    """

    path: Path
    content: bytes
    delimiter: str
    names: list[str]
    decimal_comma: bool = False

    @property
    def remarks(self) -> tuple[str, ...]:
        usual = "\t" if ending_of(self.path) == ".tsv" else ","
        if self.delimiter == usual:
            return ()
        numbers = " and a comma in numbers" if self.decimal_comma else ""
        return (f"fields are separated by {self.delimiter!r}{numbers}",)


def open_csv(path: Path) -> CsvFile:
    """Reads the first line, and detects the delimiter."""
    usual = "\t" if ending_of(path) == ".tsv" else ","
    content = content_of(path)
    names = _first_line(path, content, usual)
    delimiter = usual
    if len(names) == 1:
        marks = [mark for mark in SEPARATORS if mark != usual and mark in names[0]]
        delimiter = max(marks, key=names[0].count, default=usual)
        names = _first_line(path, content, delimiter)
    if all(is_number(name) for name in names):
        raise DataError(
            f"{path}: the first line holds only numbers ({some(names)}); put a line with column names above it"
        )
    comma = delimiter == ";" and _has_decimal_comma(content, delimiter)
    return CsvFile(path, content, delimiter, names, comma)


def read_csv(file: CsvFile, as_text: Iterable[str], na: Iterable[str] = ()) -> pa.Table:
    """The rows below the first line. Columns `as_text` stay as written: a blank must not turn 3 into 3.0."""
    try:
        return pa_csv.read_csv(
            io.BytesIO(file.content),
            read_options=pa_csv.ReadOptions(block_size=BLOCK_SIZE),
            parse_options=pa_csv.ParseOptions(delimiter=file.delimiter, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in as_text},
                null_values=[*NULL_NUMBERS, *na],
                decimal_point="," if file.decimal_comma else ".",
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(f"{file.path}: {_broken_line(file) or error}") from error


def padded_columns(file: CsvFile) -> dict[str, str]:
    """Columns of whole numbers with leading zeros, such as 01234, and an example, judging by the first rows."""
    try:
        rows = [row for row in islice(_rows(file.content, file.delimiter), 1, LOOKED_AT) if len(row) == len(file.names)]
    except (UnicodeDecodeError, csv.Error):  # reported when the rows are read
        return {}
    found: dict[str, str] = {}
    for place, name in enumerate(file.names):
        fields = [row[place].strip() for row in rows if row[place].strip() not in NULL_NUMBERS]
        padded = [field for field in fields if PADDED.fullmatch(field)]
        if padded and all(field.isdecimal() for field in fields):
            found[name] = padded[0]
    return found


def _first_line(path: Path, content: bytes, delimiter: str) -> list[str]:
    try:
        names = next(_rows(content, delimiter), [])
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {_not_utf8(content)}") from error
    except csv.Error as error:
        raise DataError(f"{path}: the first line cannot be read ({error}); save the file as CSV in UTF-8") from error
    if not names:
        raise DataError(f"{path}: the file is empty; the first line must hold the column names")
    return names


def _rows(content: bytes, delimiter: str) -> Iterator[list[str]]:
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    return filter(None, csv.reader(text, delimiter=delimiter))


def _has_decimal_comma(content: bytes, delimiter: str) -> bool:
    try:
        rows = list(islice(_rows(content, delimiter), 1, LOOKED_AT))
    except (UnicodeDecodeError, csv.Error):  # reported when the rows are read
        return False
    return any(DECIMAL_COMMA.fullmatch(field.strip()) for row in rows for field in row)


def _broken_line(file: CsvFile) -> str | None:
    """Finds the first row whose number of fields differs from the header's."""
    try:
        text = io.TextIOWrapper(io.BytesIO(file.content), encoding="utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=file.delimiter)
        line, rows, width = 1, 0, len(file.names)
        for row in reader:
            rows += bool(row)
            if row and len(row) != width:
                written = file.delimiter.join(row)
                return (
                    f"line {line} has {len(row)} fields, but the header has {width}:"
                    f" {written[:80]!r}; repair or remove that line (a field with a comma or a quote needs quotes)"
                )
            line = reader.line_num + 1
        if rows == 1:
            return "column names but no rows; add the rows"
    except UnicodeDecodeError:
        return _not_utf8(file.content)
    except csv.Error as error:
        return f"line {line}: {error}"
    return None


def _not_utf8(content: bytes) -> str:
    for line, text in enumerate(content.split(b"\n"), start=1):
        try:
            text.decode()
        except UnicodeDecodeError as error:
            return f"line {line} is not in UTF-8 ({error.reason}); save the file as CSV in UTF-8"
    return "not in UTF-8; save the file as CSV in UTF-8"
