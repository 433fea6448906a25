"""Makes a `Problem` from a table: rows with a clean label become the clean rows D^m, the others training rows."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.data.checks import check_columns, check_finite, check_ids, same_content, same_ids
from labelloop.data.classes import class_names_of, encode, text_of
from labelloop.data.table import Table, check_lengths
from labelloop.errors import DataError, some
from labelloop.types import MISSING, Labels, Problem, Rows


@dataclass(frozen=True)
class TableProblem:
    """A table, its labels as numbers, and the problem made of it.

    Attributes:
        table: The rows.
        classes: The classes in the user's type [C].
        given: Given labels [n], -1 where missing.
        clean_labels: Clean labels [n], -1 where missing; also of test rows.
        train: The positions of the training rows in the table [N].
        clean: The positions of the clean rows [M].
        problem: What a method may see.
    """

    table: Table
    classes: NDArray
    given: Labels
    clean_labels: Labels
    train: Labels
    clean: Labels
    problem: Problem


def make_problem(table: Table) -> TableProblem:
    """Numbers the classes and divides the rows.

    A row with a clean label is a clean row, and keeps its given label if it has one. Every other row is a training
    row. Test rows of `table.split` are neither.
    """
    check_lengths(table)
    classes = classes_of(table)
    given, clean_labels = encoded(table, classes)
    usable = table.usable if table.split is None else table.usable & (table.split != "test")
    clean = np.flatnonzero(usable & (clean_labels != MISSING))
    train = np.flatnonzero(usable & (clean_labels == MISSING))
    problem = Problem(
        train=_rows(table, train, given, clean_labels),
        clean=_rows(table, clean, given, clean_labels),
        class_names=text_of(classes),
    )
    return TableProblem(table, classes, given, clean_labels, train, clean, problem)


def held_out_rows(made: TableProblem) -> Rows | None:
    """The test rows of a table with a split, or None.

    If any of them has a clean label, only clean labels count and rows without one are not scored; otherwise the given
    labels count as true.
    """
    table = made.table
    if table.split is None or not (table.split == "test").any():
        return None
    index = np.flatnonzero(table.usable & (table.split == "test"))
    truth = made.clean_labels if (made.clean_labels[index] != MISSING).any() else made.given
    return _rows(table, index, made.given, truth)


def classes_of(table: Table) -> NDArray:
    """The classes of a table in order: those of its source, else the labels that occur."""
    try:
        return class_names_of(table.labels, table.clean_labels, table.class_names, table.markers)
    except DataError as error:
        raise DataError(f"{table.source}: {error}") from error


def encoded(table: Table, classes: NDArray) -> tuple[Labels, Labels]:
    """The given and the clean labels of a table as numbers, -1 where missing."""

    def numbers(labels: NDArray | None, what: str) -> Labels:
        if labels is None:
            return np.full(len(table), MISSING, dtype=np.int64)
        return encode(labels, classes, f"{table.source}: {what}", table.markers)

    return numbers(table.labels, "label"), numbers(table.clean_labels, "clean_label")


def _rows(table: Table, index: Labels, labels: Labels, clean_labels: Labels) -> Rows:
    extra = None if table.extra is None else table.extra[index]
    return Rows(table.inputs, index, labels[index], clean_labels[index], extra)


def check(data: TableProblem | Table, test: Table | None = None, allow_overlap: bool = False) -> None:
    """Refuses rows that cannot be trained on, and warns of doubtful ones.

    Args:
        data: The rows to train on.
        test: The test rows, if they are not in the table's own split.
        allow_overlap: Only warn of test rows with the input or the id of a clean row: different rows may have equal
            values in a few coarse columns, and two files may both number their rows from 0.

    Raises:
        DataError: Some rows cannot be used. The message names them and says what to do.

    Warns:
        UserWarning: A class has no clean row; or test rows are also among the training rows.
    """
    made = make_problem(data) if isinstance(data, Table) else data
    _check_table(made.table)
    check_finite(made.table.inputs, made.table.column_names, made.table.source)
    _check_labels(made.problem, made.table.source)
    rows = held_out_rows(made) if test is None else test
    if rows is not None:
        _check_test(made.table, made.problem, rows, allow_overlap)


def _check_table(table: Table) -> None:
    if table.ids_given:
        check_ids(table.ids, table.source)
    if table.extra is not None:
        names = [f"extra {j}" for j in range(table.extra.shape[1])]
        check_finite(table.extra, names, table.source, "extra columns")
    if table.labels is None and table.clean_labels is not None:
        raise DataError(f"{table.source}: clean labels, but no given labels to correct; name them with label_column")


FEW_CLASSES = 20  # up to this many are classes, however few rows there are
SEVERAL = ("|", ";", ",", "/", "+", "&")  # between labels in one cell
AROUND = " []{}()'\""  # them, where a list was written as text
# Other programs write missing labels like this, but they may be names (NA is a country), so this only warns.
PERHAPS_MISSING = {
    *("NA", "N/A", "n/a", "#N/A", "NULL", "null", "?", "-", "--", "."),
    *("missing", "unlabeled", "unlabelled", "unsure", "TBD", "tbd"),
}


def _check_labels(problem: Problem, source: str) -> None:
    names = problem.class_names
    noisy = problem.train.labels[problem.train.labels != MISSING]
    clean = problem.clean.clean_labels
    verified = np.bincount(clean, minlength=len(names))  # [C]
    if not len(clean):
        raise DataError(f"{source}: no clean rows: no row has a clean_label; verify the labels of some rows")
    if not len(noisy):
        raise DataError(f"{source}: no noisy row: nothing to correct; add rows with a label and no clean_label")
    occurring = np.flatnonzero(verified + np.bincount(noisy, minlength=len(names)))
    if len(occurring) < 2:
        raise DataError(
            f"{source}: only one class, {names[occurring[0]]!r}, occurs in the labels; a classifier needs two or more"
            " (blank, NaN, None and -1 mean a missing label, so -1 cannot be a class)"
        )
    _check_classes(names, len(noisy) + len(clean), source)
    if strange := sorted(PERHAPS_MISSING & set(names)):
        hint = "is used as a class name; if it means that the label is missing, leave it blank"
        warnings.warn(f"{source}: {some(strange)} {hint}", stacklevel=3)
    if (verified == 0).any():
        counts = some((f"{name} {count}" for name, count in zip(names, verified, strict=True)), 20)
        absent = some(names[k] for k in np.flatnonzero(verified == 0))
        warnings.warn(
            f"{source}: {(verified == 0).sum()} of {len(names)} classes have no clean row ({absent}), so nothing"
            " shows whether labels that move to or away from them are right; verify some of their rows. Clean rows of"
            f" each class: {counts}",
            stacklevel=3,
        )


def _check_classes(names: Sequence[str], rows: int, source: str) -> None:
    """Refuses a column of nearly as many classes as rows, and names classes that are several labels in one."""
    if len(names) > FEW_CLASSES and len(names) > rows / 2:
        raise DataError(
            f"{source}: {len(names)} classes in {rows} labelled rows, such as {some(map(repr, names[:3]))}: these are"
            " ids, texts or measurements, not classes; name another column with label_column"
        )
    for mark in SEVERAL:
        parts = {name: [part for part in (p.strip(AROUND) for p in name.split(mark)) if part] for name in names}
        counts = Counter(part for some_parts in parts.values() for part in some_parts)
        joined = [name for name in names if len(parts[name]) > 1 and all(counts[part] > 1 for part in parts[name])]
        if joined:
            warnings.warn(
                f"{source}: {len(joined)} of {len(names)} classes look like several labels in one"
                f" ({some(map(repr, joined), 3)}); every combination is a class, because each row has one label; if"
                " that is not what you want, split them into a column for each label",
                stacklevel=4,
            )
            return


def _comparable_ids(*tables: Table) -> list[NDArray]:
    """The ids of a table; image names include their folder, because train/cat/1.png is not test/cat/1.png."""
    folders = [_folder_of_ids(table.origin or {}) for table in tables]
    if None in folders:
        return [table.ids for table in tables]
    return [np.char.add(f"{folder}/", table.ids) for folder, table in zip(folders, tables, strict=True)]


def _folder_of_ids(origin: Mapping[str, Any]) -> Path | None:
    """The folder of the images, if the ids are names of images."""
    if origin.get("kind") not in ("image-folder", "image-table") or origin["id_column"] is not None:
        return None
    place = Path(origin["path"]).resolve()
    return place if origin["kind"] == "image-folder" else place.parent


def _check_test(table: Table, problem: Problem, test: Table | Rows, allow_overlap: bool) -> None:
    """Refuses test rows among the clean rows, which choose the corrections; warns of those among the noisy rows."""
    source, test_source, positions = table.source, table.source, np.arange(len(test))
    seen: set[int] = set()  # test rows that are also training rows
    comparisons: list[tuple[str, Callable[[NDArray, NDArray], tuple[Labels, Labels]], NDArray, NDArray]] = []
    if isinstance(test, Rows):
        positions = test.index
    else:
        test_source = test.source
        check_lengths(test)
        check_finite(test.inputs, test.column_names, test_source)
        if test.ids_given:
            check_ids(test.ids, test_source)
        check_columns(table.column_names, test.column_names, test_source)
        if table.ids_given and test.ids_given:
            test_ids, ids = _comparable_ids(test, table)
            comparisons.append(("test rows have the same id as a clean row", same_ids, test_ids, ids))
    if isinstance(test.inputs, np.ndarray) and isinstance(table.inputs, np.ndarray):
        alike = "test rows have the same input as a clean row"
        comparisons.append((alike, same_content, test.inputs[positions], table.inputs))
    for what, same, of_test, of_table in comparisons:
        theirs, ours = same(of_test, of_table[problem.clean.index])
        if len(theirs):
            named = f" ({some(of_test[theirs])})" if same is same_ids else ""
            message = (
                f"{len(theirs)} {what}{named}: rows {some(positions[theirs])} of"
                f" {test_source}, clean rows {some(problem.clean.index[ours])} of {source} (the first row is 0)"
            )
            if not allow_overlap:
                raise DataError(f"{message}; remove them from one side, or use allow_overlap if the rows differ")
            warnings.warn(message, stacklevel=3)
        seen.update(same(of_test, of_table[problem.train.index])[0].tolist())
    if seen:
        warnings.warn(
            f"{len(seen)} of {len(test)} test rows are also among the noisy training rows (test rows"
            f" {some(positions[sorted(seen)])} of {test_source}; the first row is 0), so test accuracy is too"
            " optimistic; remove them from the training rows",
            stacklevel=3,
        )
