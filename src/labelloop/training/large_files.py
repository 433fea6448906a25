"""The large arrays of a checkpoint: .npy files that are written and read chunk by chunk, named by what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError
from labelloop.large_arrays import by_chunks, row_chunks
from labelloop.runs.files import write_atomically

ADVICE = "restore it from a copy, or start again in another folder (nothing was changed)"


def large_file(folder: Path, key: str, array: NDArray, written: Mapping[str, Any]) -> dict[str, Any]:
    """Writes an array [n, width], unless a file with the same content exists; returns its entry in state.json.

    Args:
        folder: Of the checkpoint.
        key: The name of the array.
        array: What to write.
        written: The entries of the existing checkpoint.
    """
    digest = _digest(array)
    name = f"{key}-{digest[:16]}.npy"
    if name not in written:
        write_atomically(folder / name, lambda place: _write(place, array))
    return {name: {"array": key, "bytes": array.nbytes, "sha256": digest}}


def read_large(path: Path, expected: Mapping[str, Any]) -> NDArray:
    """Reads an array back, and refuses it if its size or checksum differs."""
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} is missing from the checkpoint; {ADVICE}") from None
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}); {ADVICE}") from None
    if stored.nbytes != expected["bytes"] or _digest(stored) != expected["sha256"]:
        raise DataError(f"{path} is damaged: its checksum differs from the one written; {ADVICE}")
    return by_chunks(lambda rows: stored[rows], stored.shape, stored.dtype)


def _write(place: Path, array: NDArray) -> None:
    with place.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
        )
        for rows in row_chunks(*array.shape):
            file.write(np.ascontiguousarray(array[rows]).data)


def _digest(array: NDArray) -> str:
    digest = hashlib.sha256()
    for rows in row_chunks(*array.shape):
        digest.update(np.ascontiguousarray(array[rows]).data)
    return digest.hexdigest()
