"""Images in a folder as a table: class folders, root/class/any/name.png, with clean ones in another folder, or a table
that names the images.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.data.columns import SchemaSummary
from labelloop.data.image_files import ENDINGS, load_images
from labelloop.data.options import ReadOptions, file_sha256, origin_of
from labelloop.data.pillow import ImageWarnings
from labelloop.data.readers.arrow_file import own_columns
from labelloop.data.readers.column_file import read_column_file
from labelloop.data.table import Table, from_arrays
from labelloop.errors import DataError, nearest, some
from labelloop.types import RawInputs

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
UNLABELLED = ("unlabeled", "unlabelled")
SPLITS = ("train", "training", "test", "val", "valid", "validation")


def read_image_tree(root: Path, options: ReadOptions) -> Table:
    """The images in a folder. Images that are only in the clean folder come last."""
    names, labels, classes = read_image_folder(root, options.labels_required)
    own, paths = names, [root / name for name in names]
    schema: dict[str, Any] = {name: getattr(options, name) for name in ("image_size", "clean_folder", "encoder")}
    clean_labels = None
    if options.clean_folder is not None:
        clean, added = read_clean_folder(options.clean_folder, root, names, classes)
        clean_labels = [clean.get(row, "") for row in range(len(names))] + [label for _, _, label in added]
        names = names + [name for name, _, _ in added]
        paths += [path for _, path, _ in added]
        labels = np.concatenate([labels, np.full(len(added), "", labels.dtype)])
        schema["added_rows"] = len(added)
    inputs: Any
    seen = ImageWarnings()
    if options.encoder is None:
        inputs, form, bad = load_images(paths, options.image_size, options.image_form, options.progress, seen)
    else:
        inputs, form, bad = RawInputs("image", paths), None, []
    table = from_arrays(
        inputs,
        labels if options.labels_required else None,
        clean_labels,
        ids=names,
        class_names=classes if options.labels_required else None,
        source=str(root),
        origin=origin_of("image-folder", root, schema, own),
    )
    deeper = [name for name in names if name.count("/") > 1] if options.labels_required else []
    below = f"{len(deeper)} images in folders below a class folder are of that class: {some(deeper, 3)}"
    nested = [below] if deeper else []
    schema_summary = SchemaSummary(remarks=(*seen.remarks, *nested, *left_out_of(root)))
    return replace(table, image_form=form, unreadable=tuple(bad), schema_summary=schema_summary)


def read_clean_folder(
    clean: Path, root: Path, names: Sequence[str], classes: Sequence[str]
) -> tuple[dict[int, str], list[tuple[str, Path, str]]]:
    """Joins a folder of clean images to an image folder: by content, else by the file name below the class folder.

    Args:
        clean: The folder of clean images.
        root: The image folder.
        names: Its images, as paths below it.
        classes: Its classes.

    Returns:
        The clean class by row of the image folder; the ids, files and classes of images that are not in it, sorted.

    Raises:
        DataError: No images, images without a class or of an unknown one, or an image with several matches.
    """
    if not clean.is_dir():
        raise DataError(f"{clean}: no such folder; clean_folder is a folder with a folder of images for each class")
    if clean.resolve().is_relative_to(root.resolve()):
        raise DataError(f"{clean} is inside {root}, so its images would be noisy too; move it out")
    clean_names, labels, _ = read_image_folder(clean, labels_required=False)
    _refuse_loose(clean, clean_names, labels.tolist(), "; a clean folder has no other")
    if unknown := sorted(set(labels.tolist()) - set(classes)):
        raise DataError(f"{clean / unknown[0]}: no class {unknown[0]!r} in {root}; {nearest(unknown[0], classes)}")
    by_content = _rows_by_content(clean, clean_names, root, names)
    by_name: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        by_name.setdefault(_below_class(name), []).append(row)
    prefix = next(p for p in (f"{'_' * n}clean:" for n in count()) if not any(name.startswith(p) for name in names))
    found: dict[int, tuple[str, str]] = {}
    added, other_bytes = [], []
    for name, label in zip(clean_names, labels.tolist(), strict=True):
        rows, alike = by_content.get(name, []), by_name.get(_below_class(name), [])
        if len(rows) > 1 and len(set(rows) & set(alike)) == 1:
            rows = sorted(set(rows) & set(alike))
        if not rows and alike:
            rows = alike
            other_bytes.append(name)
        if len(rows) > 1:
            what = "name" if rows is alike else "content"
            raise DataError(
                f"{clean / name}: {len(rows)} images of {root} have this {what}: {some(names[row] for row in rows)};"
                " rename it, or keep one of them"
            )
        if not rows:
            added.append((prefix + name, clean / name, label))
        elif found.setdefault(rows[0], (name, label))[1] != label:
            raise DataError(
                f"{clean}: {found[rows[0]][0]} and {name} are both {names[rows[0]]} of {root}, in two classes; drop one"
            )
    if other_bytes:
        warnings.warn(
            f"{clean}: {len(other_bytes)} images have the name of an image of {root} but other content:"
            f" {some(other_bytes)}; they count as the same image, so rename them if they are not",
            stacklevel=2,
        )
    return {row: label for row, (_, label) in found.items()}, added


def _refuse_loose(root: Path, names: Sequence[str], labels: Sequence[str], hint: str) -> None:
    loose = [name for name, label in zip(names, labels, strict=True) if not label]
    if loose:
        raise DataError(
            f"{root}: {len(loose)} images are in no class folder: {some(loose)}; move them into the folder of their"
            f" class{hint}"
        )


def _below_class(name: str) -> str:
    return name.split("/", 1)[-1]


def _rows_by_content(clean: Path, clean_names: Sequence[str], root: Path, names: Sequence[str]) -> dict[str, list[int]]:
    """The rows with the same bytes as each clean image. Only files of equal size are read."""
    files = [name for name in clean_names if (clean / name).is_file()]
    sizes = {(clean / name).stat().st_size for name in files}
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        if (root / name).is_file() and (root / name).stat().st_size in sizes:
            rows.setdefault(file_sha256(root / name), []).append(row)
    return {name: rows.get(file_sha256(clean / name), []) for name in files}


def read_metadata(folder: Path, options: ReadOptions) -> Table:
    """The first existing table of METADATA, with the images named in its column file_name."""
    path = next(folder / name for name in METADATA if (folder / name).is_file())
    column = options.file_name_column or "file_name"
    table = read_column_file(path, replace(options, file_name_column=column))
    named = {(path.parent / str(name)).as_posix() for name in own_columns(path)[column].to_pylist()}
    found = [file for file in sorted(folder.rglob("*")) if file.suffix.lower() in ENDINGS]
    others = [str(file.relative_to(folder)) for file in found if file.as_posix() not in named]
    if not others or table.schema_summary is None:
        return table
    remark = _printable(f"left out: {len(others)} images that {path.name} does not name: {some(others)}")
    return replace(table, schema_summary=replace(table.schema_summary, remarks=(*table.schema_summary.remarks, remark)))


def read_image_folder(root: Path, labels_required: bool) -> tuple[list[str], NDArray, tuple[str, ...]]:
    """The images of a tree.

    Args:
        root: The folder.
        labels_required: Whether the first folder of every path must be a class; otherwise any tree is accepted.

    Returns:
        The paths relative to the root, sorted; their labels, empty in the folder `unlabelled`; and the classes.
    """
    _refuse_linked_folders(root)
    images = (path for path in root.rglob("*") if path.suffix.lower() in ENDINGS)
    # A broken link counts as unreadable.
    names = sorted(path.relative_to(root).as_posix() for path in images if path.is_file() or path.is_symlink())
    names = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    strange = [shown for name in names if (shown := _printable(name)) != name]
    if strange:
        raise DataError(f"{root}: {len(strange)} file names are not in UTF-8: {some(strange)}; rename them")
    if not names:
        raise DataError(f"{root}: no images; expected a folder for each class with files such as {', '.join(ENDINGS)}")
    firsts = [name.split("/")[0] if "/" in name else "" for name in names]
    labels = np.array(["" if first.lower() in UNLABELLED else first for first in firsts])
    classes = tuple(sorted(set(labels.tolist()) - {""}))
    if labels_required:
        _check_classes(root, names, firsts, classes)
    return names, labels, classes


def left_out_of(root: Path) -> tuple[str, ...]:
    """What a tree holds besides images, in words: other files, hidden ones, and folders without an image."""
    others: list[str] = []
    hidden, full, firsts = 0, set(), set()
    for folder, inner, files in os.walk(root):
        below = Path(folder).relative_to(root)
        if any(part.startswith(".") for part in below.parts):
            hidden += len(files)
            continue
        firsts |= {name for name in inner if not below.parts and not name.startswith(".")}
        seen = [name for name in files if not name.startswith(".")]
        hidden += len(files) - len(seen)
        images = [name for name in seen if Path(name).suffix.lower() in ENDINGS]
        others += [str(below / name) for name in seen if Path(name).suffix.lower() not in ENDINGS]
        full |= set(below.parts[:1]) if images else set()
    empty = sorted(firsts - full)
    remarks = [f"left out: {len(others)} files without an image extension: {some(sorted(others))}"] * bool(others)
    remarks += [f"left out: {hidden} hidden files"] * bool(hidden)
    remarks += [f"no class: {len(empty)} folders without an image: {some(map(repr, empty))}"] * bool(empty)
    return tuple(map(_printable, remarks))


def _printable(name: str) -> str:
    """The same, with bytes that are not text as escapes: the system represents those of names by surrogates."""
    return name.encode("utf-8", "backslashreplace").decode()


def _refuse_linked_folders(root: Path) -> None:
    """Refuses links to folders: the search skips them, so images, or a whole class, would be missing silently."""
    for folder, inner, _ in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        links = [(Path(folder) / name).relative_to(root) for name in inner if (Path(folder) / name).is_symlink()]
        if links:
            raise DataError(
                f"{root}: links to folders are not followed: {some(links)}; put the folders there, or links to files"
            )


def _check_classes(root: Path, names: Sequence[str], firsts: Sequence[str], classes: Sequence[str]) -> None:
    _refuse_loose(root, names, firsts, f", or into {UNLABELLED[1]}/")
    if classes and {name.lower() for name in classes} <= set(SPLITS):
        raise DataError(
            f"{root}: the folders {', '.join(classes)} look like parts of a data set, not classes; give"
            f" {root / classes[-1]} itself, and the test part with --test"
        )
    if len(classes) < 2:
        raise DataError(f"{root}: class folders: {', '.join(classes) or 'none'}; a classifier needs two or more")
