"""Exports that are no table: an ImageFolder tree, a Hugging Face data set, cleanlab's list of label issues."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError, some
from labelloop.export.decision import Decision, codes, spelled
from labelloop.export.table_files import ADDED, label_column
from labelloop.runs.files import fresh_folder
from labelloop.runs.labels import label_counts
from labelloop.runs.labels import noise_matrix as shares_of
from labelloop.runs.read import Run
from labelloop.trust import inside, single_name

HUB = "hf:"  # before a name on the hub

CORNER = {"true-noisy": "true \\ given", "cleanlab": "given \\ true"}  # says in the file what its rows and columns are


def new_places(files: list[str], rows: Mapping[str, int], decision: Decision) -> dict[str, str | None]:
    """The path of every file of an ImageFolder in the output, by its path in the input.

    An image that changes its class moves to the other folder, under a new name if its own is taken. A dropped image
    has no path. A file that is not a row of the run, such as a README, keeps its path.

    Args:
        files: The files of the input, as paths relative to it.
        rows: The row of each image among them.
        decision: What happens to every row.
    """
    places: dict[str, str | None] = {}
    moved = []
    for name in files:
        row = rows.get(name)
        if row is not None and decision.dropped[row]:
            places[name] = None
        elif row is not None and decision.relabelled[row]:
            moved.append((name, single_name(decision.final[row], "the class"), row))
        else:
            places[name] = name
    taken = set(places.values())
    for name, label, row in moved:
        old = PurePosixPath(name)
        inside = old.parts[1:] if old.parts[0] == str(decision.given[row]) else old.parts[-1:]
        places[name] = _free(PurePosixPath(label, *inside), f"from-{decision.given[row]}", taken)
    return places


def placed_by_label(files: list[str], decision: Decision) -> dict[str, str | None]:
    """The paths of the images of a table: a folder for each label. An image without a label has none."""
    taken: set[str | None] = set()
    places: dict[str, str | None] = {}
    for label in set(decision.final.tolist()) - {None}:
        single_name(label, "the class")
    for row, name in enumerate(files):
        label = decision.final[row]
        left_out = decision.dropped[row] or label is None
        places[name] = None if left_out else _free(PurePosixPath(str(label), PurePosixPath(name).name), str(row), taken)
    return places


def _free(wanted: PurePosixPath, mark: str, taken: set[str | None]) -> str:
    """Reserves the wanted name, or a similar one if that is taken."""
    place, count = wanted, 1
    while str(place) in taken:
        place = wanted.with_name(f"{wanted.stem}-{mark}{'' if count == 1 else f'-{count}'}{wanted.suffix}")
        count += 1
    taken.add(str(place))
    return str(place)


def write_tree(source: Path, places: Mapping[str, str | None], output: Path, copy: bool) -> None:
    """Builds the tree in a temporary folder, then moves it in one step."""
    gone = [name for name, place in places.items() if place is not None and not (source / name).is_file()]
    if gone:
        raise DataError(f"{source}: {len(gone)} images of the run are missing: {some(gone)}; put them back")
    put: Callable[[Any, Any], Any] = shutil.copy2 if copy else os.symlink
    with fresh_folder(output) as partial:
        for old, new in places.items():
            if new is not None:
                place = inside(partial, new, source)
                place.parent.mkdir(parents=True, exist_ok=True)
                put((source / old).resolve(), place)


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
    name = str(source).removeprefix(HUB)
    if on_hub(source) and os.path.lexists(name):  # the library would take it instead of the hub's
        raise DataError(f"{name} is a file or folder here; if the run was made from it, say so with --input {name}")
    try:
        data = datasets.load_dataset(name) if on_hub(source) else datasets.load_from_disk(name)
        for part in data.values() if isinstance(data, dict) else (data,):
            part.data.table.validate(full=True)  # a damaged file would end the process once it is looked at
    except Exception as error:  # every layer below raises its own kind of error
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
    label = label_column(data.column_names, len(data), run, source, replace)
    cells = list(data[label]) if label is not None else [None] * len(data)
    final = spelled(cells, decision, run.classes, f"{source}, column {label!r}")
    feature = data.features[label] if label is not None else None
    if replace:
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
    with fresh_folder(output) as partial:
        data.save_to_disk(str(partial))


def write_issues(run: Run, suffix: str, path: Path) -> None:
    """One row per input row: index, is_label_issue, label_score (low is bad), given_label, predicted_label."""
    names = ("is_label_issue", "label_score", "given_label", "predicted_label")
    table = pa.table({"index": np.arange(len(run.labels)), **{name: run.labels[name] for name in names}})
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pa_csv.write_csv(table, path, pa_csv.WriteOptions(quoting_style="needed"))


def noise_matrix(run: Run) -> NDArray[np.float64]:
    """The noise matrix: the share of each given label among the rows of each true class, T[true, given].

    Rows sum to 1. The true class comes from the corrected probabilities, so the matrix is only as good as they are.
    Rows without a given label and test rows do not count. A class without rows has a row of NaN.
    """
    return shares_of(label_counts(codes(run, "given_label"), run.targets, len(run.classes)))


def write_noise_matrix(run: Run, orientation: str, output: Path) -> None:
    """Writes it as CSV. "true-noisy" has a row for each true class; "cleanlab" is its transpose, columns sum to 1."""
    matrix = noise_matrix(run) if orientation == "true-noisy" else noise_matrix(run).T
    names = [str(label) for label in run.classes]
    with output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([CORNER[orientation], *names])
        for name, row in zip(names, matrix, strict=True):
            writer.writerow([name, *("" if np.isnan(value) else repr(float(value)) for value in row)])
