"""Counts what a command does to the disk, and stops it, or fails it, at the n-th event."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from typing import Any

KILLED = 137
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PLAIN = ("replace", "rename", "link", "unlink", "rmdir", "mkdir", "fsync", "ftruncate", "write", "symlink")


class Events:
    """Wraps every call that changes a disk.

    Args:
        stop: The number of the event before which the process ends, or that fails; 0 counts only.
        how: "killed" ends the process, and writes half of what was to be written; "full" fails the event with a full
            disk; "read-only" fails it and all that follow, as on a disk that can only be read from then on.
    """

    def __init__(self, stop: int = 0, how: str = "killed") -> None:
        self.count, self.stop, self.how = 0, stop, how

    def __enter__(self) -> Events:
        for name in PLAIN:
            setattr(os, name, self._wrapped(getattr(os, name), lambda *_, **__: True, name))
        os.open = self._wrapped(os.open, lambda path, flags, *_, **__: bool(flags & WRITING), "open")
        opened = self._wrapped(io.open, _writes, "open")
        builtins.open = io.open = opened  # pathlib calls the one in io
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is put back: each of these runs in a process of its own."""

    def _wrapped(self, call: Callable[..., Any], counts: Callable[..., bool], name: str) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            if counts(*given, **named) and not _is_terminal(name, given):
                self.count += 1
                self._stop(call, name, given)
            return call(*given, **named)

        return wrapped

    def _stop(self, call: Callable[..., Any], name: str, given: tuple[Any, ...]) -> None:
        if not self.stop or self.count < self.stop:
            return
        if self.how == "read-only" and name not in ("fsync", "write", "ftruncate"):  # of files that are open already
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(given[0]))
        if self.count > self.stop:
            return
        if self.how == "killed" and name == "write":
            call(given[0], given[1][: len(given[1]) // 2])
        if self.how == "killed":
            os._exit(KILLED)
        if self.how == "full" and name not in ("unlink", "rmdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(given[0]))


def _writes(file: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
    return any(letter in mode for letter in "wax+") and not isinstance(file, int)


def _is_terminal(name: str, given: tuple[Any, ...]) -> bool:
    return name == "write" and given[0] in (1, 2)
