"""Arrays in .npz and .npy files. Python objects inside are refused, never unpickled."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from labelloop.data.checks import check_columns
from labelloop.data.columns import LeftOut, SchemaSummary, Use, names_of_array, the_one
from labelloop.data.options import ReadOptions, origin_of
from labelloop.data.questions import ask_about_markers
from labelloop.data.table import Table, from_arrays
from labelloop.errors import DataError, nearest
from labelloop.large_arrays import is_large, mapped_file, row_chunks, zeros
from labelloop.trust import NO_ARCHIVE, check_archive, load_array

INPUT_KEYS = ("X", "x", "features", "embeddings", "embedding", "images")
LABEL_KEYS = ("y", "label", "labels")
ID_KEYS = ("ids", "id")
CLEAN_KEYS = ("y_clean", "clean_label", "clean_labels")
# The options that name arrays, with the usual names of each, and what it is in words.
USUAL = {
    "embedding_column": INPUT_KEYS,
    "label_column": LABEL_KEYS,
    "clean_column": CLEAN_KEYS,
    "id_column": ID_KEYS,
    "split_column": ("split",),
}
WORDS = dict(zip(USUAL, ("inputs", "given label", "clean label", "id", "split"), strict=True))


def read_npz(path: Path, options: ReadOptions) -> Table:
    """A table from the arrays of an .npz file, found by the names in the options, else by the usual ones."""
    with path.open("rb") as file:
        archive = _load(file, path)
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path}: holds one array and no names; rename it to end in .npy")
        arrays = _Archive(path, archive)
        keys = {name: arrays.find(getattr(options, name), usual, name) for name, usual in USUAL.items()}
        input_key, label_key, clean_key, id_key, split_key = keys.values()
        found = f"found {', '.join(archive.files)}"
        if input_key is None:
            raise DataError(f"{path}: no inputs; expected one of {', '.join(INPUT_KEYS)}, {found}")
        if options.labels_required and label_key is None and clean_key is None:
            raise DataError(f"{path}: no labels; expected {', '.join(LABEL_KEYS + CLEAN_KEYS)}, {found}")
        inputs, class_names = archive_member(path, archive, input_key), arrays.get(arrays.find(None, ("class_names",)))
        said: dict[str, Any] = {"embedding_column": input_key, "split_column": split_key}
        said["extra_columns"] = options.extra_columns or None
        table = from_arrays(
            inputs,
            arrays.get(label_key),
            arrays.get(clean_key),
            ids=arrays.get(id_key),
            split=arrays.get(split_key),
            extra=_extra(arrays, options.extra_columns),
            column_names=names_of_array(input_key, inputs.shape[1]) if inputs.ndim == 2 else None,
            class_names=None if class_names is None else class_names.astype(str).tolist(),
            source=str(path),
            origin=origin_of("npz", path, said, label_column=label_key, clean_column=clean_key, id_column=id_key),
        )
        schema_summary = _schema_summary(archive.files, keys, options)
    return _checked(replace(table, schema_summary=schema_summary), options)


def _schema_summary(files: Sequence[str], keys: Mapping[str, str | None], options: ReadOptions) -> SchemaSummary:
    """The use of every array."""
    uses = [
        Use(WORDS[name], key, name == "split_column" or getattr(options, name) is None)
        for name, key in keys.items()
        if key is not None
    ]
    extra = options.extra_columns or ("extra",)
    uses += [Use("for the correction network", key, False) for key in extra if key in files]
    uses += [Use("names of the classes", "class_names", True)] if "class_names" in files else []
    used = {use.column for use in uses}
    left_out = [LeftOut(key, "an array with an unknown name") for key in files if key not in used]
    return SchemaSummary(tuple(uses), left_out=tuple(left_out))


def read_npy(path: Path, options: ReadOptions) -> Table:
    """A table from one array of inputs, with the labels in separate files."""
    if options.labels_required and options.labels_path is None and options.clean_file is None:
        raise DataError(f"{path}: an .npy file holds no labels; give them as labels_path and clean_file")
    labels = None if options.labels_path is None else read_array(Path(options.labels_path))
    origin = origin_of("npy", path, {"labels_path": options.labels_path})
    return _checked(from_arrays(read_array(path), labels, source=str(path), origin=origin), options)


def read_array(path: Path) -> NDArray:
    """The array of an .npy file."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    with path.open("rb") as file:
        loaded = _load(file, path, is_large(path.stat().st_size))
        if not isinstance(loaded, np.ndarray):
            raise DataError(f"{path}: holds several named arrays; rename it to end in .npz")
    if not loaded.ndim:
        raise DataError(f"{path}: holds a single value; give one for every row")
    return loaded


