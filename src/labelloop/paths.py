"""Paths that come from a file: inside their folder, without a detour over links, and only to real files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from labelloop.errors import DataError, some

LONGEST, LONGEST_PART = 4000, 255  # letters that a path and a name of a file may have


def is_inside(name: Any) -> bool:
    """Whether a name can only mean something below the folder that it is looked up in."""
    if not isinstance(name, str) or not name.strip("./\\ ") or "\0" in name:
        return False
    if len(name) > LONGEST or any(len(part) > LONGEST_PART for part in name.split("/")):
        return False
    as_windows = PureWindowsPath(name)  # takes / and \, and knows drives
    return (
        not name.startswith(("/", "\\")) and ".." not in as_windows.parts and not (os.name == "nt" and as_windows.drive)
    )


def inside(root: Path, name: Any, source: object) -> Path:
    """The path of a name that a file gave, below a folder.

    Args:
        root: The folder, which need not exist.
        name: A relative path in POSIX form.
        source: What gave the name, for the message.

    Raises:
        DataError: It is absolute, has a part "..", or a link on the way leads out of the folder.
    """
    if not is_inside(name):
        raise DataError(
            f"{source}: {name!r:.200} leads out of {root}, or is no name of a file; nothing was done with it"
        )
    place = root / name
    if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(root)):
        raise DataError(f"{source}: {name!r:.200} is a link that leads out of {root}; put the file there instead")
    return place


def all_inside(root: Path, names: Sequence[str], source: str) -> list[Path]:
    """The files that a table names, all of them inside its folder."""
    leaving = [name for name in names if not is_inside(name)]
    if leaving:
        raise DataError(
            f"{source}: {len(leaving)} file names lead out of {root}: {some(leaving)}; use paths inside that folder"
        )
    return [inside(root, name, source) for name in names]


def single_name(name: Any, source: object) -> str:
    """A name as one folder or file, not a path.

    Raises:
        DataError: It is a path, or cannot be the name of a folder.
    """
    text = str(name)
    if not is_inside(text) or "/" in text or "\\" in text or len(os.fsencode(text)) > 255:
        raise DataError(f"{source} {text!r:.80} cannot be the name of a folder; rename it and run again")
    return text


def file_in(folder: Path, name: str) -> Path:
    """A file of a run folder: there, a real file, and not a link to one elsewhere.

    Raises:
        FileNotFoundError: There is none.
        DataError: It is a folder, a pipe, a device, or a link that leads out of the folder.
    """
    path = folder / name
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise DataError(f"{path} is not a file but {_kind(mode)}; take it away, or give another folder")
    if path.is_symlink():
        inside(folder, name, folder)
    return path


def no_links_out(folder: Path) -> None:
    """Refuses a tree that holds links out of it, pipes or devices.

    Raises:
        DataError: It holds one.
    """
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place) / name
            if path.is_symlink():
                inside(folder, path.relative_to(folder).as_posix(), folder)
            elif not stat.S_ISREG(mode := path.lstat().st_mode) and not stat.S_ISDIR(mode):
                raise DataError(f"{path} is not a file but {_kind(mode)}; take it away, or give another folder")


def _kind(mode: int) -> str:
    kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((words for is_kind, words in kinds.items() if is_kind(mode)), "a device")


def listing_of(root: Path, names: Iterable[str]) -> str:
    """A checksum of the names and sizes of files in a folder: tells whether it is still the same one."""
    digest = hashlib.sha256()
    for name in names:
        try:
            size = os.stat(root / name).st_size
        except (OSError, ValueError):
            size = -1
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def files_of(root: Path) -> list[str]:
    """The files of a tree, sorted, as paths below it; links to folders are not followed."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
