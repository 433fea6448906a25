"""A folder of images with a table that names them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from labelloop.data.images.store import ENDINGS
from labelloop.data.readers.arrow_file import own_columns
from labelloop.data.readers.column_file import read_column_file
from labelloop.data.readers.options import ReadOptions
from labelloop.data.table import Table
from labelloop.errors import some

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def read_metadata(folder: Path, options: ReadOptions) -> Table:
    """The first existing table of METADATA, with the images named in its column file_name."""
    path = next(folder / name for name in METADATA if (folder / name).is_file())
    column = options.file_name_column or "file_name"
    table = read_column_file(path, replace(options, file_name_column=column))
    named = {(path.parent / str(name)).as_posix() for name in own_columns(path)[column].to_pylist()}
    found = [file for file in sorted(folder.rglob("*")) if file.suffix.lower() in ENDINGS]
    others = [str(file.relative_to(folder)) for file in found if file.as_posix() not in named]
    if not others or table.understood is None:
        return table
    remark = f"left out: {len(others)} images that {path.name} does not name: {some(others)}"
    remark = remark.encode("utf-8", "backslashreplace").decode()
    return replace(table, understood=replace(table.understood, remarks=(*table.understood.remarks, remark)))
