"""Reads dictionaries of label arrays (torch.save's .pt, np.save's .npy) without running what a pickle asks for.

Only stand-ins for numpy's arrays, dtypes and scalars can be built, beside plain containers: no name in the file is ever
imported. So it needs no torch, and neither torch's nor numpy's version matters.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError

_NUMBER = re.compile(r"[biuf][1248]")


def read_label_file(path: str | Path) -> dict[str, NDArray[np.int64]]:
    """All label columns of a file: name -> labels [N]. What is not a column of whole numbers is left out."""
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
            *_, content = [_Unpickler(file).load() for _ in range(4)]
        return content
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.split("/")[-1] == "data.pkl")
        return _Unpickler(io.BytesIO(archive.read(name))).load()


def _read_npy(path: Path) -> Any:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        _, _, dtype = read_header[version](file)
        if not dtype.hasobject:
            return None  # a plain array: it says neither what it holds nor which rows it belongs to
        objects = _Unpickler(file).load().objects()
    return objects[0] if len(objects) == 1 else None


def _column(value: Any) -> NDArray[np.int64] | None:
    """A column of whole numbers, or None."""
    if isinstance(value, _Array):
        value = value.numbers()
    elif isinstance(value, list):
        value = np.array(value) if all(isinstance(item, int | np.integer) for item in value) else None
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu":
        return None
    return value.astype(np.int64)


class _Dtype:
    """Stands in for numpy.dtype."""

    def __init__(self, code: str, *_: Any) -> None:
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def number(self) -> np.dtype[Any] | None:
        known = _NUMBER.fullmatch(self.code) and self.order in ("<", ">", "=", "|")
        return np.dtype(self.order + self.code) if known else None


class _Array:
    """Stands in for numpy.ndarray."""

    def __init__(self, *_: Any) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def numbers(self) -> NDArray[Any] | None:
        _, shape, dtype, fortran, content = self.state
        if dtype.number() is None:
            return None
        return np.frombuffer(content, dtype.number()).reshape(shape, order="F" if fortran else "C")

    def objects(self) -> list[Any]:
        content = self.state[-1]
        return content if isinstance(content, list) else []


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _scalar(dtype: _Dtype, content: bytes) -> Any:
    return None if dtype.number() is None else np.frombuffer(content, dtype.number())[0]


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":  # how protocol 2 writes bytes; any other codec is not an array's
        raise pickle.UnpicklingError(f"it asks for the codec {encoding!r}")
    return text.encode("latin1")


_STAND_INS = {
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
    "numpy.core.multiarray._reconstruct": _reconstruct,  # numpy 1
    "numpy._core.multiarray._reconstruct": _reconstruct,  # numpy 2
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
    "_codecs.encode": _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which label arrays do not need")
        return _STAND_INS[f"{module}.{name}"]
