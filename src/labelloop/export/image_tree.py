"""A corrected ImageFolder tree, root/class/image: symbolic links to the images, or copies."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from labelloop.errors import DataError, some
from labelloop.export.decision import Decision


def new_places(files: list[str], rows: Mapping[str, int], decision: Decision) -> dict[str, str | None]:
    """The path of every file of an ImageFolder in the output, by its path in the input.

    An image that changes its class moves to the other folder, under a new name if its own is taken. A dropped image
    has no path. A file that is not a row of the run, such as a README, keeps its path.

    Args:
        files: The files of the input, as paths relative to it.
        rows: The row of each image among them.
        decision: What happens to every row.
    """
    places: dict[str, str | None] = {}
    moved = []
    for name in files:
        row = rows.get(name)
        if row is not None and decision.dropped[row]:
            places[name] = None
        elif row is not None and decision.relabelled[row]:
            moved.append((name, str(decision.final[row]), row))
        else:
            places[name] = name
    taken = set(places.values())
    for name, label, row in moved:
        old = PurePosixPath(name)
        inside = old.parts[1:] if old.parts[0] == str(decision.given[row]) else old.parts[-1:]
        places[name] = _free(PurePosixPath(label, *inside), f"from-{decision.given[row]}", taken)
    return places


def placed_by_label(files: list[str], decision: Decision) -> dict[str, str | None]:
    """The paths of the images of a table: a folder for each label. An image without a label has none."""
    taken: set[str | None] = set()
    places: dict[str, str | None] = {}
    for label in set(decision.final.tolist()) - {None}:
        if str(label) in (".", "..") or "/" in str(label):  # a path, which might even lead out of the output
            raise DataError(f"the class {str(label)!r} cannot be the name of a folder; rename it and run again")
    for row, name in enumerate(files):
        label = decision.final[row]
        left_out = decision.dropped[row] or label is None
        places[name] = None if left_out else _free(PurePosixPath(str(label), PurePosixPath(name).name), str(row), taken)
    return places


def _free(wanted: PurePosixPath, mark: str, taken: set[str | None]) -> str:
    """Reserves the wanted name, or a similar one if that is taken."""
    place, count = wanted, 1
    while str(place) in taken:
        place = wanted.with_name(f"{wanted.stem}-{mark}{'' if count == 1 else f'-{count}'}{wanted.suffix}")
        count += 1
    taken.add(str(place))
    return str(place)


def write_tree(source: Path, places: Mapping[str, str | None], output: Path, copy: bool) -> None:
    """Builds the tree in a temporary folder, then moves it in one step."""
    gone = [name for name, place in places.items() if place is not None and not (source / name).is_file()]
    if gone:
        raise DataError(f"{source}: {len(gone)} images of the run are missing: {some(gone)}; put them back")
    put: Callable[[Any, Any], Any] = shutil.copy2 if copy else os.symlink
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        for old, new in places.items():
            if new is not None:
                (partial / new).parent.mkdir(parents=True, exist_ok=True)
                put((source / old).resolve(), partial / new)
        partial.rename(output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
