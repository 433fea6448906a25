"""Which columns of an Arrow table are features, and their numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelloop.data.checks import check_columns
from labelloop.data.columns import EMBEDDING_NAMES, NEVER_FEATURES, Roles, are_array_names, names_of_array, require
from labelloop.data.csv_file import NULL_NUMBERS, is_number
from labelloop.data.table import to_float32
from labelloop.errors import DataError, some
from labelloop.types import Floats

ALMOST_ALL = 0.9  # a text column with this share of numbers is a column of numbers with a slip in it


def features_of(
    arrow: pa.Table,
    roles: Roles,
    path: Path,
    feature_columns: Sequence[str] | None,
    embedding_column: str | None,
) -> tuple[list[str], Floats]:
    """The names of the features and the features [n, D], as `read_table` describes."""
    names = arrow.column_names
    expected = None
    if feature_columns is not None and are_array_names(feature_columns) and feature_columns[0] not in names:
        # Columns known only by number: those of an embedding column, whatever its name is here.
        expected, feature_columns = feature_columns, None
    for name in (*(feature_columns or ()), *([embedding_column] if embedding_column else [])):
        require(name, names, str(path))
        if name in roles.used:
            raise DataError(f"{path}: column {name!r} is a feature and has another use too; name it once")
    if embedding_column is None and feature_columns is None:
        embedding_column = _guessed_embedding(arrow, roles, path)
    parts: list[Floats] = []
    chosen: list[str] = []
    if embedding_column is not None:
        embedding = _embedding(arrow[embedding_column], embedding_column, path)
        parts.append(embedding)
        chosen += names_of_array(embedding_column, embedding.shape[1])
    elif feature_columns is None:
        feature_columns = _default_features(arrow, roles, path)
    if feature_columns:
        parts.append(numbers(arrow, feature_columns, path))
        chosen += feature_columns
    if not parts:
        raise DataError(f"{path}: no features are named; name at least one column")
    if expected is not None:
        check_columns(expected, chosen, str(path))
    return chosen, parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _guessed_embedding(arrow: pa.Table, roles: Roles, path: Path) -> str | None:
    lists = [name for name in arrow.column_names if name not in roles.used and _is_list(arrow[name].type)]
    known = [name for name in lists if name in EMBEDDING_NAMES] or lists
    if len(known) > 1:
        raise DataError(
            f"{path}: {' and '.join(map(repr, known))} could both be meant; say which with embedding_column"
        )
    return known[0] if known else None


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_numeric(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    )


def _embedding(column: pa.ChunkedArray, name: str, path: Path) -> Floats:
    """A column of lists as an array [n, D]."""
    if not _is_list(column.type) or not _is_numeric(column.type.value_type):
        raise DataError(
            f"{path}: column {name!r} is of type {column.type}, not lists of numbers; save embeddings as a list column"
            " of a Parquet file or as an array of an .npz file"
        )
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise DataError(f"{path}: column {name!r} has no embedding in row {row} (the first row is 0); leave it out")
    widths = pc.list_value_length(column).to_numpy()
    other = np.flatnonzero(widths != widths[0])
    if len(other):
        raise DataError(
            f"{path}: column {name!r} has {widths[0]} numbers in row 0 and {widths[other[0]]} in row {other[0]};"
            " every embedding needs the same number"
        )
    flat = pc.list_flatten(column).cast(pa.float64()).to_numpy()  # [n * D]
    return to_float32(flat.reshape(len(column), int(widths[0])))


def _default_features(arrow: pa.Table, roles: Roles, path: Path) -> list[str]:
    """Every column of numbers without another use. What is left out is said, so that no column gets lost in silence."""
    chosen, left_out = [], []
    for name in arrow.column_names:
        column = arrow[name]
        if name in roles.used:
            continue
        if name in NEVER_FEATURES:
            left_out.append(f"{name!r} (by its name a label, an id or a row number)")
        elif _is_numeric(column.type):
            chosen.append(name)
        else:
            _refuse_slip(column, name, path)
            left_out.append(f"{name!r} ({'empty' if pa.types.is_null(column.type) else 'not numbers'})")
    if not chosen:
        raise DataError(
            f"{path}: no column of numbers to learn from"
            + (f"; left out: {some(left_out)}" if left_out else "")
            + "; features are numbers or one embedding column"
        )
    if left_out:
        warnings.warn(
            f"{path}: not among the features: {some(left_out)}; choose them with feature_columns", stacklevel=4
        )
    return chosen


def _refuse_slip(column: pa.ChunkedArray, name: str, path: Path) -> None:
    """Refuses a text column that is nearly all numbers: leaving it out would hide the slip."""
    if not pa.types.is_string(column.type):
        return
    written = [value for value in column.to_pylist() if value is not None and value.strip() not in NULL_NUMBERS]
    if written and sum(map(is_number, written)) >= ALMOST_ALL * len(written):
        numbers(pa.table({name: column}), [name], path)


def numbers(arrow: pa.Table, names: Sequence[str], path: Path) -> Floats:
    """Columns as float32 [n, D], NaN where blank."""
    values = np.empty((arrow.num_rows, len(names)), dtype=np.float32)
    for j, name in enumerate(names):
        column = arrow[name]
        if pa.types.is_null(column.type):
            values[:, j] = np.nan
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            values[:, j] = _numbers_from_text(column, name, path)
        elif _is_numeric(column.type):
            values[:, j] = to_float32(column.cast(pa.float64(), safe=False).to_numpy())
        else:
            raise DataError(
                f"{path}: column {name!r} is of type {column.type}, not numbers (row 0 holds {column[0]}); leave it out"
                " of the features or turn it into numbers"
            )
    return values


def _numbers_from_text(column: pa.ChunkedArray, name: str, path: Path) -> NDArray:
    texts = [value.strip() for value in column.fill_null("").to_pylist()]
    for row, text in enumerate(texts):
        if text not in NULL_NUMBERS and not is_number(text):
            raise DataError(
                f"{path}: column {name!r} is not numbers: row {row} holds {text!r} (the first row is 0); correct it,"
                " or leave the column out of the features"
            )
    return np.array([np.nan if text in NULL_NUMBERS else float(text) for text in texts])
