"""Escapes cells that a spreadsheet would run as a formula, by an apostrophe in front."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelloop.errors import DataError
from labelloop.trust import safe_cell

BOM = b"\xef\xbb\xbf"
END_OF_LINE = re.compile(rb"\r\n|\n|\r")
# A field that begins with a quote ends at the closing one; two quotes in it mean one. Other quotes are characters.
FIELD = {mark: re.compile(rb'(?:"(?:[^"]|"")*+")?[^' + mark + rb"\r\n]*+") for mark in (b",", b"\t", b";", b"|")}

BLANK = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder()


def safely(write: Callable[[Path], object], delimiter: str) -> Callable[[Path], object]:
    """A function that writes a delimited file, followed by a pass over its cells."""

    def write_safely(path: Path) -> None:
        whole = path.with_name(f"{path.name}.cells")
        try:
            write(whole)
            with whole.open(encoding="utf-8", newline="") as old, path.open("w", encoding="utf-8", newline="") as new:
                csv.field_size_limit(2**31 - 1)
                writer = csv.writer(new, delimiter=delimiter)
                writer.writerows([safe_cell(cell) for cell in row] for row in csv.reader(old, delimiter=delimiter))
        finally:
            whole.unlink(missing_ok=True)

    return write_safely


@dataclass(frozen=True)
class Record:
    """A row of the file: where it starts, where its text ends, and where the next one starts."""

    start: int
    end: int
    next: int


def in_utf8(content: bytes, path: Path) -> str:
    """The text of a file; refuses one in another encoding, which would not come back as it was."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: not in UTF-8, so its rows cannot be edited in place; save it in UTF-8 and run again, or use"
            " `labelloop export --to issues`"
        ) from None


class Delimited:
    """A CSV or TSV file, split into rows as the reader splits it: blank lines do not count."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self.path, self.data, self.delimiter = path, in_utf8(path.read_bytes(), path).encode(), delimiter.encode()
        records = list(self._records())
        self.header, self.rows = records[0], records[1:]
        self.names = self.cells_of(self.header)

    def _records(self) -> Iterator[Record]:
        data, place = self.data, len(BOM) if self.data.startswith(BOM) else 0
        while place < len(data):
            line = END_OF_LINE.search(data, place)
            end = line.start() if line else len(data)
            if data.find(b'"', place, end) >= 0:
                end = self._spans(place)[-1][1]  # a quoted field may contain line breaks
                line = END_OF_LINE.match(data, end)
            after = line.end() if line else len(data)
            if end > place:
                yield Record(place, end, after)
            place = after

    def _spans(self, place: int) -> list[tuple[int, int]]:
        """The spans of the fields of the row that starts here."""
        spans = []
        while True:
            match = FIELD[self.delimiter].match(self.data, place)
            assert match is not None  # it can match the empty string
            spans.append(match.span())
            if self.data[match.end() : match.end() + 1] != self.delimiter:
                return spans
            place = match.end() + 1

    def span(self, record: Record, column: int) -> tuple[int, int]:
        """Where a cell starts and ends."""
        if self.data.find(b'"', record.start, record.end) >= 0:
            spans = self._spans(record.start)
            if column < len(spans):
                return spans[column]
        else:
            fields = self.data[record.start : record.end].split(self.delimiter, column + 1)
            if column < len(fields):
                start = record.start + sum(map(len, fields[:column])) + column
                return start, start + len(fields[column])
        raise DataError(f"{self.path}: {self.data[record.start : record.end][:80]!r} has no column {column}")

    def cells_of(self, record: Record) -> list[str]:
        """All cells of a row, as text."""
        return [_text(self.data[start:end]) for start, end in self._spans(record.start)]

    def cell(self, record: Record, column: int) -> str:
        start, end = self.span(record, column)
        return _text(self.data[start:end])

    def quoted_cell(self, text: str, like: bytes = b"") -> bytes:
        """A text as a cell, quoted if it has to be or if the cell `like` was."""
        value = text.encode()
        must = any(mark in value for mark in (self.delimiter, b'"', b"\r", b"\n"))
        return b'"' + value.replace(b'"', b'""') + b'"' if must or like.startswith(b'"') else value


def edited(
    table: Delimited,
    *,
    keep: Callable[[int], bool],
    replace: Callable[[int], tuple[int, str] | None],
    added: Sequence[str],
    add: Callable[[int], Sequence[str]],
) -> Iterator[bytes]:
    """The bytes of the file with some rows left out, some cells replaced, and columns added at the end.

    Args:
        table: The file.
        keep: Whether a row is kept.
        replace: For a row, the column and the new text of a cell, or None.
        added: The names of the new columns.
        add: For a row, the cells of the new columns.
    """
    place = table.header.end
    yield table.data[:place]
    yield from (table.delimiter + table.quoted_cell(name) for name in added)
    for row, record in enumerate(table.rows):
        if not keep(row):
            yield table.data[place : record.start]
            place = record.next
            continue
        change = replace(row)
        if change is not None:
            start, end = table.span(record, change[0])
            yield table.data[place:start]
            yield table.quoted_cell(change[1], table.data[start:end])
            place = end
        if added:
            yield table.data[place : record.end]
            yield from (table.delimiter + table.quoted_cell(cell) for cell in add(row))
            place = record.end
    yield table.data[place:]


def _text(cell: bytes) -> str:
    if cell.startswith(b'"'):
        closing = cell.rfind(b'"')
        cell = cell[1:closing].replace(b'""', b'"') + cell[closing + 1 :]
    return cell.decode()


def spans_of(line: str, where: str) -> dict[str, tuple[int, int]]:
    """The span of the value of each key of the object on a line."""
    try:
        return dict(_members(line))
    except (ValueError, IndexError):
        raise DataError(f"{where} is not a JSON object: {line[:80]!r}; repair it") from None


def _members(line: str) -> Iterator[tuple[str, tuple[int, int]]]:
    place = _after(line, _skip(line, 0), "{")
    if line[place] == "}":
        return
    while True:
        key, place = DECODER.raw_decode(line, place)
        start = _after(line, _skip(line, place), ":")
        _, end = DECODER.raw_decode(line, start)
        yield key, (start, end)
        place = _skip(line, end)
        if line[place] == "}":
            return
        place = _after(line, place, ",")


def _skip(line: str, place: int) -> int:
    match = BLANK.match(line, place)
    assert match is not None  # it can match the empty string
    return match.end()


def _after(line: str, place: int, mark: str) -> int:
    if line[place] != mark:
        raise ValueError(f"expected {mark}")
    return _skip(line, place + 1)


def with_value(line: str, span: tuple[int, int], value: Any) -> str:
    """The line with the value at `span` replaced."""
    return line[: span[0]] + json.dumps(value, ensure_ascii=False) + line[span[1] :]


def with_members(line: str, members: dict[str, Any]) -> str:
    """The line with keys added at the end of its object."""
    close = line.rstrip().rindex("}")
    empty = line[:close].rstrip() == "{"
    text = json.dumps(members, ensure_ascii=False)[1:-1]
    return line[:close] + ("" if empty else ", ") + text + line[close:]
