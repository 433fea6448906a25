"""The outcome of all answers, updated answer by answer, so that the cost of a decision does not grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from labelloop.report.review.live_estimate import LiveEstimate
from labelloop.runs.reviews import Answer, Verdict, verdict


class Tally:
    """The current answers and verdicts of a review.

    Args:
        proposed: The label that the run proposes for every row, or None.
        live: The estimate that follows the decisions.
    """

    def __init__(self, proposed: Sequence[str | None], live: LiveEstimate) -> None:
        self._proposed, self._live = proposed, live
        self._history: dict[tuple[int, str], list[Answer]] = {}
        self._undone: set[str] = set()
        self.place: dict[str, int] = {}  # of every answer, in the order they came
        self.standing: dict[int, dict[str, Answer]] = {}  # by row and reviewer
        self.verdicts: dict[int, Verdict] = {}
        self.answered: dict[str, set[int]] = {}  # rows with a standing answer, by reviewer
        self.skipped: dict[str, set[int]] = {}
        self.disputed: set[int] = set()
        self.counts: Counter[str] = Counter()  # settled, by_several, agreed

    def add(self, answer: Answer) -> None:
        """Adds an answer; a repeated one counts once."""
        if answer.key in self.place:
            return
        self.place[answer.key] = len(self.place)
        if answer.action == "undo":
            self._undone.add(str(answer.undoes))
        else:
            self._history.setdefault((answer.row, answer.reviewer), []).append(answer)
        self._update(answer.row, answer.reviewer)

    def last_of(self, reviewer: str) -> Answer | None:
        """The newest current answer of a reviewer."""
        mine = [self.standing[row][reviewer] for row in self.answered.get(reviewer, ())]
        return max(mine, key=lambda answer: self.place[answer.key], default=None)

    def last_to(self, row: int) -> Answer | None:
        """The newest current answer to a row."""
        return max(self.standing.get(row, {}).values(), key=lambda answer: self.place[answer.key], default=None)

    def _update(self, row: int, reviewer: str) -> None:
        standing = [a for a in self._history.get((row, reviewer), ()) if a.key not in self._undone]
        by_reviewer = self.standing.setdefault(row, {})
        answered, skipped = self.answered.setdefault(reviewer, set()), self.skipped.setdefault(reviewer, set())
        answered.discard(row)
        skipped.discard(row)
        by_reviewer.pop(reviewer, None)
        if standing:
            by_reviewer[reviewer] = standing[-1]
            answered.add(row)
            if standing[-1].action == "skip":
                skipped.add(row)
        self._count(row, -1)
        answers = {name: answer.label for name, answer in by_reviewer.items() if answer.action != "skip"}
        if answers:
            self.verdicts[row] = verdict(answers)
        else:
            self.verdicts.pop(row, None)
        self._count(row, 1)

    def _count(self, row: int, sign: int) -> None:
        found = self.verdicts.get(row)
        if found is None:
            return
        chosen = [label for label in found.answers.values() if label is not None]
        self.counts["settled"] += sign * (found.label is not None)
        self.counts["by_several"] += sign * (len(chosen) > 1)
        self.counts["agreed"] += sign * (len(chosen) > 1 and len(set(chosen)) == 1)
        (self.disputed.add if found.disputed and sign > 0 else self.disputed.discard)(row)
        if found.label is not None:
            self._live.decide(row, found.label == self._proposed[row], sign)
