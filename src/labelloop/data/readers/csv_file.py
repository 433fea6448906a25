"""CSV, TSV and JSON files as Arrow tables, decompressed if need be, with the line number when a row is broken."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import warnings
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from labelloop.data.columns import NULL_NUMBERS, is_number
from labelloop.data.questions import lost_digits
from labelloop.errors import DataError, some
from labelloop.trust import check_growth

PACKED = {".gz": "gzip", ".zst": "zstd"}

BLOCK_SIZE = 8 << 20  # bytes; a row must fit in one
SEPARATORS = (",", ";", "\t", "|")
DOTTED = re.compile(r"-?[1-9]\d{0,2}\.\d{3}")
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
LOOKED_AT = 200  # rows to look for a decimal comma in
HIGH_WORDS = re.compile(rb"[\x80-\xff]{2,}")
MOSTLY_LATIN = 0.2  # letters with accents, as a share of those without, or those side by side, as a share of them
JSON_FORM = "a list of objects, one per row, or an object with a list for every column"
JSON_BLOCK = 16 << 20  # bytes; a line must fit in one


def ending_of(path: Path) -> str:
    """The extension of a file without that of the compression: .csv for rows.csv.gz."""
    packed = path.suffix.lower() in PACKED
    return (path.with_suffix("") if packed else path).suffix.lower()


def check_file(path: Path) -> None:
    """Refuses a file that is missing or empty."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")


def content_of(path: Path) -> bytes:
    """The content of a file, decompressed."""
    packing = PACKED.get(path.suffix.lower())
    if packing is None:
        return path.read_bytes()
    size, pieces, total = path.stat().st_size, [], 0
    try:
        with gzip.open(path) if packing == "gzip" else pa.input_stream(path, compression=packing) as stream:
            while piece := stream.read(BLOCK_SIZE):
                pieces.append(piece)
                total += len(piece)
                check_growth(size, total)
            return b"".join(pieces)
    except (OSError, EOFError, zlib.error, ValueError) as error:
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
        encoding: The name of its encoding, if that is not UTF-8; `content` is UTF-8 in any case.
    """

    path: Path
    content: bytes
    delimiter: str
    names: list[str]
    decimal_comma: bool = False
    encoding: str | None = None

    @property
    def other_delimiter(self) -> str | None:
        """The delimiter, if it is not the one that the extension implies."""
        usual = "\t" if ending_of(self.path) == ".tsv" else ","
        return None if self.delimiter == usual else self.delimiter

    @property
    def remarks(self) -> tuple[str, ...]:
        numbers = " and a comma in numbers" if self.decimal_comma else ""
        found = [] if self.encoding is None else [f"not in UTF-8: read as {self.encoding}"]
        found += [f"fields are separated by {self.delimiter!r}{numbers}"] if self.other_delimiter else []
        return tuple(found)


def open_csv(path: Path) -> CsvFile:
    """Reads the first line, and detects the delimiter."""
    usual = delimiter = "\t" if ending_of(path) == ".tsv" else ","
    content, encoding = in_utf8(content_of(path))
    names = _first_line(path, content, usual)
    if len(names) == 1:
        marks = [mark for mark in SEPARATORS if mark != usual and mark in names[0]]
        delimiter = max(marks, key=names[0].count, default=usual)
        names = _first_line(path, content, delimiter)
    if all(is_number(name) for name in names):
        raise DataError(f"{path}: the first line holds only numbers ({some(names)}); put the column names above it")
    fields = (field for row in _first_rows(content, delimiter) for field in row) if delimiter == ";" else ()
    comma = any(DECIMAL_COMMA.fullmatch(field.strip()) for field in fields)
    return CsvFile(path, content, delimiter, names, comma, encoding)


def in_utf8(content: bytes) -> tuple[bytes, str | None]:
    """The content in UTF-8, and the name of its encoding if that was another.

    UTF-16 and UTF-32 show by their first bytes, UTF-16 also by a zero in every other byte. Windows-1252, which holds
    Latin-1, is assumed where a few bytes among many letters are not UTF-8, or hardly any of these stand side by side;
    a text of whole words of such bytes is in another alphabet, and is left as it is, to be refused.
    """
    for mark, name in ((b"\xff\xfe\0\0", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if content.startswith(mark) and len(content) % 2 == 0:
            return _decoded(content, name, name.upper())
    head = content[:1000]
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(head) > 20 and head[start::2].count(0) > 0.4 * len(head) and not len(content) % 2:
            return _decoded(content, name, "UTF-16")
    try:
        content.decode()
    except UnicodeDecodeError:
        high = sum(byte >= 0x80 for byte in content)
        letters = sum(chr(byte).isalpha() for byte in content if byte < 0x80)
        undefined = any(byte in content for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D))
        words = sum(map(len, HIGH_WORDS.findall(content)))
        if not undefined and 0 not in content and min(high / max(letters, 1), words / high) < MOSTLY_LATIN:
            return _decoded(content, "cp1252", "Windows-1252 (Latin-1)")
    return content, None


def _decoded(content: bytes, codec: str, name: str) -> tuple[bytes, str | None]:
    try:
        return content.decode(codec).encode(), name
    except UnicodeDecodeError:
        return content, None


def read_csv(file: CsvFile, as_text: Iterable[str], na: Iterable[str] = ()) -> pa.Table:
    """The rows below the first line. Columns `as_text` stay as written: a blank must not turn 3 into 3.0."""
    try:
        return pa_csv.read_csv(
            _stream(file.content),
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


def _stream(content: bytes) -> pa.BufferReader:
    """The content in memory of Arrow, whose threads may let go of it as late as when Python ends."""
    buffer = pa.allocate_buffer(len(content))
    memoryview(buffer).cast("B")[:] = content
    return pa.BufferReader(buffer)


def padded_columns(file: CsvFile) -> dict[str, str]:
    """Columns of numbers that may be meant in another way, and how they are read, judging by the first rows.

    Whole numbers with leading zeros, such as 01234, may be codes. The point in 1.234 may separate thousands if other
    numbers are whole, or if other columns have a decimal comma. If 1.1 and 1.10 both occur, they may be versions.
    """
    rows = [row for row in _first_rows(file.content, file.delimiter) if len(row) == len(file.names)]
    found: dict[str, str] = {}
    for place, name in enumerate(file.names):
        fields = [row[place].strip() for row in rows if row[place].strip() not in NULL_NUMBERS]
        dotted = [field for field in fields if DOTTED.fullmatch(field)]
        rest = sum(field.isdecimal() for field in fields)
        if lost := lost_digits(fields):
            found[name] = lost
        elif dotted and len(dotted) + rest == len(fields) and (rest or file.decimal_comma):
            write = dotted[0].replace(".", "")
            found[name] = f"with a decimal point ({dotted[0]!r}); if that separates thousands, write {write}"
    return found


def _first_line(path: Path, content: bytes, delimiter: str) -> list[str]:
    try:
        names: list[str] = next(filter(None, _reader(content, delimiter)), [])
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {_not_utf8(content)}") from error
    except csv.Error as error:
        raise DataError(f"{path}: the first line cannot be read ({error}); save the file as CSV in UTF-8") from error
    if not names:
        raise DataError(f"{path}: the file is empty; the first line must hold the column names")
    return names


def _reader(content: bytes, delimiter: str) -> Any:
    return csv.reader(io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline=""), delimiter=delimiter)


def _first_rows(content: bytes, delimiter: str) -> list[list[str]]:
    """The first rows below the names; none if they cannot be read, which is reported when all rows are."""
    try:
        return list(islice(filter(None, _reader(content, delimiter)), 1, LOOKED_AT))
    except (UnicodeDecodeError, csv.Error):
        return []


def _broken_line(file: CsvFile) -> str | None:
    """Finds the first row whose number of fields differs from the header's."""
    try:
        reader = _reader(file.content, file.delimiter)
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


