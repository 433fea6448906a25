"""Arrays in .npz and .npy files. Python objects inside are refused, never unpickled."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from labelloop.data.columns import names_of_array
from labelloop.data.readers.origin import origin_of
from labelloop.data.table import Table, from_arrays
from labelloop.errors import DataError, nearest

INPUT_KEYS = ("X", "x", "features", "embeddings", "images")
LABEL_KEYS = ("y", "label", "labels")
CLEAN_KEYS = ("y_clean", "clean_label", "clean_labels")


def read_npz(
    path: Path,
    *,
    input_key: str | None,
    label_key: str | None,
    clean_key: str | None,
    id_key: str | None,
    split_key: str | None,
    extra_keys: Sequence[str],
    labels_required: bool,
) -> Table:
    """A table from the arrays of an .npz file, each by the given key, else by the usual ones."""
    with path.open("rb") as file:
        archive = _load(file, path)
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path}: holds one array and no names; rename it to end in .npy")
        keys = archive.files

        def find(said: str | None, guesses: Sequence[str], argument: str) -> str | None:
            if said is not None and said not in keys:
                raise DataError(f"{path}: no array {said!r}; {nearest(said, keys)}")
            found = [said] if said is not None else [key for key in keys if key in guesses]
            if len(found) > 1:
                raise DataError(f"{path}: {' and '.join(found)} could both be meant; say which with {argument}")
            return found[0] if found else None

        def get(key: str | None) -> NDArray | None:
            return None if key is None else _member(path, archive, key)

        input_key = find(input_key, INPUT_KEYS, "embedding_column")
        label_key = find(label_key, LABEL_KEYS, "label_column")
        clean_key = find(clean_key, CLEAN_KEYS, "clean_column")
        if input_key is None:
            raise DataError(f"{path}: no inputs; expected one of {', '.join(INPUT_KEYS)}, found {', '.join(keys)}")
        if labels_required and label_key is None and clean_key is None:
            raise DataError(
                f"{path}: no labels; expected one of {', '.join(LABEL_KEYS)} (given) or {', '.join(CLEAN_KEYS)}"
                f" (verified), found {', '.join(keys)}"
            )
        extra = [_columns(get(find(key, (), "extra_columns"))) for key in extra_keys]
        inputs = get(input_key)
        assert inputs is not None
        class_names = get(find(None, ("class_names",), ""))
        id_key = find(id_key, ("ids", "id"), "id_column")
        split_key = find(split_key, ("split",), "split_column")
        return from_arrays(
            inputs,
            get(label_key),
            get(clean_key),
            ids=get(id_key),
            split=get(split_key),
            extra=np.concatenate(extra, axis=1) if extra else get(find(None, ("extra",), "extra_columns")),
            column_names=names_of_array(input_key, inputs.shape[1]) if inputs.ndim == 2 else None,
            class_names=None if class_names is None else class_names.astype(str).tolist(),
            source=str(path),
            origin=origin_of(
                "npz",
                path,
                label_column=label_key,
                clean_column=clean_key,
                id_column=id_key,
                options={"embedding_column": input_key, "split_column": split_key, "extra_columns": extra_keys or None},
            ),
        )


def read_npy(path: Path, labels_path: Path | None, clean_labels_path: Path | None, labels_required: bool) -> Table:
    """A table from one array of inputs, with the labels in files of their own."""
    if labels_required and labels_path is None and clean_labels_path is None:
        raise DataError(f"{path}: an .npy file holds no labels; give them as labels_path and clean_labels_path")
    return from_arrays(
        _array(path),
        None if labels_path is None else _array(labels_path),
        None if clean_labels_path is None else _array(clean_labels_path),
        source=str(path),
        origin=origin_of("npy", path, options={"labels_path": labels_path, "clean_labels_path": clean_labels_path}),
    )


def _load(file: BinaryIO, path: Path) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: cannot be read as arrays ({error}); write it with np.save or np.savez, text labels as an array"
            " of dtype str and not of objects"
        ) from error


def _member(path: Path, archive: Any, key: str) -> NDArray:
    try:
        return archive[key]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: array {key!r} cannot be read ({error}); save text labels as an array of dtype str, not of objects"
        ) from error


def _array(path: Path) -> NDArray:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    with path.open("rb") as file:
        loaded = _load(file, path)
        if not isinstance(loaded, np.ndarray):
            raise DataError(f"{path}: holds several named arrays; rename it to end in .npz")
    return loaded


def _columns(array: NDArray | None) -> NDArray:
    assert array is not None
    return array.reshape(len(array), -1)
