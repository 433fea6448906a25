"""Run folders made by hand: the input is read as `fit` reads it, and the corrections are what a test wants."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labelloop.data.problem import classes_of, encoded
from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.table import Table
from labelloop.runs.folder import RunFolder
from labelloop.runs.labels import label_table
from labelloop.runs.run_json import RunRecord, data_record


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str


def made_run(data: Path, folder: Path, corrected: dict[int, tuple[str, float]], **columns: object) -> Path:
    """A finished run on a file in which some rows are corrected: row -> (class, confidence). Others agree, at 0.75."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that are no features
        table = read_table(data, ReadOptions(**columns))  # type: ignore[arg-type]
    return run_of(table, folder, corrected)


def run_of(table: Table, folder: Path, corrected: dict[int, tuple[str, float]]) -> Path:
    classes = classes_of(table)
    given, clean = encoded(table, classes)
    names = [str(name) for name in classes]
    targets = np.zeros((len(table), len(classes)), np.float32)
    for row in range(len(table)):
        name, sure = corrected.get(row, (names[max(given[row], 0)], 0.75))
        if clean[row] >= 0:
            name, sure = names[clean[row]], 1.0
        targets[row] = (1 - sure) / (len(classes) - 1)
        targets[row, names.index(name)] = sure
    if table.split is not None:
        targets[table.split == "test"] = np.nan
    run = RunFolder(folder)
    run.write_labels(label_table(table.ids, classes.tolist(), given, clean, targets, given))
    run.write_targets(targets)
    assert table.origin is not None
    source = {**table.origin, "class_names": names}
    run.write_record(RunRecord(data=data_record(table.source, names, given, clean), source=source, state="finished"))
    return folder
