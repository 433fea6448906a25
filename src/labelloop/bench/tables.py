"""Tables of runs, from their records: methods down, settings across, mean and spread over seeds.

Runs share a cell only if they differ in nothing but the seed: where titles or settings are equal, the keys that differ
are added to them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from labelloop.config.build import flat

Cell = tuple[float, float, int]  # mean, standard deviation, number of seeds
Record = Mapping[str, Any]

OF_A_ROW = ("method", "recipe", "paired", "config")
OF_A_COLUMN = ("dataset", "dataset_options", "clean", "noise_options")
WITHOUT_RATE = ("none", "recorded", "matrix", "file")  # the requested rate does not set theirs


def last(record: Record, key: str = "test_accuracy") -> float | None:
    """A number of the last epoch, or None."""
    return record["history"][-1].get(key)


def best(record: Record, key: str = "test_accuracy") -> float | None:
    """The maximum over the epochs of the last stage: for test accuracy, the paper's "Best", which selects on test data.

    If a method first trains a network that it discards, the epochs of that network do not count.
    """
    stage = record["history"][-1].get("stage")
    rows = [row for row in record["history"] if row.get("stage") == stage]
    return max((row[key] for row in rows if row.get(key) is not None), default=None)


def setting(experiment: Mapping[str, Any]) -> str:
    """The noise of an experiment in a few words."""
    if experiment["noise"] in WITHOUT_RATE:
        return f"{experiment['noise']} {experiment['noise_options'].get('key', '')}".strip()
    return f"{experiment['noise']} {experiment['rate']:g}"


def table(
    records: Iterable[Record], value: Callable[[Any], float | None] = last
) -> tuple[list[str], dict[str, dict[str, Cell]]]:
    """The columns with their realised noise rates, and for every method a cell for each column with runs."""
    records = list(records)
    rows = _told_apart(records, [record["title"] for record in records], OF_A_ROW)
    columns = _told_apart(records, [setting(record["experiment"]) for record in records], OF_A_COLUMN)
    columns = _with_realised_rates(records, columns)
    found: dict[str, dict[str, list[float]]] = {row: defaultdict(list) for row in rows}
    for record, row, column in zip(records, rows, columns, strict=True):
        number = value(record)
        if number is not None:
            found[row][column].append(number)
    cells = {row: {column: cell(numbers) for column, numbers in line.items()} for row, line in found.items()}
    return list(dict.fromkeys(columns)), cells


def cell(numbers: Sequence[float]) -> Cell:
    return float(np.mean(numbers)), float(np.std(numbers, ddof=len(numbers) > 1)), len(numbers)


def render(columns: Sequence[str], cells: Mapping[str, Mapping[str, Cell]], caption: str) -> str:
    """The table as Markdown, in per cent."""
    lines = [caption, "", "| method | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for row, line in cells.items():
        texts = [cell_text(line[column]) if column in line else "–" for column in columns]
        lines.append(f"| {row} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def cell_text(of: Cell) -> str:
    """A cell in per cent."""
    mean, deviation, seeds = of
    spread = f" ± {100 * deviation:.1f}" if seeds > 1 else ""  # one seed says nothing about the spread
    return f"{100 * mean:.1f}{spread} ({seeds})"


def _told_apart(records: Sequence[Record], names: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The names, followed by the keys of the experiment that differ among records of the same name."""
    texts = [_texts(record["experiment"], keys) for record in records]
    counts: dict[str, int] = Counter(names)
    alike: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for name, text in zip(names, texts, strict=True):
        alike[name].update(text.items())
    apart = []
    for name, text in zip(names, texts, strict=True):
        differing = [f"{key} {value}" for key, value in text.items() if alike[name][key, value] < counts[name]]
        apart.append(", ".join([name, *differing]))
    return apart


def _texts(experiment: Mapping[str, Any], keys: Sequence[str]) -> dict[str, str]:
    """Keys of an experiment as text. Tables among them are flattened: warm_up, corrector.hidden."""
    found: dict[str, Any] = {}
    for key in keys:
        value = experiment.get(key)
        found |= flat(value) if isinstance(value, Mapping) else {key: value}
    return {key: str(value) for key, value in found.items()}


def _with_realised_rates(records: Sequence[Record], columns: Sequence[str]) -> list[str]:
    """The columns, each with its realised noise rate over the seeds."""
    rates: dict[str, dict[int, float]] = defaultdict(dict)
    for record, column in zip(records, columns, strict=True):
        if record.get("realised_rate") is not None:
            rates[column][record["experiment"]["seed"]] = record["realised_rate"]
    realised = {column: f"{column} (realised {np.mean(list(seeds.values())):.3f})" for column, seeds in rates.items()}
    return [realised.get(column, column) for column in columns]
