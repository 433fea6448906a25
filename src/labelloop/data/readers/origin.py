"""Where a table came from, for run.json: what a later command needs to write the rows in the same format."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def origin_of(
    kind: str,
    path: Path | str,
    *,
    label_column: str | None = None,
    clean_column: str | None = None,
    id_column: str | None = None,
    file_name_column: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The record of a source.

    Args:
        kind: "csv", "tsv", "parquet", "parquet-folder", "jsonl", "npz", "npy", "image-folder", "image-table" or
            "hf-dataset".
        path: The file or folder, or the name of a hub data set.
        label_column: The column, or the array of an .npz file, that held the given labels, or None.
        clean_column: The same for the clean labels.
        id_column: The same for the ids.
        file_name_column: The same for the image file names.
        options: The other reading options; values of None are left out.

    Returns:
        These, with an absolute path and, if it is a file, its checksum.
    """
    place = Path(path)
    return {
        "kind": kind,
        "path": str(place.absolute()) if place.exists() else str(path),
        "sha256": file_sha256(place) if place.is_file() else None,
        "label_column": label_column,
        "clean_column": clean_column,
        "id_column": id_column,
        "file_name_column": file_name_column,
        "options": {key: _plain(value) for key, value in (options or {}).items() if value is not None},
    }


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.absolute())
    return list(value) if isinstance(value, tuple) else value
