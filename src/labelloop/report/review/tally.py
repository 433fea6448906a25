"""The outcome of all answers, updated answer by answer, and the estimate that follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.report.facts import is_share
from labelloop.runs.reviews import Answer, Verdict, verdict

STRONG = 10.0  # expected errors assumed before the first decision
MOST = 4.0  # the doubts of the remaining rows are scaled by at most this, and at least its inverse


class LiveEstimate:
    """The share of labels that are right, over all rows that have one.

    Before the first decision it is the estimate of the run, from held-out clean rows. Every row has a doubt: 1 − its
    confidence, scaled so that all doubts add up to the errors of that estimate. A decided row has none. If decided rows
    were wrong more or less often than their doubts predicted, the doubts of the other rows are scaled accordingly.

    Args:
        confidence: The confidence of every row's label [n], NaN where it has none.
        settled: The rows that were clean before [n].
        estimate: The estimate of the run, or empty.
    """

    def __init__(
        self, confidence: NDArray[np.float64], settled: NDArray[np.bool_], estimate: Mapping[str, Any]
    ) -> None:
        self._open = ~np.isnan(confidence) & ~settled
        self._rows, self._open_rows = int((~np.isnan(confidence)).sum()), int(self._open.sum())
        doubt = np.where(self._open, 1 - np.nan_to_num(confidence), 0.0)
        found = estimate.get("corrected_label_accuracy")
        self._share = dict(found) if is_share(found) else None
        expected = float(doubt.sum())
        errors = self._open_rows * (1 - self._share["value"]) if self._share else expected
        self._doubt = np.minimum(doubt * (errors / expected if expected > 0 else 0.0), 1.0)
        self._all = float(self._doubt.sum())
        self._decided, self._foreseen, self._wrong = 0, 0.0, 0

    def decide(self, row: int, right: bool, sign: int = 1) -> None:
        """Records whether the proposed label of a decided row was right; −1 withdraws the decision."""
        if self._open[row]:
            self._decided += sign
            self._foreseen += sign * float(self._doubt[row])
            self._wrong += sign * (not right)

    def now(self) -> dict[str, Any] | None:
        """The estimate after the decisions so far.

        Returns:
            "value", "low", "high" and "decided"; low and high are None where the run has no estimate. None without
            rows.
        """
        if not self._rows:
            return None
        factor = float(np.clip((self._wrong + STRONG) / (self._foreseen + STRONG), 1 / MOST, MOST))
        left = max(self._all - self._foreseen, 0.0)
        low = high = None
        if self._share is not None:
            waiting = 1 - self._decided / max(self._open_rows, 1)
            part = factor * left / self._all if self._all > 0 else waiting
            part *= self._open_rows / self._rows
            low, high = (float(np.clip(1 - part * (1 - self._share[key]), 0, 1)) for key in ("low", "high"))
        value = float(np.clip(1 - factor * left / self._rows, 0, 1))
        return {"value": value, "low": low, "high": high, "decided": self._decided}


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