@dataclass(frozen=True)
class _Archive:
    """The arrays of an .npz file by name."""

    path: Path
    archive: Any

    def find(self, asked: str | None, guesses: Sequence[str], argument: str = "") -> str | None:
        """The name in the options, else the guess that exists."""
        keys = self.archive.files
        if asked is not None and asked not in keys:
            raise DataError(f"{self.path}: no array {asked!r}; {nearest(asked, keys)}")
        return asked or the_one([key for key in keys if key in guesses], argument, self.path)

    def get(self, key: str | None) -> NDArray | None:
        return None if key is None else archive_member(self.path, self.archive, key)


def _extra(arrays: _Archive, keys: Sequence[str]) -> NDArray | None:
    if not keys:
        return arrays.get(arrays.find(None, ("extra",), "extra_columns"))
    found = [arrays.get(arrays.find(key, (), "extra_columns")) for key in keys]
    return np.concatenate([array.reshape(len(array), -1) for array in found if array is not None], axis=1)


def _checked(table: Table, options: ReadOptions) -> Table:
    """The table, checked to have rows and, if an earlier table is given, the same features."""
    expected = options.feature_columns
    if options.encoding:
        expected = [name for column in options.encoding for name in column.encoded_names]
    if expected is not None:
        check_columns(expected, table.column_names, table.source)
    if not len(table):
        raise DataError(f"{table.source}: the inputs have no rows")
    labels, clean = table.labels, np.zeros(0) if table.clean_labels is None else table.clean_labels
    if options.missing is None and options.labels_required and labels is not None and labels.dtype.kind in "iuU":
        ask_about_markers(_counts(labels), _counts(clean), table.source, usual=True)
    return table


def _counts(labels: NDArray) -> Counter[str]:
    values = (int(v) if isinstance(v, float) and v.is_integer() else v for v in labels.ravel().tolist())
    return Counter(str(value).strip() for value in values)


def _load(file: BinaryIO, path: Path, large: bool = False) -> Any:
    try:
        start = file.read(6)
        file.seek(0)
        if start == np.lib.format.MAGIC_PREFIX:
            return mapped_file(path) if large else load_array(path)
        if start.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                check_archive(archive, path.stat().st_size)
        return np.load(file, allow_pickle=False)
    except (ValueError, OSError, *NO_ARCHIVE) as error:
        raise DataError(
            f"{path}: cannot be read as arrays ({error}); write it with np.save or np.savez, without objects"
        ) from error


def archive_member(path: Path, archive: Any, key: str) -> NDArray:
    try:
        return _in_chunks(archive, key)
    except (ValueError, OSError, *NO_ARCHIVE) as error:
        raise DataError(
            f"{path}: array {key!r} cannot be read ({error}); write it without objects, text as dtype str"
        ) from error


def _in_chunks(archive: Any, key: str) -> NDArray:
    """An array of an archive, moved to its own file if it is large."""
    with archive.zip.open(key if key in archive.zip.namelist() else f"{key}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if not shape:
            raise ValueError("it is a single value")
        size = math.prod(shape) * dtype.itemsize
        if fortran or dtype.hasobject or len(shape) < 2 or not is_large(size):
            return archive[key]
        array = zeros(shape, dtype)
        for rows in row_chunks(shape[0], math.prod(shape[1:])):
            content = file.read(array[rows].nbytes)
            array[rows] = np.frombuffer(content, dtype).reshape(array[rows].shape)
        return array


def read_arrays(path: Path, keys: Sequence[str]) -> dict[str, NDArray]:
    """Those of the named arrays that an .npz file holds."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    with path.open("rb") as file:
        archive = _load(file, path)
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path}: holds one array and no names; rename it to end in .npy")
        return {key: archive_member(path, archive, key) for key in keys if key in archive.files}
