"""The features of an Arrow table: which columns, and their values as numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelloop.data.checks import check_columns
from labelloop.data.columns import (
    EMBEDDING_NAMES,
    NEVER_FEATURES,
    NULL_NUMBERS,
    ONLY_NAMED,
    Feature,
    LeftOut,
    Roles,
    are_array_names,
    is_number,
    names_of_array,
    plain,
    require,
)
from labelloop.data.encoding import (
    Column,
    date_format,
    date_parts,
    encode_columns,
    fit_category,
    fit_date,
    fit_number,
    in_words,
    to_float32,
    unusable,
)
from labelloop.data.questions import counts_rows, number_with_signs, rounded_away, slip_among_dates, why_an_id
from labelloop.errors import DataError, some
from labelloop.large_arrays import release, zeros
from labelloop.types import Floats

EMBEDDINGS = 16_384  # rows read at a time
ALMOST_ALL = 0.9  # a text column with this share of numbers is a column of numbers with a typo


@dataclass(frozen=True)
class Features:
    """The features of a table.

    Attributes:
        names: The names of the columns of `values`.
        values: The numbers [n, D].
        encoding: How named columns became numbers.
        used: Every column that is used, and how.
        left_out: Every column that is not used, and why.
        remarks: What is unusual about those that are used.
    """

    names: list[str]
    values: Floats
    encoding: tuple[Column, ...]
    used: tuple[Feature, ...]
    left_out: tuple[LeftOut, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Asked:
    """The columns that become features.

    Attributes:
        columns: Those named one by one; None if none are.
        embedding: The column that holds a list of numbers in each row, if any.
        expected: The names that the features must have in the end, if they are known.
        by_default: Whether nothing was named.
        encodes_the_rest: Whether all columns without another use are encoded.
    """

    columns: Sequence[str] | None
    embedding: str | None
    expected: Sequence[str] | None
    by_default: bool
    encodes_the_rest: bool


def _asked_for(
    arrow: pa.Table, roles: Roles, path: Path, columns: Sequence[str] | None, embedding: str | None
) -> _Asked:
    expected = None
    if columns is not None and are_array_names(columns) and columns[0] not in arrow.column_names:
        # Columns known only by number come from an embedding column, whatever its name is here.
        expected, columns = columns, None
    _check_named((*(columns or ()), *([embedding] if embedding else [])), arrow, roles, path)
    if embedding is not None or columns is not None:
        return _Asked(columns, embedding, expected, by_default=False, encodes_the_rest=False)
    embedding, others = _guessed_embedding(arrow, roles, path)
    rest = embedding is None or (others and expected is None)
    return _Asked(columns, embedding, expected, by_default=True, encodes_the_rest=rest)


def features_of(
    arrow: pa.Table,
    roles: Roles,
    path: Path,
    feature_columns: Sequence[str] | None,
    embedding_column: str | None,
    train: NDArray[np.bool_],
    encoding: Sequence[Column] | None = None,
    as_they_are: bool = False,
) -> Features:
    """The features, and how every column is used.

    Args:
        arrow: The rows.
        roles: The columns that are not features.
        path: For messages.
        feature_columns: As in `ReadOptions`.
        embedding_column: As in `ReadOptions`.
        train: Masks the rows that the encoding is fitted on [n].
        encoding: As in `ReadOptions`.
        as_they_are: As in `ReadOptions`.
    """
    if encoding is not None:
        feature_columns = [column.name for column in encoding]
    asked = _asked_for(arrow, roles, path, feature_columns, embedding_column)
    feature_columns, embedding_column = asked.columns, asked.embedding
    parts: list[Floats] = []
    chosen: list[str] = []
    fitted: Sequence[Column] = ()
    raw: dict[str, NDArray] = {}
    left_out: list[LeftOut] = []
    if embedding_column is not None:
        embedding = _embedding(arrow[embedding_column], embedding_column, path)
        parts.append(embedding)
        chosen += names_of_array(embedding_column, embedding.shape[1])
    if as_they_are and feature_columns:
        parts.append(numbers(arrow, feature_columns, path))
        chosen += feature_columns
    elif feature_columns or asked.encodes_the_rest:
        raw, fitted, left_out = _fitted(arrow, roles, path, asked, train, encoding)
        if fitted:
            encoded_names, values = _encoded(fitted, raw, path)
            parts.append(values)
            chosen += encoded_names
    if not parts:
        raise DataError(f"{path}: no features are named; name at least one column")
    if asked.expected is not None:
        check_columns(asked.expected, chosen, str(path))
    used = _used(embedding_column, parts[0].shape[1], fitted, feature_columns if as_they_are else None)
    used = [_with_remarks(use, raw.get(use.column), arrow[use.column].type) for use in used]
    why = ONLY_NAMED if not asked.by_default else f"the embedding {embedding_column!r} replaces it"
    done = {*roles.used, *(use.column for use in used), *(out.column for out in left_out)}
    left_out += [LeftOut(name, why) for name in arrow.column_names if name not in done]
    remarks = (*_counting(arrow, fitted), *_rounded(arrow, fitted))
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return Features(chosen, joined, tuple(fitted), tuple(used), tuple(left_out), remarks)


def _fitted(
    arrow: pa.Table,
    roles: Roles,
    path: Path,
    asked: _Asked,
    train: NDArray[np.bool_],
    encoding: Sequence[Column] | None,
) -> tuple[dict[str, NDArray], Sequence[Column], list[LeftOut]]:
    """The columns to encode and how, as before or fitted now; and the columns left out, with the reasons."""
    if encoding is not None:
        return {c.name: _raw(arrow, c.name, path, as_text=c.kind != "number") for c in encoding}, encoding, []
    if asked.columns is not None:
        return *_fit_named(arrow, asked.columns, path, train), []
    return _fit_default(arrow, roles, path, train, asked.embedding)


def _check_named(asked: Sequence[str], arrow: pa.Table, roles: Roles, path: Path) -> None:
    """Refuses features that do not exist, have another use, or are named twice."""
    for name in asked:
        if list(asked).count(name) > 1:
            raise DataError(f"{path}: column {name!r} is named twice among the features; name it once")
        require(name, arrow.column_names, str(path))
        if name in roles.used:
            raise DataError(f"{path}: column {name!r} is a feature and has another use too; name it once")


def _encoded(fitted: Sequence[Column], raw: dict[str, NDArray], path: Path) -> tuple[list[str], Floats]:
    """Names and numbers of encoded columns; warns of unusual values."""
    names, values, remarks = encode_columns(fitted, raw)
    for remark in remarks:
        warnings.warn(f"{path}: column {remark}", stacklevel=5)
    return names, values


def _used(
    embedding: str | None, width: int, fitted: Sequence[Column], as_they_are: Sequence[str] | None
) -> list[Feature]:
    found = [] if embedding is None else [Feature(embedding, f"embedding of {width} numbers")]
    found += [Feature(name, "number") for name in as_they_are or ()]
    for column in fitted:
        how = column.kind
        if how == "category":
            how = f"category of {len(column.levels) + column.other}"
        elif how == "date":
            how = f"date {in_words(column.form)}, as {', '.join(date_parts(column.form))}"
        found.append(Feature(column.name, how))
    return found


def _counting(arrow: pa.Table, fitted: Sequence[Column]) -> tuple[str, ...]:
    """Names the features that count the rows, as ids do."""
    ends = {column.name: counts_rows(arrow[column.name]) for column in fitted}
    return tuple(
        f"{name!r} holds each number from {found[0]} to {found[1]} once; if it is an id, choose other features"
        for name, found in ends.items()
        if found is not None
    )


def _rounded(arrow: pa.Table, fitted: Sequence[Column]) -> tuple[str, ...]:
    """Names the features whose numbers are no longer all different in single precision."""
    lost = {column.name: rounded_away(arrow[column.name]) for column in fitted if column.kind == "number"}
    return tuple(
        f"{name!r} holds {found[0]} different numbers, but only {found[1]} of them differ in single precision (seven"
        " digits); subtract a constant, or write them as dates"
        for name, found in lost.items()
        if found is not None
    )


def _with_remarks(use: Feature, values: NDArray | None, kind: pa.DataType) -> Feature:
    """The record of a feature: how many of its values are blank, and the time zone of dates."""
    zone = ", in UTC" if pa.types.is_timestamp(kind) and kind.tz is not None else ""
    if values is None:
        return use
    blank = np.isnan(values) if values.dtype.kind == "f" else values == None  # noqa: E711  (elementwise)
    return Feature(use.column, f"{use.how}{zone}", int(blank.sum()))


def _guessed_embedding(arrow: pa.Table, roles: Roles, path: Path) -> tuple[str | None, bool]:
    """The column of lists that is used as an embedding, and whether other columns are used with it.

    A column named as an embedding stands for the row. Any other list, such as the corners of a box, is one more
    feature.
    """
    lists = [name for name in arrow.column_names if name not in roles.used and _is_list(arrow[name].type)]
    named = [name for name in lists if plain(name) in EMBEDDING_NAMES]
    lists = [name for name in lists if _is_numeric(arrow[name].type.value_type)]
    known = named or lists
    if len(known) > 1:
        raise DataError(
            f"{path}: {' and '.join(map(repr, known))} could both be meant; say which with embedding_column"
        )
    return (known[0], not named) if known else (None, True)


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
            " every embedding needs the same number; or choose other features with feature_columns"
        )
    values, start = zeros((len(column), int(widths[0]))), 0
    for chunk in column.chunks:
        for offset in range(0, len(chunk), EMBEDDINGS):
            part = chunk.slice(offset, EMBEDDINGS)
            flat = pc.list_flatten(part).cast(pa.float64()).to_numpy(zero_copy_only=False)  # [m * D]
            values[start : start + len(part)] = to_float32(flat.reshape(len(part), -1))
            start += len(part)
        release()
    return values


def _fit_named(
    arrow: pa.Table, names: Sequence[str], path: Path, train: NDArray[np.bool_]
) -> tuple[dict[str, NDArray], list[Column]]:
    """The columns that the user named. One that cannot be used is an error."""
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
    arrow: pa.Table, roles: Roles, path: Path, train: NDArray[np.bool_], embedding: str | None
) -> tuple[dict[str, NDArray], list[Column], list[LeftOut]]:
    """Every column of numbers, categories or dates without another use; and the columns left out, with the reasons."""
    raw: dict[str, NDArray] = {}
    fitted: list[Column] = []
    left_out: list[LeftOut] = []
    for name in arrow.column_names:
        kind = arrow[name].type
        if name in roles.used or name == embedding:
            continue
        if plain(name) in NEVER_FEATURES:
            left_out.append(LeftOut(name, "a label, an id or a row number, by its name"))
        elif is_id := why_an_id(name, arrow[name]):
            left_out.append(LeftOut(name, is_id))
        elif _is_numeric(kind) or _is_text(kind) or _is_date(kind):
            raw[name], column, why_not = _fit_column(arrow, name, path, train)
            if why_not:
                left_out.append(LeftOut(name, why_not))
            else:
                fitted.append(column)
        else:
            left_out.append(LeftOut(name, _why_of_type(kind)))
    named = some(f"{out.column!r} ({out.why})" for out in left_out)
    if not fitted and embedding is None:
        raise DataError(
            f"{path}: no column to train on"
            + (f"; left out: {named}" if left_out else "")
            + "; features are numbers, categories, dates or one embedding column"
        )
    if left_out:
        warnings.warn(f"{path}: not among the features: {named}; choose them with feature_columns", stacklevel=6)
    return raw, fitted, left_out


def _fit_column(arrow: pa.Table, name: str, path: Path, train: NDArray[np.bool_]) -> tuple[NDArray, Column, str | None]:
    """A column and how to encode it, or why it cannot be used."""
    kind = arrow[name].type
    as_text = pa.types.is_temporal(kind) or (_is_text(kind) and not _nearly_numbers(arrow[name]))
    values = _raw(arrow, name, path, as_text)
    if not as_text:
        return values, fit_number(name, values, train), None
    form = date_format([text for text in values if text is not None])
    if form is not None:
        return values, fit_date(name, values, train, form), None
    if slip := slip_among_dates(values.tolist()):
        row, words = slip
        raise DataError(
            f"{path}: column {name!r} is not dates: row {row} holds {values[row]!r}, which is not {words} (the first"
            f" row is 0); correct it, say --na {values[row]} if it means that the date is missing, or leave the column"
            " out of the features"
        )
    column = fit_category(name, values, train)
    why_not = unusable(column, values, train)
    if why_not and (example := number_with_signs(values)):
        why_not = f"{why_not}; to use it as numbers, write {example!r} without the extra characters"
    return values, column, why_not


def _raw(arrow: pa.Table, name: str, path: Path, as_text: bool) -> NDArray:
    """A column as float32 with NaN, or as text with None, where missing."""
    if not as_text:
        return numbers(arrow, [name], path)[:, 0]
    column = arrow[name]
    kind = column.type
    if pa.types.is_temporal(kind):
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("s"), safe=False)
        elif not pa.types.is_date(kind):
            raise DataError(
                f"{path}: column {name!r} is of type {kind}; leave it out of the features, or convert it to a date"
            )
        column = pa.chunked_array(
            [[None if value is None else str(value) for value in column.to_pylist()]], pa.string()
        )
    elif not (_is_text(kind) or _is_numeric(kind) or pa.types.is_null(kind)):
        raise DataError(f"{path}: column {name!r} is of type {column.type}, where training had text; write it as text")
    texts = column.cast(pa.string()).to_pylist()
    stripped = [None if text is None else text.strip() for text in texts]
    values = np.empty(len(texts), dtype=object)
    values[:] = [None if text is None or text in NULL_NUMBERS else text for text in stripped]
    return values


def _nearly_numbers(column: pa.ChunkedArray) -> bool:
    """Whether a column of text holds numbers with a typo: as categories the typo would go unseen."""
    texts = column.to_pylist()
    written = [value for value in texts if value is not None and value.strip() not in NULL_NUMBERS]
    return bool(written) and sum(map(is_number, written)) >= ALMOST_ALL * len(written)


def _is_date(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def _why_of_type(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "empty"
    return f"a time of day without a date, {kind}" if pa.types.is_time(kind) else f"of type {kind}"


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
                f" say --na {text} if it means that the number is missing, or leave the column out of the features"
            )
    return np.array([np.nan if text in NULL_NUMBERS else float(text) for text in texts])
