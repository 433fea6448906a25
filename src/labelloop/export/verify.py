"""`labelloop verify`: compares every file of a run folder, or of an exported model, with its manifest."""

from __future__ import annotations

from pathlib import Path

from labelloop.errors import DataError
from labelloop.runs.files import read_json, sha256_of
from labelloop.runs.folder import CHECKPOINT, PLAN, REPORT, RUN, UNREADABLE, check_holds
from labelloop.runs.lock import LOCK
from labelloop.runs.manifest import MANIFEST, Checked, compare
from labelloop.runs.result_files import MODEL_FILES
from labelloop.runs.reviews import REVIEWS, read_answers
from labelloop.trust import inside

LATER = (
    LOCK,
    REPORT,
    REVIEWS,
    f"{Path(PLAN).stem}*",
    UNREADABLE,
    CHECKPOINT,
    "reliability.*",
    ".review.json",
)  # no results
BAD = ("damaged", "missing")


def verify(folder: Path) -> tuple[list[Checked], list[str]]:
    """Every file and its state, and remarks about the folder.

    Raises:
        DataError: It is neither a run nor a model, or its manifest is damaged.
    """
    check_holds(folder, (RUN, MANIFEST, *MODEL_FILES))
    found = compare(folder, LATER)
    remarks = []
    if not (folder / MANIFEST).exists():
        state = read_json(folder / RUN).get("state") if (folder / RUN).exists() else "finished"
        why = "an older version wrote it" if state == "finished" else f"the run is not finished (state: {state})"
        remarks.append(f"there is no {MANIFEST}: {why}, so nothing can be compared")
    if (folder / CHECKPOINT / "state.json").exists():
        found += _checkpoint(folder / CHECKPOINT)
    if (folder / REVIEWS).exists():
        found.append(Checked(REVIEWS, _reviews(folder)))
    return found, remarks


def _checkpoint(folder: Path) -> list[Checked]:
    """The files of a checkpoint, which has checksums of its own."""
    try:
        files = read_json(folder / "state.json")["files"]
        return [
            Checked(f"{CHECKPOINT}/{name}", "whole" if _as_written(inside(folder, name, folder), entry) else "damaged")
            for name, entry in files.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return [Checked(f"{CHECKPOINT}/state.json", "damaged")]


def _as_written(path: Path, entry: dict[str, object]) -> bool:
    if not path.is_file():
        return False
    if "array" in entry:  # its checksum is that of the values, which the training compares
        return path.stat().st_size >= int(str(entry["bytes"]))
    return path.stat().st_size == entry["bytes"] and sha256_of(path) == entry["sha256"]


def _reviews(folder: Path) -> str:
    try:
        read_answers(folder)
    except DataError:
        return "damaged"
    return "whole"
