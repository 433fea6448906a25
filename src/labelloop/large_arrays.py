"""Arrays with an entry for every row of the data: in memory if they are small, else memory-mapped from files.

A mapped array is used like any numpy array. Its file has no name and vanishes with the process. How much may stay in
memory is a setting of the whole process, like malloc's; only commands and `fit` set it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from labelloop.errors import UsageError

SHARE = 32  # an array larger than this part of the limit is kept in a file
SMALLEST = 2**20  # bytes that are never worth a file
CHUNK_VALUES = 2**22  # numbers that are worked on at a time: 16 MiB in float32
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
ONE_GIB = 2**30
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

PLACE = "LABELLOOP_CACHE"  # the environment variable that names the folder


@dataclass(frozen=True)
class Limit:
    """How much memory the arrays of a process may take.

    Attributes:
        bytes: About how much the process may hold; an array of more than a 32nd part of it goes to a file.
        folder: Where such files are made; the system's temporary folder by default.
        half: Whether soft labels are kept in half precision.
    """

    bytes: int
    folder: Path | None = None
    half: bool = False


_limit: ContextVar[Limit | None] = ContextVar("limit", default=None)
_mapped: weakref.WeakSet[Any] = weakref.WeakSet()  # the maps that are in use


def parse_bytes(text: str) -> int:
    """4G, 500M or a number of bytes, as a number.

    Raises:
        UsageError: It is none of these, or too little to work with.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?", text.strip().upper())
    if not found:
        raise UsageError(f"max_memory: {text!r} is not a size; write it as 4G or 500M")
    size = int(float(found[1]) * UNITS[found[2]])
    if size < 2**20:
        raise UsageError(f"max_memory: {text!r} is less than a megabyte; write it as 4G or 500M")
    return size


