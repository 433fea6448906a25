"""The port and token of a review, kept so that an open tab goes on after a restart."""

from __future__ import annotations

import json
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = ".review.json"
LENGTH = 32  # letters of a token


@dataclass(frozen=True)
class Place:
    """The port and the token of a server."""

    port: int
    token: str


def recall(folder: Path) -> Place:
    """What `remember` kept, or a new token.

    A file that others may read, or that came with a copied folder, is not believed: whoever made it knows the token.
    """
    new = Place(0, secrets.token_urlsafe(LENGTH * 3 // 4))
    try:
        with open(folder / NAME, "rb", opener=_no_link) as file:
            about = os.fstat(file.fileno())
            content = json.loads(file.read(4096))
        found = Place(content["port"], content["token"])
        private = stat.S_ISREG(about.st_mode) and not about.st_mode & 0o077
        mine = not hasattr(os, "getuid") or about.st_uid == os.getuid()
        right = type(found.port) is int and 1024 <= found.port <= 65535 and isinstance(found.token, str)
        if private and mine and right and content["folder"] == _identity(folder) and len(found.token) >= LENGTH:
            return found
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return new


def remember(folder: Path, place: Place) -> None:
    """Keeps it for the next start, where only this user can read it. Without a writable folder nothing is kept."""
    content = json.dumps({**asdict(place), "folder": _identity(folder)}).encode()
    with suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)
        handle = os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _identity(folder: Path) -> str:
    """Names this folder on this machine: a copy of it is another one."""
    about = os.stat(folder)
    return f"{about.st_dev}-{about.st_ino} {folder.resolve()}"
