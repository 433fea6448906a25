"""The undo file: a zip archive that restores the input of an export, byte for byte.

`undo.json` lists what it restores, with checksums. Tables and saved data sets are stored whole. For image folders only
the names are stored, and those images that the export left out; the others are taken from the exported tree. For a
data set on the hub only its name is stored, as an export cannot change it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from labelloop.errors import DataError
from labelloop.export.undo_check import ABOUT, ORIGINAL, SCHEMA_VERSION, read_about
from labelloop.paths import inside
from labelloop.runs.files import fresh_folder, sha256_of, write_atomically


def write_file_undo(path: Path, source: Path, sha256: str, output: Path, run: Path) -> None:
    """Stores a whole file."""
    about = {"kind": "file", "input": str(source), "sha256": sha256, "output": str(output.absolute()), "run": str(run)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        _write_about(archive, about)
        archive.write(source, ORIGINAL)


def write_dataset_undo(path: Path, source: Path, output: Path, run: Path) -> None:
    """Stores a saved data set, with every split."""
    files = sorted(file.relative_to(source).as_posix() for file in source.rglob("*") if file.is_file())
    write_tree_undo(path, source, dict.fromkeys(files), output, run, whole=True, compression=zipfile.ZIP_DEFLATED)


def write_hub_undo(path: Path, name: str, output: Path, run: Path) -> None:
    """Stores where the rows came from."""
    about = {"kind": "hub", "input": name, "output": str(output.absolute()), "run": str(run)}
    with zipfile.ZipFile(path, "w") as archive:
        _write_about(archive, about)


def write_tree_undo(
    path: Path,
    source: Path,
    files: Mapping[str, str | None],
    output: Path,
    run: Path,
    whole: bool,
    compression: int = zipfile.ZIP_STORED,
) -> None:
    """Stores the names of a tree of files.

    Args:
        path: The undo file.
        source: The input folder.
        files: The path of each file in the output, by its path in the input; None for files that were left out.
        output: The exported folder.
        run: The run folder.
        whole: Whether to store the files that were left out. Not needed if the output links to the input.
        compression: None by default, because images are already compressed.
    """
    entries = [{"input": old, "output": new, "sha256": sha256_of(source / old)} for old, new in files.items()]
    about = {
        "kind": "folder",
        "input": str(source),
        "output": str(output.absolute()),
        "run": str(run),
        "files": entries,
        "empty_folders": _empty_folders(source),
    }
    with zipfile.ZipFile(path, "w", compression, compresslevel=1) as archive:
        _write_about(archive, about)
        for old, new in files.items():
            if new is None and whole:
                archive.write(source / old, f"{ORIGINAL}/{old}")


def _empty_folders(source: Path) -> list[str]:
    """The empty folders, as paths in the input."""
    folders = (path for path in sorted(source.rglob("*")) if path.is_dir() and not path.is_symlink())
    return [path.relative_to(source).as_posix() for path in folders if not any(path.iterdir())]


def _write_about(archive: zipfile.ZipFile, about: Mapping[str, Any]) -> None:
    archive.writestr(ABOUT, json.dumps({"schema_version": SCHEMA_VERSION, **about}, indent=1) + "\n")


def undo(path: Path, output: Path | None = None) -> str:
    """Restores the input of an export, and returns a summary as text.

    Args:
        path: The undo file. It may come from a stranger: it is checked whole before anything is written, and it can
            only write below the folder that it stands in, the current one, or `output`.
        output: Where to restore it; by default where it was.

    Raises:
        DataError: The undo file is missing or damaged, or the path is taken. Nothing is overwritten.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; give the .undo.zip that `labelloop export` wrote next to its output")
    try:
        with zipfile.ZipFile(path) as archive:
            about = read_about(archive, path)
            if about["kind"] == "hub":
                return f"{about['input']} is on the hub, where the export changed nothing; there is nothing to undo"
            place = _place(about, path, output)
            restore = _restore_file if about["kind"] == "file" else _restore_tree
            return restore(archive, about, place, path)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise DataError(f"{path} is damaged or not an undo file ({error}); nothing was restored") from None


