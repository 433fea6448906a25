"""Checks an undo file whole before a byte of it is written: names, kinds, sizes, and what undo.json says."""

from __future__ import annotations

import json
import re
import shutil
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labelloop.errors import DataError
from labelloop.paths import is_inside

SCHEMA_VERSION = 1
ABOUT = "undo.json"
ORIGINAL = "original"
MOST_GROWTH = 1100  # of a compressed file: zlib's own limit is 1032
LARGEST_ABOUT = 2**30  # bytes of undo.json: a hundred for every file of a tree


def read_about(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    """What undo.json says, if the whole archive is what an export writes.

    Raises:
        DataError: It is not.
    """
    listed = archive.infolist()
    info = next((one for one in listed if one.filename == ABOUT), None)
    if info is None or info.file_size > LARGEST_ABOUT:
        raise DataError(f"{path} is damaged or not an undo file: it has no {ABOUT}; nothing was restored")
    _check_sizes(listed, path)
    try:
        about = json.loads(archive.read(info))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {ABOUT} cannot be read ({error!s:.80}); nothing was restored") from None
    _check_about(about, path)
    files = {entry["input"] for entry in about.get("files", ())}
    allowed = {ABOUT, *([ORIGINAL] if about["kind"] == "file" else []), *(f"{ORIGINAL}/{name}" for name in files)}
    for one in listed:
        mode = one.external_attr >> 16
        if one.filename not in allowed or one.flag_bits & 1 or (mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode)):
            raise DataError(f"{path} holds {one.filename!r:.200}, which no export writes; nothing was restored")
    return about


def _check_sizes(listed: list[zipfile.ZipInfo], path: Path) -> None:
    if len({one.filename for one in listed}) < len(listed):
        raise DataError(f"{path} holds two files of one name; nothing was restored")
    total, free = sum(one.file_size for one in listed), shutil.disk_usage(path.parent).free
    if total > free:
        raise DataError(f"{path} says that it holds {total} bytes, more than the {free} that are free here")
    grown = [one for one in listed if one.file_size > one.compress_size * (MOST_GROWTH if one.compress_type else 1)]
    if grown or sum(one.compress_size for one in listed) > path.stat().st_size:
        raise DataError(f"{path} says that it holds more than it is large; nothing was restored")


def _check_about(about: Any, path: Path) -> None:
    """Refuses fields that are missing or of another type, and names that lead out of a folder."""
    _require(isinstance(about, dict), path, "undo.json", "is not a record")
    version = about.get("schema_version", 1)
    _require(type(version) is int and version >= 1, path, "schema_version", "is not a version")
    if version > SCHEMA_VERSION:
        raise DataError(f"{path} was written by a newer version of LabelLoop; update LabelLoop to undo it")
    _require(about.get("kind") in ("file", "folder", "hub"), path, "kind", "must be file, folder or hub")
    for key in ("input", "output"):
        text = about.get(key)
        _require(isinstance(text, str) and text != "" and "\0" not in text, path, key, "is not a path")
    if about["kind"] == "file":
        _require(_is_sum(about.get("sha256")), path, "sha256", "is not a checksum")
    if about["kind"] == "folder":
        files, folders = about.get("files"), about.get("empty_folders", [])
        _require(isinstance(files, list) and all(map(_is_entry, files)), path, "files", "does not list files")
        _require(isinstance(folders, list), path, "empty_folders", "is not a list")
        names = [entry["input"] for entry in files] + folders
        targets = [entry["output"] for entry in files if entry["output"] is not None]
        for name in (*names, *targets):
            _require(is_inside(name), path, "files", f"{name!r:.200} leads out of the folder")
        _require(len(set(names)) == len(names), path, "files", "names a file twice")


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, Mapping)
        and isinstance(entry.get("input"), str)
        and "output" in entry
        and (entry["output"] is None or isinstance(entry["output"], str))
        and _is_sum(entry.get("sha256"))
    )


def _is_sum(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _require(holds: bool, path: Path, field: str, problem: str) -> None:
    if not holds:
        raise DataError(f"{path} is damaged or not an undo file: {field} {problem}; nothing was restored")
