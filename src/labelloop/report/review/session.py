"""A review of one run: which rows come next for whom, what the page shows of them, and what is decided."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError
from labelloop.report.facts import facts, row_facts, unproved
from labelloop.report.review.looks import Learners, Looks, Neighbours
from labelloop.report.review.queues import ALL, Filter, Queues
from labelloop.report.review.tally import Tally, as_csv, rows_to_goal
from labelloop.runs.reviews import ESTIMATE, IMPROVE, QUEUES, SETTLE, Answer, append_answers, random_order, read_answers
from labelloop.runs.survey import Survey
from labelloop.types import MISSING

LEASE = 300.0  # seconds that a row stays reserved for a tab
SECOND = 10  # one row in this many was answered by somebody else, to measure agreement
LONGEST_NAME = 60
GOAL = 0.97
Clock = Callable[[], float]


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
        learners: What each learner predicts, or None.

    Raises:
        DataError: The run has no labels.
    """

    def __init__(
        self,
        run: Survey,
        order: Sequence[int] | NDArray[np.int64],
        neighbours: Neighbours | None = None,
        clock: Clock = time.monotonic,
        learners: Learners | None = None,
    ) -> None:
        rows = row_facts(run)
        if rows is None or run.path is None or run.labels is None:
            raise DataError(f"{run.path} has no labels to review: {'; '.join(run.missing)}")
        self.run, self.folder, self.rows = run, run.path, rows
        self.classes, self.facts = run.classes, facts(run, rows)
        self.order = np.asarray(order, np.int64)
        by_chance = random_order(len(rows.given))
        open_rows = ~rows.clean & (rows.corrected != MISSING)
        self.queues = Queues(run, rows, {IMPROVE: self.order, ESTIMATE: by_chance[open_rows[by_chance]]})
        self.ids: list[str] = run.labels["id"].to_pylist()
        self.looks = Looks(run, rows, learners)
        self._neighbours, self._clock, self._learners = neighbours, clock, learners
        self._mean_confidence = float(np.nanmean(rows.confidence)) if len(self.ids) else 0.0
        self._lock = threading.RLock()
        self._read_to = 0
        self._leases: dict[int, tuple[Seat, float]] = {}
        self.tally = Tally([self._name(code) for code in rows.corrected.tolist()])
        self._catch_up()

    # --- reading ------------------------------------------------------------------------------------------------------

    def next_rows(
        self, seat: Seat, count: int = 1, *, queue: str = IMPROVE, wanted: Filter = ALL, blind: bool = False
    ) -> list[dict[str, Any]]:
        """The next rows for a seat, in the order of the queue, skipped ones last.

        Args:
            seat: Who asks.
            count: How many.
            queue: "improve", the most useful rows first, or "estimate", random rows.
            wanted: A filter; random rows are not filtered, or they would not be random.
            blind: Whether labels stay hidden.
        """
        with self._lock:
            self._catch_up()
            rows = self._random(seat) if queue == ESTIMATE else self._useful(seat, wanted)
            return [self.card(row, seat, blind=blind) for row in self._taken(rows, seat, count)]

    def grid(self, seat: Seat, pair: Filter, count: int) -> list[dict[str, Any]]:
        """Rows of one class pair that nobody has answered yet, the most confident first."""
        with self._lock:
            self._catch_up()
            rows = np.flatnonzero(self.queues.mask(pair) & ~self.rows.clean)
            rows = rows[np.argsort(-np.nan_to_num(self.rows.confidence[rows]), kind="stable")]
            waiting = (row for row in rows.tolist() if row not in self.tally.verdicts)
            return [self.card(row, seat, near=False) for row in self._taken(waiting, seat, count)]

    def pairs(self) -> list[dict[str, Any]]:
        """Class pairs with changes that nobody has answered, the largest first."""
        with self._lock:
            self._catch_up()
            waiting = self.rows.changed.copy()
            waiting[list(self.tally.verdicts)] = False
            found, names = self.rows.pairs(waiting, len(self.classes))[:50], self.classes
            return [{"given": names[a], "corrected": names[b], "rows": count} for a, b, count in found]

    def disputes(self, seat: Seat) -> list[dict[str, Any]]:
        """The rows on which reviewers disagree, to settle."""
        with self._lock:
            self._catch_up()
            return [self.card(row, seat) for row in sorted(self.tally.disputed)[:50]]

    def card(self, row: int, seat: Seat, near: bool = True, blind: bool = False) -> dict[str, Any]:
        """What the page shows of a row. Blind, it is the row alone: an id may be a file in the folder of its label."""
        clean = self._neighbours.nearest(row) if near and not blind and self._neighbours is not None else []
        name = f"number {row}" if blind else self.ids[row]
        card: dict[str, Any] = {"row": row, "id": name, "look": self.looks.look(row), "blind": blind}
        classes = self.looks.rivals(row)
        card["order"] = [] if blind else self.looks.order(classes)
        card["near"] = [
            {
                "id": self.ids[k],
                "label": self._name(self.rows.corrected[k]),
                "look": self.looks.look(k),
                "differs": self.looks.differing(row, k),
            }
            for k in clean
        ]
        return card if blind else card | self._labels_of(row, seat, classes, near)

    def _labels_of(self, row: int, seat: Seat, classes: tuple[int, int], near: bool) -> dict[str, Any]:
        """What is known about the label of a row."""
        found = self.tally.verdicts.get(row)
        mine = self.tally.standing.get(row, {}).get(seat.reviewer)
        given, corrected = int(self.rows.given[row]), int(self.rows.corrected[row])
        known = {
            "given": self._name(given),
            "proposed": self._name(corrected),
            "confidence": _number(self.rows.confidence[row]),
            "answers": {} if found is None else dict(found.answers),
            "disputed": found is not None and found.disputed,
            "mine": None if mine is None else mine.label,
        }
        if not near:
            return known
        votes = [] if self._learners is None else self._learners.votes(row)
        return known | {
            "likely": [[self.classes[k], p] for k, p in self.looks.likely(row)],
            "words": {word: self.classes[k] for word, k in self.looks.words(row, classes).items()},
            "words_by": self.looks.words_by,
            "votes": [{"who": name, "label": self._name(k), "p": round(p, 4)} for name, k, p in votes],
            "of_given": self.looks.of_given(given, corrected),
        }

    def state(self, reviewer: str, goal: float = GOAL) -> dict[str, Any]:
        """The progress of the review."""
        with self._lock:
            self._catch_up()
            tally = self.tally
            mine = len(tally.answered.get(reviewer, ())) - len(tally.skipped.get(reviewer, ()))
            check, after = tally.random_check(), self.facts.after
            expected = after["value"] if after else self._mean_confidence
            left = len(self.queues.named(ESTIMATE, ALL)) - len(tally.sample)
            more = rows_to_goal(check["right"], check["rows"], goal, expected, left)
            return {
                "mine": mine,
                "reviewed": len(tally.verdicts),
                "disputed": len(tally.disputed),
                "rows": len(self.order),
                "by_several": len(tally.several),
                "agreed": sum(tally.several.values()),
                "estimate": after,
                "unproved": unproved(self.run.record.get("guard")),
                "random": check,
                "goal": {"share": goal, "more": more},
            }

    def csv(self) -> str:
        """Every row with an answer, for `refit --clean-file`."""
        with self._lock:
            self._catch_up()
            assert self.run.labels is not None
            names = ("given_label", "corrected_label", "corrected_confidence")
            columns: dict[str, Sequence[Any]] = {"id": self.ids}
            columns |= {
                name: self.run.labels[name].to_pylist() for name in names if name in self.run.labels.column_names
            }
            return as_csv(self.tally, columns)

    # --- writing ------------------------------------------------------------------------------------------------------

    def decide(self, seat: Seat, decisions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Saves answers; returns those that are new. They are on disk when it returns.

        Raises:
            UsageError: An answer is invalid; none of them is saved then.
        """
        made = [self._checked(seat.reviewer, one) for one in decisions]
        if len(made) > 1 and not all(one.get("seen") is True for one in decisions):
            raise UsageError("a batch decides only rows that were on the screen; scroll to the others first")
        with self._lock:
            self._catch_up()
            new = [answer for answer in made if answer.key not in self.tally.place]
            if new:
                append_answers(self.folder, new)
                self._catch_up()
            for answer in made:
                self._leases.pop(answer.row, None)
            return [
                {
                    "row": answer.row,
                    "label": answer.label,
                    "given": self._name(self.rows.given[answer.row]),
                    "proposed": self._name(self.rows.corrected[answer.row]),
                    "confidence": _number(self.rows.confidence[answer.row]),
                }
                for answer in new
            ]

    def undo(self, seat: Seat, keys: Sequence[str] | None = None, blind: bool = False) -> list[dict[str, Any]]:
        """Withdraws answers of a reviewer at once: those of the keys, else the last one with its batch.

        Returns:
            Their rows, as cards.
        """
        with self._lock:
            self._catch_up()
            made = self.tally.made.get(seat.reviewer, [])
            named = [a for a in made if a.key in set(keys or ()) and a.key not in self.tally.undone]
            last = self.tally.last_of(seat.reviewer) if keys is None else named
            if last:
                now = _now()
                append_answers(
                    self.folder,
                    [Answer(f"undo-{a.key}", a.row, a.id, seat.reviewer, "undo", None, now, a.key) for a in last],
                )
                self._catch_up()
                self._leases |= {a.row: (seat, self._clock()) for a in last}
            return [self.card(a.row, seat, near=len(last) == 1, blind=blind) for a in last]

    # --- inside -------------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Reads what this or another process has added to the file."""
        added, self._read_to = read_answers(self.folder, self._read_to)
        for answer in added:
            if 0 <= answer.row < len(self.ids):
                self.tally.add(answer)

    def _useful(self, seat: Seat, wanted: Filter) -> Iterator[int]:
        """The queue "improve": disputed rows, now and then one that somebody else has answered, then the plan."""
        tally = self.tally
        mine = tally.answered.get(seat.reviewer, set())
        passing = None if wanted == ALL else self.queues.mask(wanted)
        for row in sorted(tally.disputed) if passing is None else ():
            newest = tally.last_to(row)
            if newest is not None and newest.reviewer != seat.reviewer:  # rows answered last come after the others
                yield row
        others = (row for row in tally.verdicts if row not in mine and (passing is None or passing[row]))
        if len(mine) % SECOND == SECOND - 1 and (second := next(others, None)) is not None:
            yield second
        planned = map(int, self.queues.named(IMPROVE, wanted))
        yield from (row for row in planned if row not in tally.verdicts and row not in mine)
        yield from others
        yield from (row for row in sorted(tally.skipped.get(seat.reviewer, ())) if passing is None or passing[row])

    def _random(self, seat: Seat) -> Iterator[int]:
        """The queue "estimate": all rows by chance, also those that were answered elsewhere, with labels in sight."""
        skipped, sample = self.tally.skipped.get(seat.reviewer, set()), self.tally.sample
        for again in (False, True):  # those that were skipped come last
            rows = map(int, self.queues.named(ESTIMATE, ALL))
            yield from (row for row in rows if row not in sample and (row in skipped) == again)

    def _taken(self, rows: Iterable[int], seat: Seat, count: int) -> list[int]:
        """The first rows not reserved by another seat, now reserved for this one."""
        chosen: dict[int, None] = {}
        for row in rows:
            now, (holder, since) = self._clock(), self._leases.get(row, (seat, 0.0))
            if holder == seat or now - since >= LEASE:
                self._leases[row] = (seat, now)
                chosen[row] = None
            if len(chosen) >= count:
                break
        return list(chosen)

    def _checked(self, reviewer: str, one: Mapping[str, Any]) -> Answer:
        row, action, label = one.get("row"), one.get("action"), one.get("label")
        if not isinstance(row, int) or isinstance(row, bool) or not 0 <= row < len(self.ids):
            raise UsageError(f"there is no row {row!r}; rows go from 0 to {len(self.ids) - 1}")
        if self.rows.corrected[row] == MISSING:
            raise UsageError(f"row {row} has no label in the run: it is a test row, and must not be used for training")
        given, corrected = (self._name(labels[row]) for labels in (self.rows.given, self.rows.corrected))
        said = {"keep": given, "accept": corrected, "label": label, "unsure": None, "skip": None}
        if str(action) not in said:
            raise UsageError(f"unknown answer {action!r}; keep, accept, label, unsure or skip")
        label = said[str(action)]
        if action not in ("unsure", "skip") and label not in self.classes:
            raise UsageError(f"row {row}: {label!r} is not a class of the run; choose one of its classes")
        key, queue, batch = one.get("key"), one.get("queue"), one.get("batch")
        if not isinstance(key, str) or not 8 <= len(key) <= 80:
            raise UsageError("every answer needs its own key of 8 to 80 characters")
        if queue not in (None, *QUEUES) or not (batch is None or (isinstance(batch, str) and len(batch) <= 80)):
            raise UsageError(f"a queue is one of {', '.join(QUEUES)}, and a batch has a name of at most 80 characters")
        if queue == SETTLE and row not in self.tally.disputed:
            raise UsageError(f"reviewers do not disagree on row {row}, so there is nothing to settle")
        return Answer(
            key, row, self.ids[row], reviewer, str(action), label, _now(), None, queue, batch, one.get("blind") is True
        )

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


def _number(value: float) -> float | None:
    return None if value != value else float(value)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
