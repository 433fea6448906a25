"""The outcome of all answers, updated answer by answer; how far random rows lead to a goal; how reviewers agree."""

from __future__ import annotations

import csv
import io
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import combinations, pairwise
from typing import Any

from scipy.special import betaincinv

from labelloop.report.facts import share
from labelloop.runs.reviews import ESTIMATE, SETTLED, Answer, Verdict, verdict, who
from labelloop.trust import safe_cell

CERTAINTY = 0.95
PAUSE = 300.0  # seconds between two answers after which a person was doing something else
BEFORE = 20  # random rows that the estimate of the run counts for, when rows to come are foreseen


def certain_share(right: int, rows: int) -> float:
    """The share of right labels that is exceeded with 95% certainty, if so many of so many random rows were right."""
    return float(betaincinv(right, rows - right + 1, 1 - CERTAINTY)) if right > 0 else 0.0


def rows_to_goal(right: int, rows: int, goal: float, expected: float, left: int) -> int | None:
    """About how many more random rows show that the goal is reached.

    Args:
        right: Random rows whose label was right.
        rows: Random rows so far.
        goal: The share of right labels to show with 95% certainty.
        expected: The share of right labels by the estimate of the run.
        left: How many random rows there still are.

    Returns:
        0 if it is shown, None if it is out of sight: as far as is known, labels are not clearly that good.
    """
    if certain_share(right, rows) >= goal:
        return 0
    likely = (right + BEFORE * expected) / (rows + BEFORE)
    if likely <= goal:
        return None

    def shown(more: int) -> bool:
        return certain_share(right + int(likely * more), rows + more) >= goal

    more = bisect_left(range(left + 1), True, key=shown)
    return more if more <= left else None


class Tally:
    """The current answers and verdicts of a review.

    Args:
        proposed: The corrected label of every row, or None.

    Attributes:
        standing: The current answer of each reviewer, by row and reviewer; SETTLED is the one that ends a disagreement.
        verdicts: By row; rows that were only skipped have none.
        answered: The rows that a reviewer has answered, by reviewer.
        skipped: Those of them that were skipped.
        disputed: The rows on which reviewers disagree.
        sample: The random rows: whether the proposed label is right, None where that is not known.
        several: The rows that several reviewers labelled: whether they agree.
        made: The answers of a reviewer in order, withdrawn ones included.
    """

    def __init__(self, proposed: Sequence[str | None]) -> None:
        self._proposed = proposed
        self.place: dict[str, int] = {}  # of every known key, in the order of the file
        self.undone: set[str] = set()
        self._history: dict[tuple[int, str], list[Answer]] = {}
        self.made: dict[str, list[Answer]] = {}
        self.standing: dict[int, dict[str, Answer]] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.answered: dict[str, set[int]] = {}
        self.skipped: dict[str, set[int]] = {}
        self.disputed: set[int] = set()
        self.sample: dict[int, bool | None] = {}
        self.several: dict[int, bool] = {}

    def add(self, answer: Answer) -> None:
        """Adds an answer; a repeated one counts once."""
        if answer.key in self.place:
            return
        self.place[answer.key] = len(self.place)
        if answer.action == "undo":
            self.undone.add(str(answer.undoes))
            for name in (answer.reviewer, SETTLED):
                self._update(answer.row, name)
        else:
            self._history.setdefault((answer.row, who(answer)), []).append(answer)
            self.made.setdefault(answer.reviewer, []).append(answer)
            self._update(answer.row, who(answer))

    def last_of(self, reviewer: str) -> list[Answer]:
        """The newest current answer of a reviewer, with all others of its batch."""
        made = self.made.get(reviewer, [])
        last = next((answer for answer in reversed(made) if answer.key not in self.undone), None)
        if last is None or last.batch is None:
            return [] if last is None else [last]
        return [answer for answer in made if answer.batch == last.batch and answer.key not in self.undone]

    def last_to(self, row: int) -> Answer | None:
        """The newest current answer to a row."""
        return max(self.standing.get(row, {}).values(), key=lambda answer: self.place[answer.key], default=None)

    def random_check(self) -> dict[str, Any]:
        """The random rows that were answered: how many, how many were right, and the share with its interval."""
        known = [right for right in self.sample.values() if right is not None]
        return {
            "rows": len(known),
            "right": sum(known),
            "unknown": len(self.sample) - len(known),
            "share": share(sum(known), len(known)),
        }

    def _update(self, row: int, name: str) -> None:
        standing = [a for a in self._history.get((row, name), ()) if a.key not in self.undone]
        by_name = self.standing.setdefault(row, {})
        by_name.pop(name, None)
        if standing:
            by_name[name] = standing[-1]
        if name != SETTLED:
            answered, skipped = self.answered.setdefault(name, set()), self.skipped.setdefault(name, set())
            (answered.add if standing else answered.discard)(row)
            (skipped.add if standing and standing[-1].action == "skip" else skipped.discard)(row)
        self.sample.pop(row, None)
        self.several.pop(row, None)
        self.disputed.discard(row)
        answers = {name: answer.label for name, answer in by_name.items() if answer.action != "skip"}
        if not answers:
            self.verdicts.pop(row, None)
            return
        found = self.verdicts[row] = verdict(answers)
        chosen = [label for label in found.answers.values() if label is not None]
        if len(chosen) > 1:
            self.several[row] = len(set(chosen)) == 1
        if found.disputed:
            self.disputed.add(row)
        if any(answer.queue == ESTIMATE for answer in by_name.values()):
            self.sample[row] = None if found.label is None else found.label == self._proposed[row]


