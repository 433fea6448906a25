"""The outcome of all answers, updated answer by answer, and how far the random rows among them lead to a goal."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

from scipy.special import betaincinv

from labelloop.report.facts import share
from labelloop.runs.reviews import ESTIMATE, SETTLED, Answer, Verdict, verdict, who

CERTAINTY = 0.95
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
        self.counts: Counter[str] = Counter()  # by_several, agreed

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
        self._count(row, -1)
        answers = {name: answer.label for name, answer in by_name.items() if answer.action != "skip"}
        if answers:
            self.verdicts[row] = verdict(answers)
        else:
            self.verdicts.pop(row, None)
        self._count(row, 1)

    def _count(self, row: int, sign: int) -> None:
        found = self.verdicts.get(row)
        if sign < 0:
            self.sample.pop(row, None)
            self.disputed.discard(row)
        if found is None:
            return
        chosen = [label for label in found.answers.values() if label is not None]
        self.counts["by_several"] += sign * (len(chosen) > 1)
        self.counts["agreed"] += sign * (len(chosen) > 1 and len(set(chosen)) == 1)
        if sign > 0 and found.disputed:
            self.disputed.add(row)
        if sign > 0 and any(answer.queue == ESTIMATE for answer in self.standing[row].values()):
            self.sample[row] = None if found.label is None else found.label == self._proposed[row]
