"""manifest.json: the size and SHA-256 of every result file. It is written before run.json says "finished", so
every finished run has one. Readers compare, so a flipped bit is an error and not another result.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from labelloop.errors import DataError
from labelloop.runs.files import read_json, sha256_of, write_json
from labelloop.trust import file_in, files_of, inside

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
KEYS = ["files", "schema_version", "sha256"]
RESTORE = "restore it from a copy, or run again in another folder; `labelloop verify` lists every file"


@dataclass(frozen=True)
class Checked:
    """How a file compares with the manifest: "whole", "damaged", "missing" or "foreign", which is not in it."""

    name: str
    state: str


def write_manifest(folder: Path, names: Iterable[str], contents: Mapping[str, bytes] | None = None) -> None:
    """Writes the manifest of a folder.

    Args:
        folder: Where the files are.
        names: The files, or folders of files; those that do not exist are left out.
        contents: What files will hold that are written after this one.
    """
    listed = [name for start in names for name in _below(folder, start)]
    files = {name: {"bytes": os.stat(folder / name).st_size, "sha256": sha256_of(folder / name)} for name in listed}
    for name, content in (contents or {}).items():
        files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_json(folder / MANIFEST, {"schema_version": SCHEMA_VERSION, "files": files, "sha256": _sum(files)})


def _below(folder: Path, name: str) -> Iterator[str]:
    if (folder / name).is_dir():
        yield from (f"{name}/{inner}" for inner in files_of(folder / name))
    elif (folder / name).is_file():
        yield name


def read_manifest(folder: Path) -> dict[str, dict[str, Any]] | None:
    """The size and checksum of every file by its name; None if there is no manifest, as in older runs.

    Raises:
        DataError: It is damaged.
    """
    try:
        content = read_json(file_in(folder, MANIFEST))
    except FileNotFoundError:
        return None
    files: Any = content.get("files")
    if type(content.get("schema_version")) is int and content["schema_version"] > SCHEMA_VERSION:
        raise DataError(f"{folder / MANIFEST} was written by a newer version of LabelLoop; update LabelLoop")
    whole = isinstance(files, dict) and content.get("sha256") == _sum(files) and sorted(content) == KEYS
    if not whole or content["schema_version"] != SCHEMA_VERSION or not all(map(_is_entry, files.values())):
        raise DataError(f"{folder / MANIFEST} is damaged: its checksum differs from the one written; {RESTORE}")
    return files


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str)


def _sum(files: Any) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def checked(folder: Path, name: str) -> Path:
    """The path of a result file that is as it was written, or of one in a folder without a manifest.

    Raises:
        FileNotFoundError: There is none, and the manifest knows of none.
        DataError: It is missing, damaged, or was not written with the others.
    """
    files = read_manifest(folder)
    if files is not None and name in files and not os.path.lexists(folder / name):
        raise DataError(f"{folder / name} is missing; {RESTORE}")
    path = file_in(folder, name)
    if files is None:
        return path
    if name not in files:
        raise DataError(f"{path} was not written by the run in {folder}: its manifest does not know it; take it away")
    size, expected = os.stat(path).st_size, files[name]
    if size != expected["bytes"]:
        raise DataError(f"{path} is damaged: it has {size} bytes instead of {expected['bytes']}; {RESTORE}")
    if sha256_of(path) != expected["sha256"]:
        raise DataError(f"{path} is damaged: its checksum differs from the one written; {RESTORE}")
    return path


def check_tree(folder: Path, name: str) -> None:
    """Compares every file of a folder inside a run, such as a trained encoder; see `checked`."""
    files = read_manifest(folder)
    if files is not None:
        listed = {one for one in files if one.startswith(f"{name}/")}
        for one in sorted(listed.union(_below(folder, name))):
            checked(folder, one)


def compare(folder: Path, known: Iterable[str]) -> list[Checked]:
    """Every file of a run folder, and how it compares with the manifest; without one, all that is there is "unknown".

    Args:
        folder: The run folder.
        known: Patterns of the names of files and folders that may change later and are in no manifest.
    """
    files, apart = read_manifest(folder), (MANIFEST, *known)
    there = [name for name in files_of(folder) if not any(fnmatch(name.split("/")[0], one) for one in apart)]
    if files is None:
        return [Checked(name, "unknown") for name in there]
    foreign = [Checked(name, "foreign") for name in there if name not in files]
    return [Checked(name, _state(folder, name)) for name in files] + foreign


def _state(folder: Path, name: str) -> str:
    if not os.path.lexists(inside(folder, name, folder / MANIFEST)):
        return "missing"
    try:
        checked(folder, name)
    except (DataError, OSError):
        return "damaged"
    return "whole"
