"""Images in folders, one for each class: root/class/any/name.png."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from labelloop.data.images.store import ENDINGS
from labelloop.errors import DataError, some

UNLABELLED = ("unlabeled", "unlabelled")
SPLITS = ("train", "training", "test", "val", "valid", "validation")


def read_image_folder(root: Path, labels_required: bool) -> tuple[list[str], NDArray, tuple[str, ...]]:
    """The images of a tree.

    Args:
        root: The folder.
        labels_required: Whether the first folder of every path must be a class; otherwise any tree is accepted.

    Returns:
        The paths relative to the root, sorted; their labels, empty in the folder `unlabelled`; and the classes.
    """
    _refuse_linked_folders(root)
    # A broken link counts as unreadable.
    found = (
        path for path in root.rglob("*") if path.suffix.lower() in ENDINGS and (path.is_file() or path.is_symlink())
    )
    names = sorted(path.relative_to(root).as_posix() for path in found)
    names = [name for name in names if not any(part.startswith(".") for part in PurePosixPath(name).parts)]
    strange = [name for name in names if not _is_text(name)]
    if strange:
        shown = some(name.encode("utf-8", "backslashreplace").decode() for name in strange)
        raise DataError(f"{root}: {len(strange)} file names are not in UTF-8: {shown}; rename them")
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
    return tuple(remark.encode("utf-8", "backslashreplace").decode() for remark in remarks)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # the system represents undecodable bytes like this
        return False
    return True


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
    loose = [name for name, first in zip(names, firsts, strict=True) if not first]
    if loose:
        raise DataError(
            f"{root}: {len(loose)} images are in no class folder: {some(loose)}; move them into the folder of their"
            f" class, or into {UNLABELLED[1]}/"
        )
    if classes and {name.lower() for name in classes} <= set(SPLITS):
        raise DataError(
            f"{root}: the folders {', '.join(classes)} look like parts of a data set, not classes; give"
            f" {root / classes[-1]} itself, and the test part with --test"
        )
    if len(classes) < 2:
        raise DataError(
            f"{root}: images of {len(classes)} class{'' if len(classes) == 1 else 'es'} only"
            f" ({', '.join(classes) or 'none'}); a classifier needs a folder for each of two or more"
        )
