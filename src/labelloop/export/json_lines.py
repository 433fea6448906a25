"""Edits the text of JSON lines: values are replaced and added, and everything else stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from labelloop.errors import DataError

BLANK = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder()


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