def _place(about: Mapping[str, Any], path: Path, output: Path | None) -> Path:
    """Where to restore: what the user says, or what the file says if that is near."""
    place = Path(about["input"]) if output is None else output
    near = [Path.cwd(), path.absolute().parent]
    if output is None and not any(_below(place, folder) for folder in near) and not place.exists():
        raise DataError(
            f"{path} says that it was made from {place}, which is somewhere else; to put it back there, say so with"
            f" --output {place}"
        )
    return place


def _below(place: Path, folder: Path) -> bool:
    return Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder))


def _in_the_way(place: Path) -> DataError:
    return DataError(f"{place} exists and has changed; give another path with --output, or move it away")


def _restore_file(archive: zipfile.ZipFile, about: Mapping[str, Any], place: Path, path: Path) -> str:
    if os.path.lexists(place):
        if place.is_file() and sha256_of(place) == about["sha256"]:
            return f"{place} is as it was; there is nothing to undo"
        raise _in_the_way(place)
    if ORIGINAL not in archive.namelist() or _sum_of(archive, ORIGINAL) != about["sha256"]:
        raise DataError(f"{path} is damaged: its checksum is wrong; nothing was restored")

    def copy(partial: Path) -> None:
        with archive.open(ORIGINAL) as stored, partial.open("xb") as file:
            shutil.copyfileobj(stored, file)

    write_atomically(place, copy, new=True)
    return f"{place} restored, byte for byte"


def _restore_tree(archive: zipfile.ZipFile, about: Mapping[str, Any], place: Path, path: Path) -> str:
    wanted = {entry["input"]: entry for entry in about["files"]}
    if os.path.lexists(place):
        there = {str(file.relative_to(place)): file for file in sorted(place.rglob("*")) if file.is_file()}
        if there.keys() == wanted.keys() and all(sha256_of(f) == wanted[n]["sha256"] for n, f in there.items()):
            return f"{place} is as it was; there is nothing to undo"
        raise _in_the_way(place)
    stored = set(archive.namelist())
    sources = {name: _source_of(stored, archive, about, entry, path) for name, entry in wanted.items()}
    with fresh_folder(place) as partial:
        for name, source in sources.items():
            file = inside(partial, name, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            content = archive.read(f"{ORIGINAL}/{name}") if source is None else source.read_bytes()
            if hashlib.sha256(content).hexdigest() != wanted[name]["sha256"]:
                raise DataError(f"{path}: {source or name} has just changed; nothing was restored")
            file.write_bytes(content)
        for folder in about.get("empty_folders", ()):
            inside(partial, folder, path).mkdir(parents=True, exist_ok=True)
    return f"{place} restored, byte for byte: {len(wanted)} files"


def _source_of(
    stored: Collection[str], archive: zipfile.ZipFile, about: Mapping[str, Any], entry: Mapping[str, Any], path: Path
) -> Path | None:
    """The file that still has the bytes of a file of the input: in the exported tree or at its original path.

    None if they are in the undo file. In all cases the checksum is right.
    """
    name = entry["input"]
    places = [Path(about["input"]) / name]
    if entry["output"] is not None:
        places.insert(0, Path(about["output"]) / entry["output"])
    for file in places:
        if file.is_file() and sha256_of(file) == entry["sha256"]:
            return file
    if f"{ORIGINAL}/{name}" in stored:
        if _sum_of(archive, f"{ORIGINAL}/{name}") != entry["sha256"]:
            raise DataError(f"{path} is damaged: the checksum of {name} is wrong; nothing was restored")
        return None
    raise DataError(
        f"{path}: {name} is neither in {about['output']} nor in {about['input']} as it was, so the folder cannot be"
        " restored; put the exported folder back where it was, and try again"
    )


def _sum_of(archive: zipfile.ZipFile, name: str) -> str:
    with archive.open(name) as member:
        return hashlib.file_digest(member, "sha256").hexdigest()  # type: ignore[arg-type]
