"""The clean rows nearest to a row, by the correction's inputs."""

from __future__ import annotations

import base64
import csv
import io
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError
from labelloop.report.facts import row_facts
from labelloop.report.review.tally import LiveEstimate, Tally
from labelloop.runs.reviews import Answer, append_answers, read_answers
from labelloop.runs.survey import Survey
from labelloop.types import MISSING, Labels

NEAREST = 6

LEASE = 300.0  # seconds that a row stays reserved for a tab
SECOND = 10  # one row in this many was answered by somebody else, to measure agreement
LONGEST_NAME = 60
Clock = Callable[[], float]


class Neighbours:
    """Finds the nearest clean rows by the angle between features.

    Args:
        features: The correction's inputs for every row [n, D].
        clean: Clean labels [n], -1 where missing.
    """

    def __init__(self, features: NDArray, clean: Labels) -> None:
        self.rows = np.flatnonzero(clean != MISSING)
        self._features = features
        self._clean = _unit(features[self.rows])  # [M, D]

    def nearest(self, row: int, count: int = NEAREST) -> list[int]:
        """The clean rows nearest to a row, nearest first, without the row itself."""
        likeness = self._clean @ _unit(self._features[row : row + 1])[0]
        likeness[self.rows == row] = -np.inf
        count = min(count, int((self.rows != row).sum()))
        best = np.argsort(-likeness, kind="stable")[:count]
        return [int(k) for k in self.rows[best]]


def _unit(values: NDArray) -> NDArray[np.float32]:
    wide = np.asarray(values, dtype=np.float32)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


@dataclass(frozen=True)
class Seat:
    """A reviewer in one browser tab."""

    reviewer: str
    tab: str


