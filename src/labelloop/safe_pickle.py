"""Reads pickled numbers without running what a pickle asks for.

Only stand-ins for numpy's arrays, dtypes and scalars can be built, beside plain containers: no name in the file is ever
imported. So neither torch's nor numpy's version matters, nor which Python wrote the file.
"""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBER = re.compile(r"[biuf][1248]")


class PickledDtype:
    """Stands in for numpy.dtype."""

    def __init__(self, code: str | bytes, *_: Any) -> None:
        self.code, self.order = _text(code), "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])

    def number(self) -> np.dtype[Any] | None:
        """The dtype, if it is one of plain numbers."""
        known = _NUMBER.fullmatch(self.code) and self.order in ("<", ">", "=", "|")
        return np.dtype(self.order + self.code) if known else None


class PickledArray:
    """Stands in for numpy.ndarray."""

    def __init__(self, *_: Any) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def numbers(self) -> NDArray[Any] | None:
        """The array, read-only, if it is one of plain numbers."""
        _, shape, dtype, fortran, content = self.state
        if dtype.number() is None:
            return None
        return np.frombuffer(content, dtype.number()).reshape(shape, order="F" if fortran else "C")

    def objects(self) -> list[Any]:
        """What an array of objects holds."""
        content = self.state[-1]
        return content if isinstance(content, list) else []


def _text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value  # Python 2 wrote no difference


def _reconstruct(*_: Any) -> PickledArray:
    return PickledArray()


def _scalar(dtype: PickledDtype, content: bytes) -> Any:
    return None if dtype.number() is None else np.frombuffer(content, dtype.number())[0]


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":  # how protocol 2 writes bytes; any other codec is not an array's
        raise pickle.UnpicklingError(f"it asks for the codec {encoding!r}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""  # how protocol 2 writes empty bytes


_STAND_INS = {
    "numpy.ndarray": PickledArray,
    "numpy.dtype": PickledDtype,
    "numpy.core.multiarray._reconstruct": _reconstruct,  # numpy 1
    "numpy._core.multiarray._reconstruct": _reconstruct,  # numpy 2
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
    "_codecs.encode": _encode,
    "__builtin__.bytes": _no_bytes,
}


class SafeUnpickler(pickle.Unpickler):
    """`load` gives plain containers, text, bytes and numbers, and a `PickledArray` for an array."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which arrays of numbers do not need")
        return _STAND_INS[f"{module}.{name}"]
