"""A Hugging Face data set on disk with the corrected label, with the same ClassLabel as the given one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.errors import DataError, UsageError
from labelloop.export.decision import Decision, spelling
from labelloop.export.table_files import ADDED
from labelloop.runs.read import Run

HUB = "hf:"  # before a name on the hub


def on_hub(source: Path) -> bool:
    return str(source).startswith(HUB)


def corrected_dataset(run: Run, source: Path, decision: Decision, replace: bool) -> Any:
    """The data set of a run's input, with the label replaced or columns added, and dropped rows left out.

    The splits that the run did not correct are kept, with the same columns and their given labels.
    """
    try:
        import datasets
    except ImportError:
        raise UsageError("--to hf needs the `datasets` package; install it: pip install 'labelloop[hub]'") from None
    try:
        name = run.source["path"]
        data = datasets.load_dataset(name.removeprefix(HUB)) if on_hub(source) else datasets.load_from_disk(name)
    except (OSError, ValueError) as error:
        raise DataError(f"{source} cannot be read as a data set ({error}); save it again") from None
    if not isinstance(data, datasets.DatasetDict):
        return _corrected(data, run, source, decision, replace)
    split = run.source["options"].get("split")
    if split not in data:
        raise DataError(f"{source} has the splits {', '.join(data)}, and the run does not say which; run it again")
    corrected = _corrected(data[split], run, source, decision, replace)
    for name in data:
        if name != split and not replace and data[name].features == data[split].features:
            data[name] = _as_given(data[name], run.source["label_column"], corrected.features)
    data[split] = corrected
    return data


def _as_given(data: Any, label: str | None, features: Any) -> Any:
    """A split that the run did not correct, with the columns of the corrected one."""
    rows = len(data)
    given = [None] * rows if label is None else list(data[label])
    for name, values in zip(ADDED, (given, [None] * rows, [False] * rows), strict=True):
        data = data.add_column(name, values, feature=features[name])
    return data


def _corrected(data: Any, run: Run, source: Path, decision: Decision, replace: bool) -> Any:
    if len(data) != len(run.labels):
        raise DataError(
            f"{source} has {len(data)} rows, but the run has {len(run.labels)}; run it again on this data set"
        )
    label = run.source["label_column"]
    taken = [name for name in ADDED if name in data.column_names]
    if taken and not replace:
        raise UsageError(f"{source} already has a column {taken[0]!r}; use --replace, or rename it and run again")
    cells = list(data[label]) if label is not None else [None] * len(data)
    spelled = spelling(cells, decision, run.classes, f"{source}, column {label!r}")
    final = [None if value is None else spelled[value] for value in decision.final]
    feature = data.features[label] if label is not None else None
    if replace:
        if label is None:
            raise UsageError(f"{source} has no label column to replace; leave out --replace")
        names = data.column_names
        values = [new if is_new else old for old, new, is_new in zip(cells, final, decision.relabelled, strict=True)]
        data = data.remove_columns(label).add_column(label, values, feature=feature).select_columns(names)
    else:
        confidence = [None if np.isnan(value) else float(value) for value in decision.confidence]
        data = data.add_column(ADDED[0], final, feature=feature)
        data = data.add_column(ADDED[1], confidence).add_column(ADDED[2], decision.changed.tolist())
    return data.select(np.flatnonzero(~decision.dropped))


def write_dataset(data: Any, output: Path) -> None:
    """Saves it in a temporary folder, then moves it in one step."""
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        data.save_to_disk(str(partial))
        partial.rename(output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
