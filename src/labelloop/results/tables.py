"""Tables of runs, from their records: methods down, settings across, mean and spread over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Cell = tuple[float, float, int]  # mean, standard deviation, number of seeds


def last(record: Mapping[str, Any], key: str = "test_accuracy") -> float:
    """A number of the last epoch."""
    return record["history"][-1][key]


def best(record: Mapping[str, Any], key: str = "test_accuracy") -> float:
    """The highest over the epochs. For test accuracy that is selection on test data: only the paper's "Best"."""
    return max(row[key] for row in record["history"])


def setting(record: Mapping[str, Any]) -> str:
    """What the table's columns tell apart: noise and rate."""
    experiment = record["experiment"]
    if experiment["noise"] in ("none", "recorded", "file"):
        detail = experiment["noise_options"].get("key", "")
        return f"{experiment['noise']} {detail}".strip()
    return f"{experiment['noise']} {experiment['rate']:g}"


def table(records: Iterable[Mapping[str, Any]], value: Any = last) -> tuple[list[str], dict[str, dict[str, Cell]]]:
    """The columns, and for every title a cell for every column it has runs for."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    columns: list[str] = []
    for record in records:
        column = setting(record)
        if column not in columns:
            columns.append(column)
        found[record["title"]][column].append(value(record))
    cells = {
        title: {column: (float(np.mean(v)), float(np.std(v, ddof=len(v) > 1)), len(v)) for column, v in row.items()}
        for title, row in found.items()
    }
    return columns, cells


def render(columns: Sequence[str], cells: Mapping[str, Mapping[str, Cell]], caption: str) -> str:
    """The table as Markdown, in per cent."""
    lines = [caption, "", "| method | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for title, row in cells.items():
        texts = [f"{100 * m:.1f} ± {100 * s:.1f} ({n})" if (m, s, n) else "" for m, s, n in _row(row, columns)]
        lines.append(f"| {title} | " + " | ".join(texts) + " |")
    return "\n".join(lines).replace("nan ± nan (0)", "–")


def _row(row: Mapping[str, Cell], columns: Sequence[str]) -> list[Cell]:
    return [row.get(column, (float("nan"), float("nan"), 0)) for column in columns]
