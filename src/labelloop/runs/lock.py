"""One process per run folder: a lock file names its owner."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
from pathlib import Path

from labelloop.errors import DataError
from labelloop.runs.files import naming

LOCK = ".labelloop.lock"


def lock(folder: Path) -> None:
    """Locks the folder for this process until it ends, or until `unlock`.

    The lock of a dead process of this machine is taken over. A lock of another machine cannot be checked, so it holds
    until the file is deleted.

    Raises:
        DataError: Another process uses the folder.
    """
    path = folder / LOCK
    mine = {"pid": os.getpid(), "host": socket.gethostname()}
    for _ in range(2):
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            owner = _owner(path)
            if owner == mine:
                return
            if owner and (owner["host"] != mine["host"] or _is_alive(owner["pid"])):
                raise DataError(
                    f"{folder} is in use by process {owner['pid']} on {owner['host']}; wait for it to end, or give"
                    f" another folder (if there is no such process, delete {path})"
                ) from None
            path.unlink(missing_ok=True)  # left by a process that was killed
            continue
        try:
            with naming(path), os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(mine, file)
        except OSError:  # a full disk: an empty lock would hold off the next run
            path.unlink(missing_ok=True)
            raise
        atexit.register(unlock, folder, os.getpid())
        return
    raise DataError(f"{folder} is in use by another process, which has just started; give another folder")


def unlock(folder: Path, pid: int | None = None) -> None:
    """Unlocks the folder if this process owns it; with `pid`, only in the process of that number."""
    if pid is not None and pid != os.getpid():  # a child of the process that took it
        return
    path = folder / LOCK
    if _owner(path) == {"pid": os.getpid(), "host": socket.gethostname()}:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _owner(path: Path) -> dict[str, object] | None:
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return owner if isinstance(owner, dict) and {"pid", "host"} <= owner.keys() else None


def _is_alive(pid: object) -> bool:
    if os.name == "nt":  # os.kill would end the process there
        return True
    try:
        os.kill(int(str(pid)), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return not _has_ended(int(str(pid)))


def _has_ended(pid: int) -> bool:
    """Whether a process is a zombie: it has ended, but its parent has not collected it yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return False
    return status.rpartition(")")[2].split()[0] == "Z"
