"""JSON files as Arrow tables: a list of objects, an object of lists, or an object a line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pa_json

from labelloop.data.readers.csv_file import content_of
from labelloop.errors import DataError

FORM = "a list of objects, one per row, or an object with a list for every column"

BLOCK_SIZE = 16 << 20  # bytes; a line must fit in one


def read_json_table(path: Path) -> pa.Table:
    """Reads the rows.

    Raises:
        DataError: It is not JSON, or not of this form.
    """
    try:
        found = json.loads(content_of(path))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        hint = "; a file with one object per line must end in .jsonl" if "Extra data" in str(error) else ""
        raise DataError(f"{path}: cannot be read as JSON ({error}){hint}") from error
    try:
        if isinstance(found, list) and found and all(isinstance(row, dict) for row in found):
            names = list(dict.fromkeys(name for row in found for name in row))
            return pa.table({name: pa.array([row.get(name) for row in found]) for name in names})
        if isinstance(found, dict) and found and all(isinstance(values, list) for values in found.values()):
            return pa.table({name: pa.array(values) for name, values in found.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
        raise DataError(f"{path}: columns of mixed types or lengths ({error}); write them alike") from error
    raise DataError(f"{path}: not {FORM}; write it in this form")


def read_jsonl(path: Path) -> pa.Table:
    """One row per line, one column per key; where a line lacks a key, the value is missing."""
    reading = pa_json.ReadOptions(block_size=BLOCK_SIZE)
    try:
        content = content_of(path)
        table = pa_json.read_json(io.BytesIO(content), read_options=reading)
        dates = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        if dates:  # text that looks like a date stays text: it may be an id or a label
            schema = pa.schema([(name, pa.string()) for name in dates])
            parsing = pa_json.ParseOptions(explicit_schema=schema)
            table = pa_json.read_json(io.BytesIO(content), read_options=reading, parse_options=parsing)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: {_broken_line(content) or error}") from error
    if not table.num_rows:
        raise DataError(f"{path}: no rows; write one object per line")
    return table


def _broken_line(content: bytes) -> str | None:
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
