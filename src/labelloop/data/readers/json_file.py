"""A .json file as an Arrow table: a list of objects, one per row, or an object of lists, one per column."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from labelloop.data.readers.compressed import content_of
from labelloop.errors import DataError

FORM = "a list of objects, one per row, or an object with a list for every column"


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
