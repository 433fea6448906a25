"""Verified labels in a file of their own, joined to a table by id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from labelloop.data.checks import check_ids
from labelloop.data.classes import class_names_of, decode, encode
from labelloop.data.columns import CLEAN_NAMES, FILE_NAMES, ID_NAMES, LABEL_IF_NO_OTHER, LABEL_NAMES, guess
from labelloop.data.problem import encoded
from labelloop.data.readers.read import read_text_columns
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError, some
from labelloop.types import MISSING


def join_clean_file(table: Table, path: Path) -> Table:
    """The table with the verified labels of a file: columns id (or file_name) and clean_label (or label).

    Raises:
        DataError: Ids that the table does not have or that occur twice, other classes, or labels that contradict.
    """
    if not table.ids_given and (table.origin or {}).get("kind") != "hf-dataset":  # whose rows have a fixed order
        raise UsageError(f"{table.source}: a clean file is joined by id, and these rows have none; name id_column")
    names, read = read_text_columns(path)
    own = [(table.origin or {}).get(key) for key in ("id_column", "file_name_column")]
    id_name = next((n for n in own if n in names), None) or guess(names, (*ID_NAMES, *FILE_NAMES), "", str(path))
    label_name = guess(names, CLEAN_NAMES, "", str(path)) or guess(
        names, (*LABEL_NAMES, *LABEL_IF_NO_OTHER), "", str(path)
    )
    if id_name is None or label_name is None:
        raise DataError(
            f"{path}: no column of {'ids' if id_name is None else 'labels'}; a clean file has the columns id (or"
            f" file_name) and clean_label, and here are {', '.join(names)}"
        )
    ids, texts = read(id_name), read(label_name)
    check_ids(ids, str(path))
    place = {name: row for row, name in enumerate(table.ids.tolist())}
    strange = [name for name in ids.tolist() if name not in place]
    if strange:
        raise DataError(
            f"{path}: {len(strange)} of {len(ids)} ids are not in {table.source}: {some(strange)} (there they look like"
            f" {table.ids[0]}); write both alike, or leave those rows out"
        )
    classes = class_names_of(table.labels, table.clean_labels, table.class_names)
    found = encode(texts, classes, f"{path}: column {label_name!r}")
    rows = np.array([place[name] for name in ids.tolist()], dtype=np.int64)
    merged = encoded(table, classes)[1]
    clash = rows[(merged[rows] != MISSING) & (found != MISSING) & (merged[rows] != found)]
    if len(clash):
        raise DataError(f"{path}: other clean labels than {table.source} for {some(table.ids[clash])}; correct one")
    merged[rows] = np.where(found == MISSING, merged[rows], found)
    like = table.labels if table.labels is not None else table.clean_labels
    origin = None if table.origin is None else dict(table.origin)
    if origin is not None:
        origin["options"] = {**origin["options"], "clean_file": str(path.absolute())}
    clean = decode(merged, classes, None if like is None else like.dtype)
    return replace(table, clean_labels=clean, origin=origin)