def cohens_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Agreement of two reviewers beyond chance, from their labels of the same rows; None where chance explains all."""
    if not pairs:
        return None
    total = len(pairs)
    agreed = sum(a == b for a, b in pairs) / total
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    by_chance = sum(first[name] * second[name] for name in first) / total**2
    return None if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)


def rows_per_hour(answers: Sequence[Answer]) -> float | None:
    """The pace of a reviewer, pauses aside; None with fewer than two answers in a row.

    A batch counts as as many rows as it has, in the time since the answer before it.
    """
    try:
        times = [datetime.fromisoformat(answer.at).timestamp() for answer in answers]
    except (ValueError, OverflowError):  # another program wrote them
        return None
    gaps = [after - before for before, after in pairwise(times) if after - before < PAUSE]
    spent = sum(gaps)
    return 3600 * len(gaps) / spent if spent > 0 else None


def as_csv(tally: Tally, columns: Mapping[str, Sequence[Any]]) -> str:
    """Every row with an answer: its settled label and all answers, in a form for `refit --clean-file`.

    Cells that a spreadsheet would take for a formula are escaped; the reader of clean files knows them.

    Args:
        tally: The answers.
        columns: What else to write of a row, by name.
    """
    place = io.StringIO()
    names = sorted(name for name, rows in tally.answered.items() if rows)
    writer = csv.writer(place, lineterminator="\n")
    writer.writerow([*columns, "clean_label", "disputed", *(f"answer of {name}" for name in names)])
    for row, found in sorted(tally.verdicts.items()):
        said = [tally.standing[row].get(name) for name in names]
        answers = ["" if answer is None else answer.label or answer.action for answer in said]
        known = ["" if values[row] is None else values[row] for values in columns.values()]
        cells = [*known, found.label or "", "yes" if found.disputed else "", *answers]
        writer.writerow([safe_cell(str(cell)) for cell in cells])
    return place.getvalue()


def people(tally: Tally) -> dict[str, Any]:
    """Reviewers one by one, two by two, and by class."""
    names = sorted(name for name, rows in tally.answered.items() if rows)
    labels = {
        name: {
            row: str(label) for row in tally.answered[name] if (label := tally.standing[row][name].label) is not None
        }
        for name in names
    }
    pairs = []
    for a, b in combinations(names, 2):
        both = [(labels[a][row], labels[b][row]) for row in labels[a].keys() & labels[b].keys()]
        if both:
            agreed = sum(x == y for x, y in both)
            pairs.append({"who": [a, b], "rows": len(both), "agreed": agreed, "kappa": cohens_kappa(both)})
    return {
        "reviewers": [_one(name, tally, labels[name]) for name in names],
        "pairs": pairs,
        "by_class": _by_class(tally),
    }


def _one(name: str, tally: Tally, labels: dict[int, str]) -> dict[str, Any]:
    """A reviewer: decisions, pace, and errors on rows that others have answered too and that are settled."""
    judged = {row for row in labels if _settled_by_others(tally, row, name)}
    wrong = sum(labels[row] != tally.verdicts[row].label for row in judged)
    made = [answer for answer in tally.made.get(name, ()) if answer.key not in tally.undone]
    return {
        "name": name,
        "decisions": len(tally.answered[name] - tally.skipped[name]),
        "rows_per_hour": rows_per_hour(made),
        "wrong": share(wrong, len(judged)),
    }


def _settled_by_others(tally: Tally, row: int, name: str) -> bool:
    found = tally.verdicts[row]
    others = [who for who, label in found.answers.items() if who != name and label is not None]
    return found.label is not None and bool(others or SETTLED in tally.standing[row])


def _by_class(tally: Tally) -> list[dict[str, Any]]:
    """Of the rows that several labelled, by each class that one of them chose: how often all agreed."""
    rows: Counter[str] = Counter()
    agreed: Counter[str] = Counter()
    for found in tally.verdicts.values():
        chosen = [label for label in found.answers.values() if label is not None]
        if len(chosen) > 1:
            rows.update(set(chosen))
            agreed.update(set(chosen) if len(set(chosen)) == 1 else ())
    return [{"class": name, "rows": rows[name], "agreed": agreed[name]} for name in sorted(rows)]
