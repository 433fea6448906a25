"""Reads dictionaries of label arrays (torch.save's .pt, np.save's .npy) without running code from a pickle.

It needs no torch, and works for files of any torch or numpy version.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError
from labelloop.safe_pickle import PickledArray, SafeUnpickler


def read_label_file(path: str | Path) -> dict[str, NDArray[np.int64]]:
    """All label columns of a file: name -> labels [N]. Anything but a column of whole numbers is left out."""
    path = Path(path)
    readers = {".pt": _read_pt, ".npy": _read_npy}
    if path.suffix not in readers:
        raise UsageError(f"{path}: recorded labels are read from .pt or .npy files, not {path.suffix or 'this'!r}")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file: check the path, or download the file again")
    try:
        content = readers[path.suffix](path)
        columns = {str(name): _column(value) for name, value in content.items()} if isinstance(content, dict) else None
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(
            f"{path}: cannot be read as a dictionary of label arrays ({error or type(error).__name__}): "
            "download the file again, or save it as a dictionary of numpy arrays"
        ) from error
    if columns is None:
        raise DataError(f"{path}: holds no dictionary of label arrays: save it as {{'clean_label': ..., ...}}")
    return {name: column for name, column in columns.items() if column is not None}


def _read_pt(path: Path) -> Any:
    if not zipfile.is_zipfile(path):  # before torch 1.6: a magic number, a version and the system, then the object
        with path.open("rb") as file:
            *_, content = [SafeUnpickler(file).load() for _ in range(4)]
        return content
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.split("/")[-1] == "data.pkl")
        return SafeUnpickler(io.BytesIO(archive.read(name))).load()


def _read_npy(path: Path) -> Any:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        _, _, dtype = read_header[version](file)
        if not dtype.hasobject:
            return None  # a plain array says neither what it holds nor which rows it belongs to
        objects = SafeUnpickler(file).load().objects()
    return objects[0] if len(objects) == 1 else None


def _column(value: Any) -> NDArray[np.int64] | None:
    """A column of whole numbers, or None."""
    if isinstance(value, PickledArray):
        value = value.numbers()
    elif isinstance(value, list):
        value = np.array(value) if all(isinstance(item, int | np.integer) for item in value) else None
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu":
        return None
    return value.astype(np.int64)
