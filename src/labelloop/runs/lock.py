"""One process per run folder: the system holds the lock, and gives it back however the process ends.

The file only says who holds it. Where the system has no such lock, the file itself is the lock, as in older versions.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import socket
import time
from pathlib import Path

from labelloop.errors import DataError
from labelloop.runs.files import is_alive, naming
from labelloop.trust import NO_LINK, small_file

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".labelloop.lock"
SIGNING = 10.0  # seconds that a process may take between making the file and signing it, where the file is the lock

_held: dict[Path, int] = {}  # the open lock files of this process


def lock(folder: Path) -> None:
    """Locks the folder for this process until it ends, or until `unlock`.

    A lock of another machine cannot always be checked, so it holds until the file is deleted.

    Raises:
        DataError: Another process uses the folder.
    """
    hold(folder.resolve() / LOCK)


def unlock(folder: Path) -> None:
    """Unlocks the folder if this process holds it."""
    release(folder.resolve() / LOCK)


def in_use(folder: Path) -> bool:
    """Whether another process holds the lock of a folder."""
    path = folder.resolve() / LOCK
    if path in _held or not path.exists():
        return False
    try:
        hold(path)
    except DataError:
        return True
    release(path)
    return False


def hold(path: Path, about: str = "") -> str | None:
    """Makes a file that this process holds until it ends, or until `release`.

    Args:
        path: The file, with links resolved.
        about: What to write into it, for whoever finds it later.

    Returns:
        What was written into it by a process that was killed; None if there was no such file.

    Raises:
        DataError: Another process holds it.
    """
    if path in _held:
        return None
    found = _owner(path)
    handle = _by_the_system(path, about)
    _held[path] = _by_the_file(path, about) if handle is None else handle
    atexit.register(release, path, os.getpid())
    return None if found is None else str(found.get("about", ""))


def release(path: Path, pid: int | None = None) -> None:
    """Deletes a file that this process holds; with `pid`, only in the process of that number."""
    if (pid is not None and pid != os.getpid()) or path not in _held:
        return
    handle = _held.pop(path)
    with contextlib.suppress(OSError):
        if _is_same(handle, path):
            path.unlink(missing_ok=True)  # before it is given back, so that nobody else's is deleted
    os.close(handle)


def _by_the_system(path: Path, about: str) -> int | None:
    """The lock file, open and locked; None if the system or the file system has no such locks."""
    if fcntl is None:
        return None
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owner = _owner(path)
            if not _is_same(handle, path):  # its holder has just ended, and deleted it
                os.close(handle)
                continue
            if owner and _must_be_believed(owner):
                raise _in_use(path, owner)
            _sign(handle, path, about)
            return handle
        except BlockingIOError:
            os.close(handle)
            raise _in_use(path, _owner(path)) from None
        except BaseException as error:
            os.close(handle)
            if isinstance(error, OSError) and error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                return None
            raise


def _by_the_file(path: Path, about: str) -> int:
    """The lock file, which nobody else can make while it is there."""
    for _ in range(2):
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        except FileExistsError:
            owner, age = _owner(path), _age(path)
            if age < SIGNING or (owner and _must_be_believed({**owner, "flock": False})):
                raise _in_use(path, owner) from None
            path.unlink(missing_ok=True)  # left by a process that was killed
            continue
        try:
            _sign(handle, path, about)
        except BaseException:
            os.close(handle)
            raise
        return handle
    raise _in_use(path, _owner(path))


def _age(path: Path) -> float:
    """The seconds since a file was written; none for one that has just gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_same(handle: int, path: Path) -> bool:
    try:
        there, mine = os.stat(path), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _sign(handle: int, path: Path, about: str) -> None:
    try:
        with naming(path), os.fdopen(os.dup(handle), "w", encoding="utf-8") as file:
            os.ftruncate(handle, 0)
            mine = {"pid": os.getpid(), "host": socket.gethostname(), "flock": fcntl is not None, "about": about}
            json.dump(mine, file)
    except OSError:  # a full disk
        path.unlink(missing_ok=True)
        raise


def _in_use(path: Path, owner: dict[str, object] | None) -> DataError:
    whom = f"process {owner['pid']} on {owner['host']}" if owner else "another process, which has just started"
    return DataError(
        f"{path.parent} is in use by {whom}; wait for it to end, or give another folder (if there is no such process,"
        f" delete {path})"
    )


def _owner(path: Path) -> dict[str, object] | None:
    try:
        owner = json.loads(small_file(path)[0])
    except (OSError, ValueError, RecursionError):
        return None
    return owner if isinstance(owner, dict) and {"pid", "host"} <= owner.keys() else None


def _must_be_believed(owner: dict[str, object]) -> bool:
    """Whether a file that the system has not locked is a lock all the same: of another machine, or an older version."""
    if owner["host"] != socket.gethostname():
        return True
    return not owner.get("flock") and owner["pid"] != os.getpid() and is_alive(owner["pid"])


def _forget() -> None:
    """A child process does not hold the locks of its parent, and must not keep them once the parent has gone."""
    for handle in _held.values():
        os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
