"""Stored runs: one line of JSON each in evidence/*.jsonl, small enough for a repository; and new runs beside them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labelloop.bench.tables import cell, cell_text, last, setting
from labelloop.errors import DataError

Record = Mapping[str, Any]


def expand(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored run as a record again, with one row per epoch."""
    stored["key"]  # everything used later must be there
    columns = dict(stored["history"])
    seconds = columns.pop("seconds", {})
    count = len(columns["epoch"])
    history = [{name: values[i] for name, values in columns.items()} for i in range(count)]
    for i, row in enumerate(history):
        row["seconds"] = {phase: values[i] for phase, values in seconds.items()}
    return {**stored, "title": stored["experiment"].get("name") or stored["experiment"]["method"], "history": history}


def read_evidence(folder: Path) -> dict[str, dict[str, Any]]:
    """All stored runs of a folder, by key.

    Raises:
        DataError: A line that is not a stored run, with file and line.
    """
    return {stored["key"]: expand(stored) for stored in read_evidence_lines(folder)}


def read_evidence_lines(folder: Path) -> list[dict[str, Any]]:
    """The same in their stored form."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                stored = json.loads(line)
                expand(stored)
                found.append(stored)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise DataError(
                    f"{path}, line {number} is not a stored run: {error!r}; take that file from the repository again"
                ) from None
    return found


def same_numbers(one: Record, other: Record) -> bool:
    """Whether two records of a run agree bit for bit, in labels, losses and accuracies."""
    histories = [
        [[row.get(name) for name in ("epoch", "loss", "test_accuracy")] for row in record["history"]]
        for record in (one, other)
    ]
    return histories[0] == histories[1] and one["noisy_labels_sha256"] == other["noisy_labels_sha256"]


def agreement(fresh: Mapping[str, Record], stored: Mapping[str, Record]) -> str:
    """A description of how far runs agree with stored runs of the same experiments, by their keys.

    Where numbers differ, the means over the common seeds are compared: they agree if they differ by no more than the
    standard deviation of the stored runs.
    """
    both = [key for key in fresh if key in stored]
    if not both:
        return "none of these runs is stored, so there is nothing to compare them with"
    equal = [key for key in both if same_numbers(fresh[key], stored[key])]
    text = f"{len(both)} of these {len(fresh)} runs are stored: {len(equal)} agree bit for bit"
    rows: dict[str, list[str]] = defaultdict(list)
    for key in both:
        rows[_all_but_seed(fresh[key])].append(key)
    differing = [keys for keys in rows.values() if not set(keys) <= set(equal)]
    apart = []
    for keys in differing:
        here, there = (cell([last(runs[key]) or 0.0 for key in keys]) for runs in (fresh, stored))
        if abs(here[0] - there[0]) > there[1]:
            apart.append(f"  {_words(fresh[keys[0]])}: {cell_text(here)} here, {cell_text(there)} stored")
    if differing:
        text += f"; of {len(differing)} means that differ, {len(differing) - len(apart)} agree within the"
        text += " spread over seeds after the last epoch"
    return "\n".join([text, *apart])


def _all_but_seed(record: Record) -> str:
    rest = {key: value for key, value in record["experiment"].items() if key not in ("seed", "name")}
    return json.dumps(rest, sort_keys=True, default=str)


def _words(record: Record) -> str:
    experiment = record["experiment"]
    return f"{experiment.get('name') or experiment['method']}, {experiment['dataset']}, {setting(experiment)}"
