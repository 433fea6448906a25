"""Reads the user's files as tables: one module per format, chosen by kind in KINDS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from labelloop.data.frames import is_frame
from labelloop.data.options import ReadOptions
from labelloop.data.questions import compare_labels, question_numbers
from labelloop.data.readers.array_file import read_npy, read_npz
from labelloop.data.readers.arrow_file import PARTS, parts_of
from labelloop.data.readers.clean_file import join_clean_file
from labelloop.data.readers.column_file import FRAME, read_column_file, read_frame, read_hub
from labelloop.data.readers.csv_file import check_file, ending_of
from labelloop.data.readers.hub import MARKS, PREFIX
from labelloop.data.readers.image_tree import METADATA, read_image_tree, read_metadata
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError

KINDS: dict[str, Callable[[Path, ReadOptions], Table]] = {
    **dict.fromkeys(("csv", "tsv", "parquet", PARTS, "jsonl", "json", "xlsx"), read_column_file),
    "npz": read_npz,
    "npy": read_npy,
    "image-folder": read_image_tree,
    "metadata-folder": read_metadata,
    "hf-dataset": read_hub,
}

__all__ = ["FRAME", "KINDS", "ReadOptions", "is_hub_dataset", "kind_of", "read_table"]


def read_table(path: Any, options: ReadOptions | None = None) -> Table:
    """Reads a file or folder, or takes a data frame.

    Args:
        path: A data frame of pandas, polars or Arrow; or a .csv, .tsv, .parquet, .jsonl, .json, .npz or .npy file, text
            optionally compressed as .gz or .zst; or a folder of Parquet parts; or one with a folder of images for each
            class, or with images and a metadata.csv or metadata.jsonl that names them; or a Hugging Face data set, a
            folder of `save_to_disk` or hf:name.
        options: How to read it; by default everything is guessed.

    Raises:
        DataError: The file cannot be used; the message names the file and the column, line or row.
    """
    options = ReadOptions() if options is None else options
    place, kind = (Path(FRAME), "frame") if is_frame(path) else (Path(path), kind_of(Path(path)))
    _check_options(place, kind, options)
    table = read_frame(path, options) if kind == "frame" else KINDS[kind](place, options)
    table = replace(table, markers=options.markers)
    if options.clean_file is not None:
        table = join_clean_file(table, options.clean_file)
    schema = table.schema_summary
    if options.labels_required:
        label = next((use.column for use in (schema.uses if schema else ()) if use.what == "given label"), None)
        question_numbers(table.labels, label, options.label_column is None, table.source)
        compare_labels(table.labels, table.clean_labels, table.source, table.markers, table.class_names or ())
    return table


def kind_of(path: Path) -> str:
    """The kind of a file or folder, a name in KINDS; refuses a file that is missing or empty."""
    if is_hub_dataset(path):
        return "hf-dataset"
    if path.is_dir():
        if any((path / name).is_file() for name in METADATA):
            return "metadata-folder"
        return PARTS if parts_of(path) else "image-folder"
    kind = ending_of(path).removeprefix(".")
    if kind not in KINDS or "-" in kind:
        formats = ", ".join(f".{name}" for name in KINDS if "-" not in name)
        raise DataError(f"{path}: cannot read {path.suffix or 'a name without an extension'!r}; known: {formats}")
    check_file(path)
    return kind


def is_hub_dataset(path: Path) -> bool:
    """Whether this is a Hugging Face data set: a name on the hub, or a folder of `save_to_disk`."""
    return str(path).startswith(PREFIX) or any((path / mark).is_file() for mark in MARKS)


def _check_options(path: Path, kind: str, options: ReadOptions) -> None:
    """Refuses options that belong to other kinds of files."""
    if options.encoder is not None and not options.text_columns:
        if kind in ("npz", "npy"):
            raise UsageError(f"{path}: an encoder is for texts or images, but these are arrays; leave it out")
        if options.image_size is not None:
            raise UsageError(f"{path}: an encoder has its own image size; leave image_size out")
    if options.text_columns:
        if options.file_name_column:
            raise UsageError(f"{path}: file_name_column makes images the inputs; leave text_columns out")
        if options.encoder is not None and len(options.text_columns) > 1:
            raise UsageError(f"{path}: an encoder reads one column of texts; name one with text_columns")
        if kind in ("npz", "npy", "image-folder", "metadata-folder"):
            raise UsageError(f"{path}: text_columns are columns of a table: .csv, .tsv, .parquet or .jsonl")
    if options.clean_folder is not None and kind != "image-folder":
        raise UsageError(f"{path}: clean_folder needs class folders of images; use a clean file here")
    if options.image_size is not None and kind in ("npz", "npy"):
        raise UsageError(f"{path}: image_size resizes image files, but these are arrays; leave it out")
    if options.labels_path is not None and kind != "npy":
        raise UsageError(f"{path}: labels_path is only for .npy files; here, labels are columns")
