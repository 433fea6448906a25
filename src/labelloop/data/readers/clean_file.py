"""Reads a file of clean labels, in any format, and joins them to known rows: one reader for every command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelloop.data.checks import check_ids
from labelloop.data.classes import class_names_of, decode, encode, markers_beside, typed
from labelloop.data.columns import (
    CLEAN_NAMES,
    FILE_NAMES,
    GIVEN_NAME,
    ID_NAMES,
    LABEL_IF_NO_OTHER,
    LABEL_NAMES,
    ROW_NAMES,
    guess,
)
from labelloop.data.problem import encoded
from labelloop.data.readers.array_file import CLEAN_KEYS, ID_KEYS, LABEL_KEYS, read_array, read_arrays
from labelloop.data.readers.arrow_file import as_text, open_columns
from labelloop.data.readers.csv_file import ending_of
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError, some
from labelloop.types import MISSING, Labels

FORMATS = "id (or file_name) and clean_label"


@dataclass(frozen=True)
class KnownRows:
    """The rows that clean labels are joined to.

    Attributes:
        source: Where they came from, for messages.
        ids: The id of every row, as text [n].
        ids_given: Whether these are the user's ids, not row numbers.
        given: The given labels [n], -1 where missing.
        classes: The classes in order [C].
        id_columns: The name of the id column in the source.
        in_order: Whether the rows have no names but a fixed order, like those of an array.
    """

    source: str
    ids: NDArray
    ids_given: bool
    given: Labels
    classes: NDArray
    id_columns: tuple[str, ...] = ()
    in_order: bool = False


@dataclass(frozen=True)
class _CleanFile:
    """A file of clean labels: labels with ids, with row numbers and given labels, or in row order."""

    labels: NDArray
    column: str
    ids: NDArray | None = None
    rows: NDArray | None = None
    given: NDArray | None = None


def join_clean_file(table: Table, path: Path) -> Table:
    """The table with the clean labels of a file.

    Raises:
        DataError: Unknown or repeated ids, other classes, or contradictory labels.
    """
    path = Path(path)
    origin = dict(table.origin or {})
    if origin:
        origin["options"] = {**origin["options"], "clean_file": str(path.absolute())}
    if path.suffix.lower() == ".npy" and origin.get("kind") in ("npy", "npz") and table.clean_labels is None:
        clean_labels = _one_for_every_row(path, read_array(path), table.source, len(table))
        return replace(table, clean_labels=clean_labels, origin=origin)  # which may name further classes
    classes = class_names_of(table.labels, table.clean_labels, table.class_names, table.markers)
    given, merged = encoded(table, classes)
    known = KnownRows(
        source=table.source,
        ids=table.ids,
        ids_given=table.ids_given or origin.get("kind") == "hf-dataset",  # whose rows have a fixed order
        given=given,
        classes=classes,
        id_columns=tuple(name for name in (origin.get("id_column"), origin.get("file_name_column")) if name),
        in_order=origin.get("kind") in ("npy", "npz"),
    )
    found = read_clean_labels(path, known)
    clash = np.flatnonzero((merged != MISSING) & (found != MISSING) & (merged != found))
    if len(clash):
        raise DataError(
            f"{path}: its clean labels differ from those in {table.source} for {some(table.ids[clash])}; correct one"
        )
    merged = np.where(found == MISSING, merged, found)
    like = table.labels if table.labels is not None else table.clean_labels
    clean = decode(merged, classes, None if like is None else like.dtype)
    return replace(table, clean_labels=clean, origin=origin or None)


def read_clean_labels(path: Path, known: KnownRows) -> Labels:
    """The clean labels of a file, as numbers in the order of the known rows [n], -1 where it has none.

    A file has the columns, or arrays, id (or file_name) and clean_label (or label). Rows without ids are matched by
    their number, in a column `row`, if the file also has their given labels, as `labelloop plan` writes it: only these
    show that the numbers belong to the same rows. An array without ids must have the same length.

    Raises:
        DataError: Unknown or repeated ids, other classes, other given labels, or no labels.
    """
    file = _read(path, known)
    markers = markers_beside(known.classes)
    filled = np.flatnonzero(~typed(file.labels, markers=markers)[1])
    if not len(filled):
        raise DataError(f"{path}: no clean_label is filled in; fill in the clean label of each row you checked")
    if file.ids is not None:
        place = _by_id(path, file.ids, known)
    elif file.rows is not None:
        place = _by_row(path, file.rows, file.given, known)
    elif known.in_order:
        place = np.arange(len(_one_for_every_row(path, file.labels, known.source, len(known.ids))))
    else:
        raise UsageError(f"{path}: labels without ids go with an .npy or .npz file; give them the columns {FORMATS}")
    values = _respelled(file.labels, known.classes)
    labels = np.full(len(known.ids), MISSING, dtype=np.int64)
    labels[place[filled]] = encode(values, known.classes, f"{path}: {file.column}", markers)[filled]
    return labels


def _respelled(values: NDArray, names: NDArray) -> NDArray:
    """Texts as names spell them: pandas writes 3.0 for 3 where a label is missing, and a formula may be escaped."""
    if values.dtype.kind != "U":
        return values
    names = names.astype(str)
    for bare in ([text.removesuffix(".0") for text in values], [text.removeprefix("'") for text in values]):
        values = np.where(np.isin(values, names) | ~np.isin(bare, names), values, bare)
    return values


def _by_id(path: Path, ids: NDArray, known: KnownRows) -> Labels:
    if not known.ids_given:
        raise UsageError(
            f"{known.source}: a clean file is joined by id, but these rows have none; name id_column, or use the file"
            " that `labelloop plan` writes"
        )
    ids = _respelled(ids, known.ids)
    check_ids(ids, str(path))
    place = {name: row for row, name in enumerate(known.ids.tolist())}
    blank = np.flatnonzero(ids == "")
    if len(blank):
        raise DataError(f"{path}: no id in row {some(blank)} (the first row is 0); fill it in, or leave the row out")
    strange = [name for name in ids.tolist() if name not in place]
    if strange:
        raise DataError(
            f"{path}: {len(strange)} of {len(ids)} ids are not in {known.source}: {some(strange)} (there they look"
            f" like {known.ids[0]}); write both alike, or leave those rows out"
        )
    return np.array([place[name] for name in ids.tolist()], dtype=np.int64)


def _by_row(path: Path, rows: NDArray, given: NDArray | None, known: KnownRows) -> Labels:
    if given is None:
        raise UsageError(
            f"{path}: rows are identified only by number, and may not be those of {known.source}; give them ids"
            " (id_column), or keep the column given_label that `labelloop plan` writes"
        )
    bad = [text for text in rows.tolist() if not text.isdecimal() or int(text) >= len(known.ids)]
    if bad:
        raise DataError(f"{path}: {some(bad)} is not a row of {known.source}, which has {len(known.ids)}; correct it")
    check_ids(rows, str(path))
    place = rows.astype(np.int64)
    there = np.append(known.classes.astype(str), "")[known.given[place]]  # -1 indexes the last one
    missing = typed(given, markers=markers_beside(known.classes))[1]
    other = np.flatnonzero(there != np.where(missing, "", given))
    if len(other):
        row = other[0]
        raise DataError(
            f"{path}: its given labels are not those of {known.source}: row {place[row]} has {given[row]!s} here and"
            f" {there[row]!s} there ({len(other)} such rows); it was made for other rows"
        )
    return place


def _one_for_every_row(path: Path, labels: NDArray, source: str, count: int) -> NDArray:
    if labels.shape != (count,):
        raise DataError(
            f"{path}: clean labels of shape {labels.shape} for the {count} rows of {source}; give one for every row,"
            " -1 or a blank where there is none"
        )
    return labels


def _read(path: Path, known: KnownRows) -> _CleanFile:
    ending = ending_of(path)
    if ending == ".npy":
        return _CleanFile(read_array(path), "clean_label")
    if ending == ".npz":
        found = read_arrays(path, (*CLEAN_KEYS, *LABEL_KEYS, *ID_KEYS))
        key = next((key for key in (*CLEAN_KEYS, *LABEL_KEYS) if key in found), None)
        if key is None:
            raise DataError(f"{path}: no array of labels; a clean file has the arrays id and clean_label")
        ids = next((found[key].astype(str) for key in ID_KEYS if key in found), None)
        return _CleanFile(found[key], f"array {key!r}", ids)
    opened = open_columns(path)
    names, source = opened.names, str(path)
    row_name = guess(names, ROW_NAMES, "", source)
    id_name = next((name for name in (*known.id_columns, "id") if name in names), None)
    if id_name is None and (known.ids_given or row_name is None):
        id_name = guess(names, (*ID_NAMES, *FILE_NAMES), "", source)
    row_name = None if id_name is not None else row_name
    label_name = guess(names, CLEAN_NAMES, "", source) or guess(names, (*LABEL_NAMES, *LABEL_IF_NO_OTHER), "", source)
    if (id_name is None and row_name is None) or label_name is None:
        what = "labels" if label_name is None else "ids"
        raise DataError(f"{path}: no column of {what} among {', '.join(names)}; a clean file has {FORMATS}")
    arrow = opened.read(names, ())
    given_name = GIVEN_NAME if GIVEN_NAME in names and label_name != GIVEN_NAME else None
    columns = (None if name is None else as_text(arrow, name) for name in (id_name, row_name, given_name))
    return _CleanFile(as_text(arrow, label_name), f"column {label_name!r}", *columns)
