"""Counts the cells in which one row is first, tied and behind the best of some others, by paired differences.

A cell is a protocol, a number of clean rows and a noise. In each cell the rival is the one against which ours does
worst, on the common seeds, in the best form that is stored (published or chosen settings, trained alike); choosing it
among many counts against us. The difference is taken seed by seed, and its 95% interval is that of the cell alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from labelloop.bench.tables import last, setting

Record = Mapping[str, Any]
Numbers = dict[int, float]  # seed -> value
Place = tuple[str, str, str]  # protocol, part, noise
Cells = dict[Place, dict[str, Numbers]]
LEVEL = 0.95
DEFAULT_ROW, LITERAL_ROW, GIVEN_ROW = "LabelLoop", "closed loop", "given labels"
SIMPLE_METHODS = ("cross-entropy", "clean-only", "noisy-and-clean", "fine-tune")
IN_FULL = ("test accuracy, all other methods", "labels, all other methods")


@dataclass(frozen=True)
class Duel:
    """Our method against the best of the others in a cell. Numbers are shares, not per cent."""

    place: Place
    ours: float
    rival: str
    theirs: float
    differences: tuple[float, ...]  # one per seed

    @property
    def half_width(self) -> float | None:
        """Of the 95% interval of the difference (Student's t); None with one seed, which has no spread."""
        count = len(self.differences)
        if count < 2:
            return None
        return float(stdtrit(count - 1, (1 + LEVEL) / 2) * np.std(self.differences, ddof=1) / np.sqrt(count))

    @property
    def mean(self) -> float:
        return float(np.mean(self.differences))

    @property
    def outcome(self) -> str:
        """ "first" or "behind" where the interval leaves 0 out, else "tied"."""
        if self.half_width is None or abs(self.mean) <= self.half_width:
            return "tied"
        return "first" if self.mean > 0 else "behind"


def of_labels(key: str) -> Callable[[Record], float | None]:
    """A measure of the labels that a run returns; those of the last epoch if it returns no others."""

    def value(record: Record) -> float | None:
        handed_back = record.get("handed_back") or {}
        return handed_back[key] if handed_back.get(key) is not None else last(record, key)

    return value


def cells_of(records: Iterable[tuple[str, str, Record]], value: Callable[[Record], float | None] = last) -> Cells:
    """The value of every run, by cell, row and seed.

    Args:
        records: (protocol, title of the part, record).
        value: What is compared.
    """
    found: Cells = {}
    for protocol, part, record in records:
        number = value(record)
        if number is not None:
            rows = found.setdefault((protocol, part, setting(record["experiment"])), {})
            rows.setdefault(record["title"], {})[record["experiment"]["seed"]] = number
    return found


def duels(cells: Cells, ours: str, rivals: Collection[str]) -> list[Duel]:
    """Our method against the best of the rivals, in every cell that has both."""
    found = (_against_best(place, rows, ours, rivals) for place, rows in cells.items() if ours in rows)
    return [duel for duel in found if duel is not None]


def _against_best(place: Place, rows: Mapping[str, Numbers], ours: str, rivals: Collection[str]) -> Duel | None:
    best: Duel | None = None
    for rival in rivals:
        shared = sorted(rows[ours].keys() & rows.get(rival, {}).keys())
        if not shared:
            continue
        mine, theirs = ([rows[row][seed] for seed in shared] for row in (ours, rival))
        differences = tuple(a - b for a, b in zip(mine, theirs, strict=True))
        duel = Duel(place, float(np.mean(mine)), rival, float(np.mean(theirs)), differences)
        if best is None or duel.mean < best.mean:  # compared on the common seeds
            best = duel
    return best


def count(found: Sequence[Duel]) -> dict[str, int]:
    """How often ours is first, tied and behind, and how often its mean is the highest."""
    counts = {word: sum(duel.outcome == word for duel in found) for word in ("first", "tied", "behind")}
    return counts | {"highest mean": sum(duel.mean > 0 for duel in found)}


def compared(records: Sequence[tuple[str, str, Record]], methods: Mapping[str, str]) -> dict[str, list[Duel]]:
    """The default against others in every cell, for test accuracy and for labels.

    Args:
        records: (protocol, title of the part, record).
        methods: The method of every row. The oracle and other rows of the default are not rivals.
    """
    others = [title for title, method in methods.items() if method not in ("labelloop", "oracle")]
    simple = [title for title in others if methods[title] in SIMPLE_METHODS]
    given = [
        (protocol, part, {**record, "title": GIVEN_ROW, "given": 1 - record["realised_rate"]})
        for protocol, part, record in records
        if record["title"] == DEFAULT_ROW
    ]
    right = of_labels("corrected_label_accuracy")
    test = cells_of(records)
    labels = cells_of([*records, *given], lambda record: record.get("given", right(record)))
    return {
        "test accuracy, all other methods": duels(test, DEFAULT_ROW, others),
        "test accuracy, simple baselines": duels(test, DEFAULT_ROW, simple),
        "test accuracy, the paper's method": duels(test, DEFAULT_ROW, [LITERAL_ROW]),
        "labels, all other methods": duels(labels, DEFAULT_ROW, others),
        "labels, the paper's method": duels(labels, DEFAULT_ROW, [LITERAL_ROW]),
        "labels, as given": duels(labels, DEFAULT_ROW, [GIVEN_ROW]),
    }


# --- as text ---------------------------------------------------------------------------------------------------------


def tally_table(found: Mapping[str, Sequence[Duel]]) -> str:
    """One line per comparison: the number of cells, and in how many ours is first, tied and behind."""
    lines = ["| compared | cells | first | tied | behind | highest mean | mean difference |", "|---" * 7 + "|"]
    for name, some in found.items():
        counts = count(some)
        mean = f"{100 * np.mean([duel.mean for duel in some]):+.1f}" if some else "–"
        numbers = [len(some), *(counts[word] for word in ("first", "tied", "behind", "highest mean"))]
        lines.append(f"| {name} | " + " | ".join(map(str, numbers)) + f" | {mean} |")
    return "\n".join(lines)


def duel_table(found: Sequence[Duel]) -> str:
    """One line per cell: ours, the best other, and the paired difference with its interval, in points."""
    lines = ["| where | noise | ours | best other | difference | seeds | |", "|---" * 7 + "|"]
    for duel in found:
        spread = f" ± {100 * duel.half_width:.1f}" if duel.half_width is not None else ""
        texts = [
            duel.place[1],
            duel.place[2],
            f"{100 * duel.ours:.1f}",
            f"{duel.rival} {100 * duel.theirs:.1f}",
            f"{100 * duel.mean:+.1f}{spread}",
            str(len(duel.differences)),
            duel.outcome,
        ]
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines)


def tally_text(found: Mapping[str, Sequence[Duel]]) -> str:
    """The tally of all comparisons, then the cells of the two most important ones."""
    full = [f"{name[0].upper()}{name[1:]}\n\n{duel_table(found[name])}" for name in IN_FULL if found.get(name)]
    return "\n\n".join([tally_table(found), *full])
