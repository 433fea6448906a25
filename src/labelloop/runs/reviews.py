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

from labelloop.errors import DataError

try:
    import fcntl
except ImportError:  # not on Windows, which has to do with one server at a time
    fcntl = None  # type: ignore[assignment]

REVIEWS = "reviews.jsonl"
CUT = b"#cut"  # ends a line that a crash cut short, once the next one is added
ACTIONS = ("keep", "accept", "label", "unsure", "skip", "undo")


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
    """

    key: str
    row: int
    id: str
    reviewer: str
    action: str
    label: str | None
    at: str
    undoes: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The outcome of all answers to a row.

    Attributes:
        answers: The class that each reviewer chose, by name; None if unsure.
        label: The class chosen by more than half of those who chose one, or None.
        disputed: Whether reviewers chose different classes without such a majority.
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
    place = os.open(folder / REVIEWS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
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
        return os.fstat(place).st_size
    finally:
        os.close(place)


def read_answers(folder: Path, start: int = 0) -> tuple[list[Answer], int]:
    """The answers from a byte of the file on, and the byte after the last complete line.

    A line cut short by a crash was never confirmed, and does not count.

    Raises:
        DataError: A line is not an answer.
    """
    path = folder / REVIEWS
    if not path.exists():
        return [], 0
    with path.open("rb") as file:
        file.seek(start)
        content = file.read()
    whole = content.rfind(b"\n") + 1
    found = [_answer(line, path) for line in content[:whole].split(b"\n") if line.strip(b" \t\r")]
    return [answer for answer in found if answer is not None], start + whole


def _line(answer: Answer) -> bytes:
    """A line of the file, which begins with the checksum of the rest: a flipped bit must not become another answer."""
    content = asdict(answer)
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
    texts, named = (answer.key, answer.id, answer.reviewer, answer.at), (answer.label, answer.undoes)
    right = type(answer.row) is int and all(isinstance(text, str) for text in texts)
    if not right or not all(text is None or isinstance(text, str) for text in named):
        raise DataError(f"{path}: a line is not a reviewer's answer (a field is of another type)")
    if answer.action not in ACTIONS:
        raise DataError(f"{path}: unknown action {answer.action!r:.40}; a newer version may have written it")
    return answer


def standing(answers: Iterable[Answer]) -> dict[tuple[int, str], Answer]:
    """The answer that counts of each reviewer to each row: the last one, unless it was withdrawn."""
    listed = list({answer.key: answer for answer in answers}.values())  # an answer sent twice counts once
    undone = {answer.undoes for answer in listed if answer.action == "undo"}
    found: dict[tuple[int, str], Answer] = {}
    for answer in listed:
        if answer.action != "undo" and answer.key not in undone:
            found[answer.row, answer.reviewer] = answer
    return found


def verdicts(answers: Mapping[tuple[int, str], Answer]) -> dict[int, Verdict]:
    """The outcome for each row; rows that were only skipped are left out."""
    by_row: dict[int, dict[str, str | None]] = {}
    for (row, reviewer), answer in answers.items():
        if answer.action != "skip":
            by_row.setdefault(row, {})[reviewer] = answer.label
    return {row: verdict(found) for row, found in by_row.items()}


def verdict(answers: Mapping[str, str | None]) -> Verdict:
    """The outcome of the answers to one row."""
    chosen = [label for label in answers.values() if label is not None]
    best = max(dict.fromkeys(chosen), key=chosen.count, default=None)
    settled = best is not None and 2 * chosen.count(best) > len(chosen)
    return Verdict(answers, best if settled else None, bool(chosen) and not settled)


def reviewed_labels(folder: Path) -> dict[int, str]:
    """The labels that reviewers settled on, by row."""
    found = verdicts(standing(read_answers(folder)[0]))
    return {row: each.label for row, each in found.items() if each.label is not None}
