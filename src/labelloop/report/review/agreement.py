"""Who said what, how well reviewers agree, and how fast they are: Cohen's kappa, rows per hour, errors."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import combinations, pairwise
from typing import Any

from labelloop.report.facts import share
from labelloop.report.review.tally import Tally
from labelloop.runs.reviews import SETTLED, Answer
from labelloop.trust import safe_cell

PAUSE = 300.0  # seconds between two answers after which a person was doing something else


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
