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
from labelloop.data.columns import (
    EMBEDDING_NAMES,
    NEVER_FEATURES,
    Roles,
    are_array_names,
    names_of_array,
    plain,
    require,
)
from labelloop.data.encoding import Column, encode_columns, fit_category, fit_number, unusable
from labelloop.data.table import to_float32
from labelloop.data.written import NULL_NUMBERS, is_number
from labelloop.errors import DataError, some
from labelloop.types import Floats

ALMOST_ALL = 0.9  # a text column with this share of numbers is a column of numbers with a slip in it


def features_of(
    arrow: pa.Table,
    roles: Roles,
    path: Path,
    feature_columns: Sequence[str] | None,
    embedding_column: str | None,
    train: NDArray[np.bool_],
    encoding: Sequence[Column] | None = None,
    as_they_are: bool = False,
) -> tuple[list[str], Floats, tuple[Column, ...]]:
    """The names of the features, the features [n, D], and how named columns became numbers.

    Args:
        arrow: The rows.
        roles: The columns that are not features.
        path: For messages.
        feature_columns: As for `read_table`. Likewise `embedding_column`, `encoding` and `as_they_are`.
        embedding_column: See there.
        train: Masks the rows that the encoding is fitted on [n].
        encoding: See there.
        as_they_are: See there.
    """
    names = arrow.column_names
    expected = None
    if encoding is not None:
        feature_columns = [column.name for column in encoding]
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
    fitted: Sequence[Column] = ()
    if embedding_column is not None:
        embedding = _embedding(arrow[embedding_column], embedding_column, path)
        parts.append(embedding)
        chosen += names_of_array(embedding_column, embedding.shape[1])
    if as_they_are and feature_columns:
        parts.append(numbers(arrow, feature_columns, path))
        chosen += feature_columns
    elif feature_columns or (feature_columns is None and embedding_column is None):
        if encoding is not None:
            fitted = encoding
            raw = {c.name: _raw(arrow, c.name, path, as_text=c.kind == "category") for c in encoding}
        elif feature_columns is not None:
            raw, fitted = _fit_named(arrow, feature_columns, path, train)
        else:
            raw, fitted = _fit_default(arrow, roles, path, train)
        encoded_names, values, remarks = encode_columns(fitted, raw)
        for remark in remarks:
            warnings.warn(f"{path}: column {remark}", stacklevel=4)
        parts.append(values)
        chosen += encoded_names
    if not parts:
        raise DataError(f"{path}: no features are named; name at least one column")
    if expected is not None:
        check_columns(expected, chosen, str(path))
    return chosen, parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), tuple(fitted)


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


def _fit_named(
    arrow: pa.Table, names: Sequence[str], path: Path, train: NDArray[np.bool_]
) -> tuple[dict[str, NDArray], list[Column]]:
    """The columns that were asked for. One that cannot be used is an error."""
    raw, fitted = {}, []
    for name in names:
        raw[name], column, why_not = _fit_column(arrow, name, path, train)
        if why_not:
            raise DataError(
                f"{path}: column {name!r} cannot be a feature: {why_not}; leave it out, or give text with text_column"
            )
        fitted.append(column)
    return raw, fitted


def _fit_default(
    arrow: pa.Table, roles: Roles, path: Path, train: NDArray[np.bool_]
) -> tuple[dict[str, NDArray], list[Column]]:
    """Every column of numbers or categories without another use. What is left out is said, so that none gets lost."""
    raw: dict[str, NDArray] = {}
    fitted, left_out = [], []
    for name in arrow.column_names:
        kind = arrow[name].type
        if name in roles.used:
            continue
        if plain(name) in NEVER_FEATURES:
            left_out.append(f"{name!r} (by its name a label, an id or a row number)")
        elif _is_numeric(kind) or _is_text(kind):
            raw[name], column, why_not = _fit_column(arrow, name, path, train)
            if why_not:
                left_out.append(f"{name!r} ({why_not})")
            else:
                fitted.append(column)
        else:
            left_out.append(f"{name!r} ({'empty' if pa.types.is_null(kind) else f'of type {kind}'})")
    if not fitted:
        raise DataError(
            f"{path}: no column to learn from"
            + (f"; left out: {some(left_out)}" if left_out else "")
            + "; features are numbers, categories or one embedding column"
        )
    if left_out:
        warnings.warn(
            f"{path}: not among the features: {some(left_out)}; choose them with feature_columns", stacklevel=5
        )
    return raw, fitted


def _fit_column(arrow: pa.Table, name: str, path: Path, train: NDArray[np.bool_]) -> tuple[NDArray, Column, str | None]:
    """A column, how to treat it, and why it cannot be used, if so."""
    as_text = _is_text(arrow[name].type) and not _nearly_numbers(arrow[name])
    values = _raw(arrow, name, path, as_text)
    if not as_text:
        return values, fit_number(name, values, train), None
    column = fit_category(name, values, train)
    return values, column, unusable(column, values, train)


def _raw(arrow: pa.Table, name: str, path: Path, as_text: bool) -> NDArray:
    """A column as float32 with NaN, or as text with None, where missing."""
    if not as_text:
        return numbers(arrow, [name], path)[:, 0]
    column = arrow[name]
    if not (_is_text(column.type) or _is_numeric(column.type) or pa.types.is_null(column.type)):
        raise DataError(f"{path}: column {name!r} is of type {column.type}, where training had text; write it as text")
    texts = column.cast(pa.string()).to_pylist()
    stripped = [None if text is None else text.strip() for text in texts]
    values = np.empty(len(texts), dtype=object)
    values[:] = [None if text is None or text in NULL_NUMBERS else text for text in stripped]
    return values


def _nearly_numbers(column: pa.ChunkedArray) -> bool:
    """Whether a column of text is one of numbers with a slip in it: to take it for categories would hide the slip."""
    texts = column.to_pylist()
    written = [value for value in texts if value is not None and value.strip() not in NULL_NUMBERS]
    return bool(written) and sum(map(is_number, written)) >= ALMOST_ALL * len(written)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


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
