"""A folder of images with a table that names them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from labelloop.data.readers.column_file import read_column_file
from labelloop.data.readers.options import ReadOptions
from labelloop.data.table import Table

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def read_metadata(folder: Path, options: ReadOptions) -> Table:
    """The first existing table of METADATA, with the images named in its column file_name."""
    table = next(folder / name for name in METADATA if (folder / name).is_file())
    return read_column_file(table, replace(options, file_name_column=options.file_name_column or "file_name"))
