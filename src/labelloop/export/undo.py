"""Checks an undo file whole before a byte of it is written: names, kinds, sizes, and what undo.json says."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from labelloop.errors import DataError
from labelloop.runs.files import fresh_folder, sha256_of, sweep, write_atomically
from labelloop.trust import COMPRESSIONS, NO_ARCHIVE, files_of, inside, is_inside

SCHEMA_VERSION = 1
ABOUT = "undo.json"
ORIGINAL = "original"
MOST_GROWTH = 1100  # of a compressed file: zlib's own limit is 1032
DATA = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx", ".npz", ".npy", ".gz", ".zst")
RUN_BY_OTHERS = (".py", ".pyc", ".pyd", ".pth", ".so", ".dll", ".sh", ".bat", ".cmd", ".exe", ".lnk", ".desktop", ".js")
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
    strange = any(one.compress_type not in COMPRESSIONS for one in listed)
    if strange or len({one.filename for one in listed}) < len(listed):
        raise DataError(f"{path} holds two files of one name, or compressed as no export does; nothing was restored")
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


def write_file_undo(path: Path, source: Path, sha256: str, output: Path, run: Path) -> None:
    """Stores a whole file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        _write_about(archive, "file", source, output, run, {"sha256": sha256})
        archive.write(source, ORIGINAL)


def write_dataset_undo(path: Path, source: Path, output: Path, run: Path) -> None:
    """Stores a saved data set, with every split."""
    write_tree_undo(
        path, source, dict.fromkeys(files_of(source)), output, run, whole=True, compression=zipfile.ZIP_DEFLATED
    )


def write_hub_undo(path: Path, name: str, output: Path, run: Path) -> None:
    """Stores where the rows came from."""
    with zipfile.ZipFile(path, "w") as archive:
        _write_about(archive, "hub", name, output, run, {})


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
    more = {"files": entries, "empty_folders": _empty_folders(source)}
    with zipfile.ZipFile(path, "w", compression, compresslevel=1) as archive:
        _write_about(archive, "folder", source, output, run, more)
        for old, new in files.items():
            if new is None and whole:
                archive.write(source / old, f"{ORIGINAL}/{old}")


def _empty_folders(source: Path) -> list[str]:
    """The empty folders, as paths in the input."""
    folders = (path for path in sorted(source.rglob("*")) if path.is_dir() and not path.is_symlink())
    return [path.relative_to(source).as_posix() for path in folders if not any(path.iterdir())]


def _write_about(
    archive: zipfile.ZipFile, kind: str, source: Path | str, output: Path, run: Path, more: Mapping[str, Any]
) -> None:
    about = {"schema_version": SCHEMA_VERSION, "kind": kind, "input": str(source), "output": str(output.absolute())}
    archive.writestr(ABOUT, json.dumps({**about, "run": str(run), **more}, indent=1) + "\n")


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
    except NO_ARCHIVE as error:
        raise DataError(f"{path} is damaged or not an undo file ({error}); nothing was restored") from None


def _place(about: Mapping[str, Any], path: Path, output: Path | None) -> Path:
    """Where to restore: what the user says, or what the file says if that is near."""
    place = Path(about["input"]) if output is None else output
    near = [folder for folder in (Path.cwd(), path.absolute().parent) if _below(place, folder)]
    if output is None and not place.exists() and (not near or not _is_data(place, near[0], about)):
        why = "which could be run, or is hidden" if near else "which is somewhere else"
        raise DataError(
            f"{path} says that it was made from {place}, {why}; to put it back there, say so with --output {place}"
        )
    return place


def _is_data(place: Path, folder: Path, about: Mapping[str, Any]) -> bool:
    """Whether a file or a tree looks like data, and not like something that another program would obey."""
    parts = Path(os.path.relpath(os.path.realpath(place), os.path.realpath(folder))).parts
    names = [PurePosixPath(entry["input"]) for entry in about.get("files", ())]
    if any(part.startswith(".") for part in (*parts, *(part for name in names for part in name.parts))):
        return False
    return not any(name.suffix.lower() in RUN_BY_OTHERS for name in names) if names else place.suffix.lower() in DATA


def _below(place: Path, folder: Path) -> bool:
    return Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder))


def _in_the_way(place: Path) -> DataError:
    return DataError(f"{place} exists and has changed; give another path with --output, or move it away")


def _restore_file(archive: zipfile.ZipFile, about: Mapping[str, Any], place: Path, path: Path) -> str:
    if os.path.lexists(place):
        if place.is_file() and sha256_of(place) == about["sha256"]:
            sweep(place.parent, place.name)  # what an undo left that was killed at its last step
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
