"""reviews.jsonl: the decisions of reviewers. Lines are only appended, and each is on disk before it is confirmed.

A line is one reviewer's answer to one row, or withdraws such an answer. The last answer of a reviewer counts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.errors import DataError
from labelloop.runs.files import sync_folder
from labelloop.runs.schema import TEXT_OR_NONE, check
from labelloop.trust import NO_LINK, file_in
from labelloop.types import Labels

try:
    import fcntl
except ImportError:  # not on Windows, which has to do with one server at a time
    fcntl = None  # type: ignore[assignment]

REVIEWS = "reviews.jsonl"
CUT = b"#cut"  # ends a line that a crash cut short, once the next one is added
ACTIONS = ("keep", "accept", "label", "unsure", "skip", "undo")
IMPROVE, ESTIMATE, GRID, SETTLE = "improve", "estimate", "grid", "settle"  # where an answer was given
QUEUES = (IMPROVE, ESTIMATE, GRID, SETTLE)
LATER = ("queue", "batch", "blind")  # left out where they say nothing, so that older versions can read the line
TEXTS = ("key", "id", "reviewer", "action", "at")
SHAPE = {**dict.fromkeys(TEXTS, str), "row": int, "label": TEXT_OR_NONE, "blind?": bool}
SHAPE |= dict.fromkeys(("undoes?", "queue?", "batch?"), TEXT_OR_NONE)
SETTLED = ""  # stands for the one who settles, beside the names of reviewers


@dataclass(frozen=True)
class Answer:
    """A line of the file.

    Attributes:
        key: Identifies the answer, so that one sent twice counts once.
        row: The row number in labels.parquet.
        id: The id of that row.
        reviewer: The name of the reviewer.
        action: "keep" (the given label is right), "accept" (the proposed one is), "label" (another class), "unsure",
            "skip", or "undo", which withdraws the answer `undoes`.
        label: The class as text; None if the answer names none.
        at: The time, in UTC.
        undoes: The key of the answer that is withdrawn.
        queue: Where it was given, a name of QUEUES: "estimate" has random rows, "settle" ends a disagreement.
        batch: Names answers that were given at once, and are withdrawn at once.
        blind: Whether the given and the proposed label were hidden.
    """

    key: str
    row: int
    id: str
    reviewer: str
    action: str
    label: str | None
    at: str
    undoes: str | None = None
    queue: str | None = None
    batch: str | None = None
    blind: bool = False


@dataclass(frozen=True)
class Verdict:
    """The outcome of all answers to a row.

    Attributes:
        answers: The class that each reviewer chose, by name; None if unsure.
        label: The class that was settled on, else the one chosen by more than half of those who chose one, or None.
        disputed: Whether reviewers chose different classes without such a majority, and nobody has settled it.
    """

    answers: Mapping[str, str | None]
    label: str | None
    disputed: bool


def append_answers(folder: Path, answers: Sequence[Answer]) -> int:
    """Appends lines, and returns once they are on disk.

    Returns:
        The size of the file, in bytes.
    """
    text = b"".join(map(_line, answers))
    with suppress(FileNotFoundError):
        file_in(folder, REVIEWS)
    place = os.open(folder / REVIEWS, os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_LINK, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(place, fcntl.LOCK_EX)
            with suppress(OSError):  # of another user's file
                os.fchmod(place, 0o600)
        size = os.fstat(place).st_size
        if size and os.pread(place, 1, size - 1) != b"\n":  # keeps a line cut short by a crash on its own
            text = CUT + b"\n" + text
        written = 0
        while written < len(text):
            written += os.write(place, text[written:])
        os.fsync(place)
        if not size:
            sync_folder(folder)  # it is new
        return os.fstat(place).st_size
    finally:
        os.close(place)


def read_answers(folder: Path, start: int = 0) -> tuple[list[Answer], int]:
    """The answers from a byte of the file on, and the byte after the last complete line.

    A line cut short by a crash was never confirmed, and does not count.

    Raises:
        DataError: A line is not an answer.
    """
    try:
        path = file_in(folder, REVIEWS)
    except FileNotFoundError:
        return [], 0
    with path.open("rb") as file:
        file.seek(start)
        content = file.read()
    whole = content.rfind(b"\n") + 1
    found = [_answer(line, path) for line in content[:whole].split(b"\n") if line.strip(b" \t\r")]
    return [answer for answer in found if answer is not None], start + whole


def _line(answer: Answer) -> bytes:
    """A line of the file, which begins with the checksum of the rest: a flipped bit must not become another answer."""
    content = {name: value for name, value in asdict(answer).items() if name not in LATER or value}
    return (json.dumps({"sum": _sum(content), **content}, ensure_ascii=False) + "\n").encode()


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _answer(line: bytes, path: Path) -> Answer | None:
    damaged = f"{path}: a line is damaged; restore the file from a copy, or delete the line, which loses one answer"
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        whole_once = b'"sum"' in line or line.rstrip().endswith(b"}")
        if line.endswith(CUT) or not whole_once:  # cut short by a crash, before a later line was added
            return None
        raise DataError(damaged) from None
    stored = found.pop("sum", None) if isinstance(found, dict) else ""  # older versions wrote none
    if not isinstance(found, dict) or (stored is not None and stored != _sum(found)):
        raise DataError(damaged)
    try:
        answer = Answer(**found)
    except TypeError as error:
        raise DataError(
            f"{path}: a line is not a reviewer's answer ({error}); a newer version may have written it"
        ) from None
    check(found, SHAPE, path)
    if answer.action not in ACTIONS or answer.queue not in (None, *QUEUES):
        what = f"action {answer.action!r:.40}" if answer.action not in ACTIONS else f"queue {answer.queue!r:.40}"
        raise DataError(f"{path}: unknown {what}; a newer version may have written it")
    return answer


def who(answer: Answer) -> str:
    """Whose place an answer takes: that of its reviewer, or of the one who settles a disagreement."""
    return SETTLED if answer.queue == SETTLE else answer.reviewer


def standing(answers: Iterable[Answer]) -> dict[tuple[int, str], Answer]:
    """The answer that counts of each reviewer to each row: the last one, unless it was withdrawn."""
    listed = list({answer.key: answer for answer in answers}.values())  # an answer sent twice counts once
    undone = {answer.undoes for answer in listed if answer.action == "undo"}
    found: dict[tuple[int, str], Answer] = {}
    for answer in listed:
        if answer.action != "undo" and answer.key not in undone:
            found[answer.row, who(answer)] = answer
    return found


def verdicts(answers: Mapping[tuple[int, str], Answer]) -> dict[int, Verdict]:
    """The outcome for each row; rows that were only skipped are left out."""
    by_row: dict[int, dict[str, str | None]] = {}
    for (row, reviewer), answer in answers.items():
        if answer.action != "skip":
            by_row.setdefault(row, {})[reviewer] = answer.label
    return {row: verdict(found) for row, found in by_row.items()}


def verdict(answers: Mapping[str, str | None]) -> Verdict:
    """The outcome of the answers to one row; SETTLED is the name of the one that ends a disagreement."""
    given = {name: label for name, label in answers.items() if name != SETTLED}
    if answers.get(SETTLED) is not None:
        return Verdict(given, answers[SETTLED], False)
    chosen = [label for label in given.values() if label is not None]
    best = max(dict.fromkeys(chosen), key=chosen.count, default=None)
    settled = best is not None and 2 * chosen.count(best) > len(chosen)
    return Verdict(given, best if settled else None, bool(chosen) and not settled)


def reviewed_labels(folder: Path) -> dict[int, str]:
    """The labels that reviewers settled on, by row."""
    found = verdicts(standing(read_answers(folder)[0]))
    return {row: each.label for row, each in found.items() if each.label is not None}


def random_reviewed(folder: Path) -> set[int]:
    """The rows that reviewers answered in the queue of random rows: they may judge how good labels are."""
    found = standing(read_answers(folder)[0])
    return {row for (row, _), answer in found.items() if answer.queue == ESTIMATE and answer.label is not None}


def random_order(rows: int) -> Labels:
    """All rows in an order drawn by chance, the same at every call: that of the queue of random rows."""
    return np.random.default_rng(rows).permutation(rows)