def _json_content(path: Path) -> bytes:
    """The content in UTF-8, with a warning if it was not."""
    content, encoding = in_utf8(content_of(path))
    if encoding is not None:
        warnings.warn(f"{path}: not in UTF-8: read as {encoding}", stacklevel=5)
    return content


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON, in which no key may stand twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} occurs twice in an object")
    return found


def read_json_table(path: Path) -> pa.Table:
    """Reads the rows.

    Raises:
        DataError: It is not JSON, or not of this form.
    """
    try:
        found = json.loads(_json_content(path), object_pairs_hook=_once)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        hint = "end its name in .jsonl if it has an object per line" if "Extra data" in str(error) else "write it again"
        raise DataError(f"{path}: cannot be read as JSON ({error}); {hint}") from error
    except ValueError as error:
        raise DataError(f"{path}: {error}; write it once") from error
    if isinstance(found, list) and found and all(isinstance(row, dict) for row in found):
        names = list(dict.fromkeys(name for row in found for name in row))
        found = {name: [row.get(name) for row in found] for name in names}
    if not (isinstance(found, dict) and found and all(isinstance(values, list) for values in found.values())):
        raise DataError(f"{path}: not {JSON_FORM}; write it in this form")
    arrays = {}
    for name, values in found.items():
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise DataError(f"{path}: column {name!r} holds several types ({error}); write one of them") from error
    if len({len(values) for values in arrays.values()}) > 1:
        lengths = some(f"{name!r} {len(values)}" for name, values in arrays.items())
        raise DataError(f"{path}: columns of different lengths ({lengths}); give every column a value for every row")
    return pa.table(arrays)


def read_jsonl(path: Path) -> pa.Table:
    """One row per line, one column per key; where a line lacks a key, the value is missing."""
    reading = pa_json.ReadOptions(block_size=JSON_BLOCK)
    try:
        content = _json_content(path)
        table = pa_json.read_json(_stream(content), read_options=reading)
        order = table.column_names
        dates = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        if dates:  # text that looks like a date stays text: it may be an id or a label
            schema = pa.schema([(name, pa.string()) for name in dates])
            parsing = pa_json.ParseOptions(explicit_schema=schema)
            table = pa_json.read_json(_stream(content), read_options=reading, parse_options=parsing).select(order)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: {_broken_json(content) or error}") from error
    if not table.num_rows:
        raise DataError(f"{path}: no rows; write one object per line")
    return table


def _broken_json(content: bytes) -> str | None:
    """Finds the first line that is not an object, or whose types differ from those of earlier lines."""
    kinds: dict[str, tuple[str, int]] = {}
    try:
        for number, line in enumerate(content.decode("utf-8").split("\n"), start=1):
            if not line.strip():
                continue
            row = json.loads(line)
            if not isinstance(row, dict):
                return f"line {number} is not an object in braces; write one object per line"
            for key, value in row.items():
                if value is None:
                    continue
                kind = _kind(value)
                first, where = kinds.setdefault(key, (kind, number))
                if kind != first:
                    return f"{key!r} is {first} in line {where} and {kind} in line {number}; use one type everywhere"
    except json.JSONDecodeError as error:
        return f"line {number} is not JSON ({error.msg}, column {error.colno}); repair or remove that line"
    except UnicodeDecodeError as error:
        return f"not in UTF-8 ({error}); save the file in UTF-8"
    return None


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    names = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)