def usual_limit() -> int:
    """Half of the memory of the machine, or of the container where that has less."""
    try:
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):  # Windows
        sizes = [8 * 2**30]
    for place in CGROUP_LIMITS:
        try:
            sizes.append(int(Path(place).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # "max", or no container
            continue
    return min(sizes) // 2


@contextmanager
def memory_limit(size: str | int | None, folder: Path | None = None, *, half: bool = False) -> Iterator[Limit]:
    """Sets the limit for what is done inside.

    Args:
        size: In bytes or as 4G; None for the limit outside, or `usual_limit`.
        folder: Where files are made: this folder, or the nearest one above it that exists.
        half: Whether soft labels are kept in half precision.
    """
    outer = _limit.get()
    count = parse_bytes(str(size)) if size is not None else outer.bytes if outer else usual_limit()
    place = outer.folder if outer else None
    if folder is not None:
        place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    token = _limit.set(Limit(count, place, half or bool(outer and outer.half)))
    try:
        yield current_limit()
    finally:
        _limit.reset(token)


def current_limit() -> Limit:
    """The limit here."""
    return _limit.get() or Limit(usual_limit())


def soft_dtype() -> Any:
    """What soft labels are kept in: float32, or float16 where that was asked for."""
    limit = _limit.get()
    return np.float16 if limit is not None and limit.half else np.float32


def zeros(shape: Sequence[int], dtype: DTypeLike = np.float32) -> NDArray:
    """A new array of zeros, in a file where it is large.

    Raises:
        OSError: The disk has no room for it.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size <= SMALLEST or not is_large(size):
        return np.zeros(shape, dtype)
    folder = current_limit().folder
    with tempfile.TemporaryFile(dir=folder, prefix="labelloop-") as file:
        _reserve(file.fileno(), size, Path(folder or tempfile.gettempdir()))
        array = np.memmap(file, dtype, "r+", shape=tuple(shape))
    keep_track(array._mmap)  # type: ignore[attr-defined]
    return array


def keep_track(mapped: Any) -> None:
    """Lets `release` know of a map of a file that nobody else writes to."""
    _mapped.add(mapped)


def mapped_file(path: Path) -> NDArray:
    """An .npy file, read when it is looked at."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    keep_track(array._mmap)
    return array


def is_large(size: int) -> bool:
    """Whether an array of so many bytes is kept in a file."""
    return size > current_limit().bytes // SHARE


def is_on_disk(array: Any) -> bool:
    """Whether an array, or what it is a view of, is mapped from a file."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def _reserve(handle: int, size: int, folder: Path) -> None:
    """Takes the room on the disk now: a mapped page for which there is none later would kill the process."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.truncate(handle, size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        words = f"no room for an array of {size / 2**30:.2f} GiB, which is too large for memory (see --max-memory)"
        raise OSError(error.errno, words, str(folder)) from error


def release() -> None:
    """Lets go of the memory behind every mapped array; what was written stays, and comes back when it is read."""
    if hasattr(mmap, "MADV_DONTNEED"):
        for each in list(_mapped):
            each.madvise(mmap.MADV_DONTNEED)


class Releaser:
    """Called once a batch of rows picked at random: lets go of mapped memory whenever it fills an eighth of the limit.

    A row that is touched brings in the pages around it, as many as the file system likes, so on Linux the process is
    asked how much is mapped; elsewhere it is estimated.

    Args:
        arrays: Those that rows are picked from.
    """

    PAGES = 2**16  # bytes that come with a row, where nobody knows

    def __init__(self, *arrays: Any) -> None:
        self.count = sum(is_on_disk(array) for array in arrays)
        self.most = current_limit().bytes // 8
        self.touched = 0
        if self.count:
            release()
            self.first = _mapped_bytes()

    def __call__(self, rows: int) -> None:
        if self.count:
            self.touched += rows * self.count * self.PAGES
            mapped = _mapped_bytes()
            if (self.touched if mapped is None or self.first is None else mapped - self.first) > self.most:
                release()
                self.touched, self.first = 0, _mapped_bytes()  # a map that somebody else opened stays


def _mapped_bytes() -> int | None:
    """The memory of this process that files are mapped to; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[2]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return None


def row_chunks(count: int, width: int, values: int | None = None) -> Iterator[slice]:
    """Slices of rows that hold about CHUNK_VALUES numbers each, or `values`; one of all rows where these are few."""
    step = max(1, (values or CHUNK_VALUES) // max(width, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
        if count > step:
            release()


def by_chunks(
    make: Callable[[slice], NDArray], shape: Sequence[int], dtype: DTypeLike = np.float32, *, width: int = 0
) -> NDArray:
    """An array [n, C] whose rows are made chunk by chunk.

    Args:
        make: Makes some rows.
        shape: n and C.
        dtype: Of the array.
        width: Numbers a row that are looked at to make it, where these are more than C.
    """
    made = zeros(shape, dtype)
    for rows in row_chunks(shape[0], max(shape[1], width)):
        made[rows] = make(rows)
    return made


def taken(array: NDArray, index: NDArray) -> NDArray:
    """array[index], in a file where that is large; the array itself where the index names all rows in order."""
    if len(index) == len(array) and np.array_equal(index, np.arange(len(array))):
        return array
    width = int(np.prod(array.shape[1:], dtype=np.int64))
    made = zeros((len(index), *array.shape[1:]), array.dtype)
    for rows in row_chunks(len(index), width):
        made[rows] = array[index[rows]]
    return made


def mean_and_deviation(array: NDArray) -> tuple[NDArray, NDArray]:
    """Of every column, chunk by chunk [D]."""
    if len(array) * array.shape[1] <= CHUNK_VALUES:
        return array.mean(axis=0), array.std(axis=0)
    mean, squares = np.zeros(array.shape[1]), np.zeros(array.shape[1])
    for rows in row_chunks(*array.shape):
        mean += array[rows].sum(axis=0, dtype=np.float64) / len(array)
    for rows in row_chunks(*array.shape):
        squares += ((array[rows] - mean) ** 2).sum(axis=0) / len(array)
    return mean, np.sqrt(squares)


def put(array: NDArray, index: NDArray, values: NDArray) -> None:
    """array[index] = values, chunk by chunk."""
    for rows in row_chunks(len(index), int(np.prod(array.shape[1:], dtype=np.int64))):
        array[index[rows]] = values[rows]


def joined(first: NDArray, second: NDArray) -> NDArray:
    """The rows of both, in a file where they are large."""
    made = zeros((len(first) + len(second), *first.shape[1:]), first.dtype)
    for rows in row_chunks(len(first), first.shape[1]):
        made[rows] = first[rows]
    made[len(first) :] = second
    return made


def keep_freed_memory() -> bool:
    """Lets malloc keep memory that training frees, for the next step; returns whether this system supports it.

    By default glibc returns every block above 32 MiB to the system and gets it back page by page. The activations of a
    batch are of that size, so every step would pay for it.
    """
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError, AttributeError):  # musl has no mallopt
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        return all(mallopt(option, ONE_GIB) for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))
    return False


def cache_folder() -> Path:
    """$LABELLOOP_CACHE, else labelloop in the user's folder of caches."""
    if named := os.environ.get(PLACE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "labelloop"
