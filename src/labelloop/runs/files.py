"""Atomic writes, and JSON with clear errors."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from labelloop.errors import DataError
from labelloop.trust import TooLarge, check_parquet, file_in, memory_errors

FULL = os.strerror(errno.ENOSPC)
PARTIAL = re.compile(r"\.(.+)\.(\d{1,9})-([0-9a-f]{6})\.partial", re.DOTALL)


def write_atomically(path: Path, write: Callable[[Path], object], *, new: bool = False) -> None:
    """Lets `write` fill a temporary file next to `path`, then moves it there in one step.

    Args:
        path: What to write, or to replace.
        write: Writes the file that it is given.
        new: Whether to refuse to replace a file that has appeared meanwhile.
    """
    partial = _partial(path)
    try:
        with naming(path):
            write(partial)
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.chmod(_usual_mode())  # some libraries write files that only their owner may read
            _move(partial, path, new)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):  # on a disk that can only be read, where the write has failed already
            partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    """The name of a temporary file next to `path`, in a folder without those that killed processes left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, path.name)
    return path.with_name(f".{path.name}.{os.getpid()}-{_host()}.partial")


@cache
def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]


def sweep(folder: Path, name: str | None = None) -> None:
    """Deletes temporary files that processes of this machine left when they were killed.

    Args:
        folder: Where to look.
        name: The file that they were to become; any by default.
    """
    for entry in os.scandir(folder):
        found = PARTIAL.fullmatch(entry.name)
        if not found or found[3] != _host() or (name is not None and found[1] != name):
            continue
        if int(found[2]) == os.getpid() or not is_alive(found[2]):  # this one writes a file only once at a time
            with suppress(OSError):
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)


def is_alive(pid: object) -> bool:
    """Whether there is a process of this number that has not ended, whether or not its parent has collected it."""
    if os.name == "nt":  # os.kill would end the process there
        return True
    try:
        os.kill(int(str(pid)), 0)
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:  # of another user, or not on Linux
        return True
    return status.rpartition(")")[2].split()[0] != "Z"


def _move(partial: Path, path: Path, new: bool) -> None:
    if not new:
        partial.replace(path)
        return
    try:
        os.link(partial, path)  # unlike a rename, fails if there is one
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without links
        if path.exists():
            raise _exists(path) from None
        partial.replace(path)


def _exists(path: Path) -> DataError:
    return DataError(f"{path} exists and is not overwritten; move it away, or give another path")


def sync_folder(folder: Path) -> None:
    """Returns once the names in a folder are on disk: until then a power cut may take back a new file or a rename."""
    with suppress(PermissionError):  # Windows opens no folders, and keeps names by itself
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Makes an error of the system name the file that was to be written, not a temporary one."""
    try:
        yield
    except Exception as error:  # libraries raise their own kinds of errors
        if isinstance(error, FileNotFoundError | PermissionError) and error.filename not in (None, str(path)):
            raise  # it is about another file, which was read
        if FULL.lower() in str(error).lower():
            raise OSError(errno.ENOSPC, FULL, str(path)) from error
        if isinstance(error, OSError):
            raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
        raise


@contextmanager
def fresh_folder(path: Path) -> Iterator[Path]:
    """A temporary folder next to `path`, which is moved there in one step if all goes well. Nothing is replaced."""
    partial = _partial(path)
    try:
        partial.mkdir()
        yield partial
        if os.path.lexists(path):
            raise _exists(path)
        partial.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _usual_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """The content of a JSON file."""
    return (json.dumps(content, indent=1) + "\n").encode()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON file."""
    text = json_bytes(content)
    write_atomically(path, lambda place: place.write_bytes(text))


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON file.

    Raises:
        DataError: It is missing or damaged, or holds no record.
    """
    try:
        found = json.loads(file_in(path.parent, path.name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing; is {path.parent} the folder of a finished run?") from None
    except DataError:
        raise
    except (ValueError, RecursionError) as error:  # not JSON, not text, nested too deep, a number of 5,000 digits
        why = " ".join(str(error).split())[:100]
        raise DataError(f"{path} is damaged ({why}); restore it or start the run again in another folder") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} is damaged (it holds no record); restore it or start the run again in another folder")
    return found


def read_parquet(path: Path) -> pa.Table:
    """Reads a Parquet file that a stranger may have made.

    Raises:
        DataError: It would grow as no result does: a few megabytes can name billions of equal values.
        pa.ArrowException: It is damaged.
    """
    with memory_errors(), pq.ParquetFile(path, pre_buffer=False) as file:
        try:
            check_parquet(path, file.metadata)
        except TooLarge as error:
            raise DataError(f"{path}: {error}; restore it, or run again in another folder") from None
        table = file.read(use_threads=False)  # a thread that gets no memory is waited for without end
        table.validate(full=True)  # or a flipped bit in a text is found where it is shown
        return table


def sha256_of(path: Path) -> str:
    """The SHA-256 checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
