"""The options for reading a file, and where a table came from, for run.json."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelloop.data.classes import MISSING_TEXT
from labelloop.data.encoding import Column
from labelloop.data.image_files import ImageForm
from labelloop.trust import files_of, listing_of

COLUMNS = ("label_column", "clean_column", "id_column", "file_name_column")  # of a source, in its record


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file. Columns that are not named are guessed by name; in an .npz file they are names of arrays.

    Attributes:
        label_column: The given label.
        clean_column: The clean label, blank where a row has none.
        id_column: An id for every row.
        feature_columns: The features in order; by default every column of numbers or categories that has no other
            use. The `column_names` of an earlier table of numbers give the same features again, or an error.
        embedding_column: A column of lists of numbers, or the array of inputs. It comes before `feature_columns` if
            both are given, and replaces the default features if it is named; one that is guessed comes beside them.
        split_column: "train" or "test" for every row.
        extra_columns: Numbers that only the correction network sees.
        labels_path: An .npy file with the given labels of an .npy file of inputs.
        clean_file: A file of clean labels, joined by id: see `join_clean_file`.
        clean_folder: Clean images in class folders, for an image folder: see `read_clean_folder`.
        file_name_column: Image file names, relative to the folder of the table; they replace all features.
        image_size: The side that images are resized to.
        text_columns: Columns that are texts, whatever they look like. An encoder reads one of them.
        category_columns: Columns that are categories, such as codes made of digits.
        leave_out: Columns that are not used.
        trust_columns: Columns that are used as they are, however suspicious they look.
        encoder: The encoder that later turns texts or images into features; until then, these are passed on unchanged.
        train_encoder: Whether that encoder is trained too; used by the code that makes the inputs.
        missing: Labels that mean "missing", besides a blank; by default -1, None and nan, unless they may be classes.
        na: Further markers of a missing number or category, besides the usual NA, NaN and so on.
        labels_required: Whether to refuse a file without labels.
        encoding: The encoding of an earlier table, to get the same features again; by default it is fitted on the rows
            that are not test rows. It replaces `feature_columns`.
        image_form: The form of a trained model; replaces `image_size`.
        as_they_are: Read `feature_columns` as numbers without gaps, such as probabilities.
        hub_split: The split of a Hugging Face data set that has several.
        progress: Whether to show a progress bar while texts are embedded; None shows one only in a terminal.
    """

    label_column: str | None = None
    clean_column: str | None = None
    id_column: str | None = None
    feature_columns: Sequence[str] | None = None
    embedding_column: str | None = None
    split_column: str | None = None
    extra_columns: Sequence[str] = ()
    labels_path: Path | None = None
    clean_file: Path | None = None
    clean_folder: Path | None = None
    file_name_column: str | None = None
    image_size: int | None = None
    text_columns: Sequence[str] = ()
    category_columns: Sequence[str] = ()
    leave_out: Sequence[str] = ()
    trust_columns: Sequence[str] = ()
    encoder: str | None = None
    train_encoder: bool = False
    missing: Sequence[str] | None = None
    na: Sequence[str] = ()
    labels_required: bool = True
    encoding: Sequence[Column] | None = None
    image_form: ImageForm | None = None
    as_they_are: bool = False
    hub_split: str = "train"
    progress: bool | None = None

    @property
    def text_column(self) -> str | None:
        """The column of texts for an encoder, or None."""
        return self.text_columns[0] if self.encoder is not None and self.text_columns else None

    @property
    def markers(self) -> tuple[str, ...]:
        """The labels that mean "missing", besides a blank."""
        if self.missing is None:
            return MISSING_TEXT
        return (*self.missing, "-1.0") if "-1" in self.missing else tuple(self.missing)


def origin_of(
    kind: str, path: Path | str, options: Mapping[str, Any], names: Sequence[str] | None = None, **columns: str | None
) -> dict[str, Any]:
    """The record of a source.

    Args:
        kind: "csv", "tsv", "parquet", "parquet-folder", "jsonl", "npz", "npy", "image-folder", "image-table" or
            "hf-dataset".
        path: The file or folder, or the name of a hub data set.
        options: The reading options; values of None are left out.
        names: The files of a folder that are rows; all of them by default.
        columns: The columns, or the arrays of an .npz file, that held given labels, clean labels, ids and image file
            names: see COLUMNS.

    Returns:
        These, with an absolute path and a checksum: of a file, or of the names and sizes of the files of a folder.
    """
    place = Path(path)
    return {
        "kind": kind,
        "path": str(place.absolute()) if place.exists() else str(path),
        "sha256": file_sha256(place) if place.is_file() else None,
        "listing": listing_of(place, files_of(place) if names is None else names) if place.is_dir() else None,
        **{name: columns.get(name) for name in COLUMNS},
        "options": {key: _plain(value) for key, value in options.items() if value is not None},
    }


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.absolute())
    return list(value) if isinstance(value, tuple) else value
