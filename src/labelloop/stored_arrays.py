"""Arrays in .npy and .npz files. A header that claims more than the file holds is refused before memory is taken."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

# What numpy raises for a damaged header.
NO_HEADER = (ValueError, EOFError, SyntaxError, RecursionError, MemoryError, OverflowError, TypeError, TokenError)
SUSPICIOUS = 2**30  # bytes; an archive that grows beyond this and by more than MOST_GROWTH is a bomb
MOST_GROWTH = 200


def check_header(file: IO[bytes], size: int, name: str, *, objects: bool = False) -> None:
    """Reads the header of an .npy file, and compares what it claims with the size of the file.

    Args:
        file: At its beginning.
        size: The bytes of the whole file.
        name: For the message.
        objects: Whether an array of Python objects may stand there, which nobody reads.

    Raises:
        ValueError: It is no array, one of objects, or one that is larger or smaller than the file.
    """
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except NO_HEADER as error:
        raise ValueError(f"{name} is not an array ({' '.join(str(error).split())[:100]})") from None
    if dtype.hasobject and objects:
        return
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which are never unpickled (allow_pickle=False)")
    if any(length < 0 for length in shape):
        raise ValueError(f"{name} has a negative length")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != size - file.tell():
        raise ValueError(f"{name} claims {claimed} bytes of values, but the file holds {size - file.tell()}")


def load_array(path: Path) -> NDArray:
    """The array of an .npy file.

    Raises:
        ValueError: It is damaged, or claims more than it holds.
    """
    with path.open("rb") as file:
        check_header(file, os.fstat(file.fileno()).st_size, path.name)
        file.seek(0)
        return np.load(file, allow_pickle=False)


def mapped_array(path: Path) -> NDArray:
    """The array of an .npy file, read when it is looked at; see `load_array`."""
    with path.open("rb") as file:
        check_header(file, os.fstat(file.fileno()).st_size, path.name)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def check_archive(archive: zipfile.ZipFile, size: int, *, compressed: bool = True) -> None:
    """Checks the arrays of an .npz file.

    Args:
        archive: The file, open.
        size: Its bytes.
        compressed: Whether its arrays may be compressed.

    Raises:
        ValueError: A name or a header is wrong, or it would grow as no data does.
    """
    listed = archive.infolist()
    if len({info.filename for info in listed}) < len(listed):
        raise ValueError("two arrays have the same name")
    total = sum(info.file_size for info in listed)
    if not compressed and (total > size or any(info.compress_type != zipfile.ZIP_STORED for info in listed)):
        raise ValueError(f"it claims {total} bytes of arrays, but has {size}")
    if total > max(SUSPICIOUS, MOST_GROWTH * size):
        raise ValueError(f"its {size} bytes would become {total}; write it with np.savez, not np.savez_compressed")
    for info in listed:
        if info.flag_bits & 1:
            raise ValueError(f"{info.filename} is encrypted")
        if info.filename.endswith(".npy"):
            with archive.open(info) as member:
                check_header(member, info.file_size, info.filename, objects=compressed)


def load_arrays(path: Path) -> dict[str, NDArray]:
    """The arrays of an .npz file that we wrote, by name.

    Raises:
        ValueError: It is damaged, compressed, or claims more than it holds.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.stat().st_size, compressed=False)
        with np.load(path, allow_pickle=False) as file:
            found: dict[str, Any] = dict(file)
    except (zipfile.BadZipFile, EOFError, KeyError, NotImplementedError, RuntimeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if not all(isinstance(values, np.ndarray) for values in found.values()):
        raise ValueError("it holds something that is not an array")
    return found