class Session:
    """A review of one run.

    Args:
        run: The run.
        order: The rows to review, the most useful first.
        neighbours: Finds the nearest clean rows, or None.
        clock: Returns the time in seconds.

    Raises:
        DataError: The run has no labels.
    """

    def __init__(
        self, run: Survey, order: Sequence[int], neighbours: Neighbours | None = None, clock: Clock = time.monotonic
    ) -> None:
        rows = row_facts(run)
        if rows is None or run.path is None or run.labels is None:
            raise DataError(f"{run.path} has no labels to review: {'; '.join(run.missing)}")
        self.run, self.folder, self.rows = run, run.path, rows
        self.classes = run.classes
        self.order = [int(row) for row in order]
        self.ids: list[str] = run.labels["id"].to_pylist()
        self._looks = {} if run.preview is None else run.preview.by_row()
        self._neighbours, self._clock = neighbours, clock
        self._lock = threading.RLock()
        self._read_to = 0
        self._first = 0  # all rows before it in the order have a verdict
        self._leases: dict[int, tuple[Seat, float]] = {}
        self._live = LiveEstimate(rows.confidence, rows.clean, run.record.get("estimate") or {})
        self.tally = Tally([self._name(code) for code in rows.corrected.tolist()], self._live)
        self._catch_up()

    # --- reading ------------------------------------------------------------------------------------------------------

    def next_rows(self, seat: Seat, count: int = 1) -> list[dict[str, Any]]:
        """The next rows for a seat: disputed ones first, then in the order of the plan, skipped ones last."""
        with self._lock:
            self._catch_up()
            return [self.card(row, seat) for row in self._taken(self._candidates(seat), seat, count)]

    def grid(self, seat: Seat, given: str, corrected: str, count: int) -> list[dict[str, Any]]:
        """Rows of one class pair that nobody has answered yet, the most confident first."""
        with self._lock:
            self._catch_up()
            pair = (
                (self.rows.given == self._code(given))
                & (self.rows.corrected == self._code(corrected))
                & ~self.rows.clean
            )
            rows = np.flatnonzero(pair)
            rows = rows[np.argsort(-np.nan_to_num(self.rows.confidence[rows]), kind="stable")]
            waiting = (row for row in rows.tolist() if row not in self.tally.verdicts)
            return [self.card(row, seat, near=False) for row in self._taken(waiting, seat, count)]

    def pairs(self) -> list[dict[str, Any]]:
        """Class pairs with changes that nobody has answered, the largest first."""
        with self._lock:
            self._catch_up()
            waiting = self.rows.changed.copy()
            waiting[list(self.tally.verdicts)] = False
            codes = self.rows.given[waiting] * len(self.classes) + self.rows.corrected[waiting]
            found, counts = np.unique(codes, return_counts=True)
            best = np.argsort(-counts, kind="stable")[:50]
            names = self.classes
            return [
                {
                    "given": names[found[k] // len(names)],
                    "corrected": names[found[k] % len(names)],
                    "rows": int(counts[k]),
                }
                for k in best
            ]

    def card(self, row: int, seat: Seat, near: bool = True) -> dict[str, Any]:
        """What the page shows of a row."""
        found = self.tally.verdicts.get(row)
        mine = self.tally.standing.get(row, {}).get(seat.reviewer)
        clean = self._neighbours.nearest(row) if near and self._neighbours is not None else []
        return {
            "row": row,
            "id": self.ids[row],
            "given": self._name(self.rows.given[row]),
            "proposed": self._name(self.rows.corrected[row]),
            "confidence": _number(self.rows.confidence[row]),
            "look": self._look(row),
            "near": [
                {"id": self.ids[k], "label": self._name(self.rows.corrected[k]), "look": self._look(k)} for k in clean
            ],
            "answers": {} if found is None else dict(found.answers),
            "disputed": found is not None and found.disputed,
            "mine": None if mine is None else mine.label,
        }

    def state(self, reviewer: str) -> dict[str, Any]:
        """The progress of the review."""
        with self._lock:
            self._catch_up()
            tally, counts = self.tally, self.tally.counts
            mine = len(tally.answered.get(reviewer, ())) - len(tally.skipped.get(reviewer, ()))
            return {
                "mine": mine,
                "reviewed": len(tally.verdicts),
                "settled": counts["settled"],
                "disputed": len(tally.disputed),
                "rows": len(self.order),
                "by_several": counts["by_several"],
                "agreed": counts["agreed"],
                "reviewers": sorted(name for name, rows in tally.answered.items() if rows),
                "estimate": self._live.now(),
            }

    def as_csv(self) -> str:
        """Every row with an answer: its settled label and all answers, in a form for `refit --clean-file`."""
        with self._lock:
            self._catch_up()
            place = io.StringIO()
            names = sorted(name for name, rows in self.tally.answered.items() if rows)
            writer = csv.writer(place, lineterminator="\n")
            head = ["id", "given_label", "corrected_label", "corrected_confidence", "clean_label", "disputed"]
            writer.writerow([*head, *(f"answer of {name}" for name in names)])
            for row, found in sorted(self.tally.verdicts.items()):
                answers = [_answer_text(self.tally.standing[row].get(name)) for name in names]
                known = [self.ids[row], self._name(self.rows.given[row]), self._name(self.rows.corrected[row])]
                sure = _number(self.rows.confidence[row])
                settled = [found.label or "", "yes" if found.disputed else ""]
                writer.writerow(
                    [*(value or "" for value in known), "" if sure is None else f"{sure:.4f}", *settled, *answers]
                )
            return place.getvalue()

    # --- writing ------------------------------------------------------------------------------------------------------

    def decide(self, seat: Seat, decisions: Sequence[Mapping[str, Any]]) -> int:
        """Saves answers; returns how many are new. They are on disk when it returns.

        Raises:
            UsageError: An answer is invalid; none of them is saved then.
        """
        made = [self._checked(seat.reviewer, one) for one in decisions]
        with self._lock:
            self._catch_up()
            new = [answer for answer in made if answer.key not in self.tally.place]
            if new:
                append_answers(self.folder, new)
                self._catch_up()
            for answer in made:
                self._leases.pop(answer.row, None)
            return len(new)

    def undo(self, seat: Seat, key: str | None = None) -> dict[str, Any] | None:
        """Withdraws an answer: that of a key, else the last one of the reviewer. Returns its row, or None."""
        with self._lock:
            self._catch_up()
            last = self.tally.last_of(seat.reviewer)
            if key is not None:
                named = [a for by in self.tally.standing.values() for a in by.values() if a.key == key]
                last = next((a for a in named if a.reviewer == seat.reviewer), None)
            if last is None:
                return None
            undoing = Answer(f"undo-{last.key}", last.row, last.id, seat.reviewer, "undo", None, _now(), last.key)
            append_answers(self.folder, [undoing])
            self._catch_up()
            self._first = 0
            self._leases[last.row] = (seat, self._clock())
            return self.card(last.row, seat)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Reads what this or another process has added to the file."""
        added, self._read_to = read_answers(self.folder, self._read_to)
        for answer in added:
            if 0 <= answer.row < len(self.ids):
                self.tally.add(answer)

    def _candidates(self, seat: Seat) -> Iterator[int]:
        tally = self.tally
        mine = tally.answered.get(seat.reviewer, set())
        for row in sorted(tally.disputed):
            newest = tally.last_to(row)
            if newest is not None and newest.reviewer != seat.reviewer:  # rows answered last come after the others
                yield row
        others = (row for row in tally.verdicts if row not in mine)
        if len(mine) % SECOND == SECOND - 1 and (second := next(others, None)) is not None:
            yield second
        while self._first < len(self.order) and self.order[self._first] in tally.verdicts:
            self._first += 1
        for place in range(self._first, len(self.order)):
            row = self.order[place]
            if row not in tally.verdicts and row not in mine:
                yield row
        yield from others
        yield from sorted(tally.skipped.get(seat.reviewer, ()))

    def _taken(self, rows: Iterable[int], seat: Seat, count: int) -> list[int]:
        """The first rows not reserved by another seat, now reserved for this one."""
        chosen: dict[int, None] = {}
        for row in rows:
            if self._take(row, seat):
                chosen[row] = None
            if len(chosen) >= count:
                break
        return list(chosen)

    def _take(self, row: int, seat: Seat) -> bool:
        """Reserves a row for a seat, unless another seat has reserved it."""
        now = self._clock()
        held = self._leases.get(row)
        if held is not None and held[0] != seat and now - held[1] < LEASE:
            return False
        self._leases[row] = (seat, now)
        return True

    def _checked(self, reviewer: str, one: Mapping[str, Any]) -> Answer:
        row, action, label = one.get("row"), one.get("action"), one.get("label")
        if not isinstance(row, int) or isinstance(row, bool) or not 0 <= row < len(self.ids):
            raise UsageError(f"there is no row {row!r}; rows go from 0 to {len(self.ids) - 1}")
        if self.rows.corrected[row] == MISSING:
            raise UsageError(f"row {row} has no label in the run: it is a test row, and must not be used for training")
        if action == "keep":
            label = self._name(self.rows.given[row])
        elif action == "accept":
            label = self._name(self.rows.corrected[row])
        elif action in ("unsure", "skip"):
            label = None
        elif action != "label":
            raise UsageError(f"unknown answer {action!r}; keep, accept, label, unsure or skip")
        if action in ("keep", "accept", "label") and label not in self.classes:
            raise UsageError(f"row {row}: {label!r} is not a class of the run; choose one of its classes")
        key = one.get("key")
        if not isinstance(key, str) or not 8 <= len(key) <= 80:
            raise UsageError("every answer needs its own key of 8 to 80 characters")
        return Answer(key, row, self.ids[row], reviewer, str(action), label, _now())

    def _look(self, row: int) -> dict[str, Any] | None:
        look = self._looks.get(row)
        if look is None or self.run.preview is None:
            return None
        kind = self.run.preview.kind
        if kind == "image":
            return {"kind": kind, "jpeg": base64.b64encode(look).decode()}
        if kind == "values":
            return {"kind": kind, "values": [list(pair) for pair in zip(self.run.preview.columns, look, strict=False)]}
        return {"kind": kind, "text": look}

    def _code(self, name: str) -> int:
        if name not in self.classes:
            raise UsageError(f"{name!r} is not a class of the run")
        return self.classes.index(name)

    def _name(self, code: NDArray | int) -> str | None:
        return None if code == MISSING else self.classes[int(code)]


def seat_of(reviewer: Any, tab: Any) -> Seat:
    """The reviewer and tab of a request.

    Raises:
        UsageError: The name is empty or too long.
    """
    name = " ".join(str(reviewer or "").split())
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise UsageError(f"enter your name, at most {LONGEST_NAME} characters long")
    return Seat(name, str(tab or "")[:80])


def _answer_text(answer: Answer | None) -> str:
    if answer is None:
        return ""
    return answer.label if answer.label is not None else answer.action


def _number(value: float) -> float | None:
    return None if value != value else float(value)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
