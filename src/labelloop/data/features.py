"""The features of an Arrow table: which columns, and their values as numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelloop.data import column_kinds, columns
from labelloop.data.checks import check_columns
from labelloop.data.columns import Feature, LeftOut
from labelloop.data.encoding import ANY_ISO, FORMATS, Column, encode_columns, in_words, is_blank
from labelloop.data.image_files import ImageForm, Unreadable
from labelloop.data.options import ReadOptions
from labelloop.data.questions import counts_rows, is_id, is_id_name, rounded_away
from labelloop.data.suspicion import Labelled, examined, idle_columns, why_never
from labelloop.errors import DataError, some
from labelloop.types import Floats

ZONE = re.compile(r":\d\d(\.\d+)?\s?(Z|[+-]\d\d:?\d\d)$")  # after a time
TRUST = "; to use it anyway, name it with trust_columns"


@dataclass(frozen=True)
class Features:
    """The inputs of a table, and how they were made.

    Attributes:
        values: The numbers [n, D]; or images, or the texts or images for an encoder.
        names: The names of the columns of `values`.
        encoding: How named columns became numbers.
        used: Every column that is used, and how.
        left_out: Every column that is not used, and why.
        remarks: What is unusual about those that are used.
        beside: Numbers of other columns, which are joined to what an encoder makes of `values`.
        image_form: How images became inputs, if they did.
        unreadable: The images that could not be used.
    """

    values: Any
    names: Sequence[str] | None = None
    encoding: tuple[Column, ...] = ()
    used: tuple[Feature, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    remarks: tuple[str, ...] = ()
    beside: Floats | None = None
    image_form: ImageForm | None = None
    unreadable: tuple[Unreadable, ...] = ()


@dataclass(frozen=True)
class Source:
    """The columns of a table, and what is known about them.

    Attributes:
        arrow: The rows.
        roles: The columns that are not features.
        path: For messages.
        options: The columns that the user named, and what for.
        train: Masks the rows that the encoding is fitted on [n].
        labelled: Their labels, to tell columns that give them away; no column is made from them.
        beside: Whether the features stand beside others, so that there may be none.
    """

    arrow: pa.Table
    roles: columns.Roles
    path: Path
    options: ReadOptions
    train: NDArray[np.bool_]
    labelled: Labelled | None = None
    beside: bool = False

    def asked(self, name: str) -> str | None:
        """The kind that the user said a column is of, or None."""
        if name in self.options.text_columns:
            return "text"
        declared = self.arrow.schema.field(name).metadata == column_kinds.CATEGORY
        return "category" if declared or name in self.options.category_columns else None

    def kind_of(self, name: str) -> column_kinds.Kind:
        """What a column is."""
        return column_kinds.kind_of(self.arrow, name, self.path, self.train, self.asked(name))


@dataclass(frozen=True)
class _Fitted:
    """Columns and how they are encoded; those left out; and remarks."""

    raw: dict[str, NDArray]
    columns: list[Column]
    left_out: list[LeftOut]
    remarks: list[str]


def features_of(source: Source) -> Features:
    """The features, and how every column is used."""
    arrow, path, options = source.arrow, source.path, source.options
    for name in (*options.text_columns, *options.category_columns, *options.leave_out, *options.trust_columns):
        columns.require(name, arrow.column_names, str(path))
    names = options.feature_columns if options.encoding is None else [column.name for column in options.encoding]
    expected, embedding_column = None, options.embedding_column
    if names is not None and columns.are_array_names(names) and names[0] not in arrow.column_names:
        # Columns known only by number come from an embedding column, whatever its name is here.
        expected, names = names, None
    _check_named((*(names or ()), *([embedding_column] if embedding_column else [])), source)
    encodes_the_rest = embedding_column is None and names is None
    if encodes_the_rest:
        embedding_column = _guessed_embedding(source)
        encodes_the_rest = embedding_column is None or expected is None
    parts: list[Floats] = []
    chosen: list[str] = []
    found = _Fitted({}, [], [], [])
    if embedding_column is not None:
        embedding = column_kinds.embedding_values(arrow[embedding_column], embedding_column, path)
        parts.append(embedding)
        chosen += columns.names_of_array(embedding_column, embedding.shape[1])
    if options.as_they_are and names:
        parts.append(column_kinds.numbers(arrow, names, path))
        chosen += names
    elif names or encodes_the_rest:
        found = _fitted(source, names, embedding_column)
        if found.columns:
            encoded_names, values = _encoded(found.columns, found.raw, path)
            parts.append(values)
            chosen += encoded_names
    if not parts and not source.beside:
        raise DataError(f"{path}: no features are named; name at least one column")
    if expected is not None:
        check_columns(expected, chosen, str(path))
    parts = parts or [np.zeros((arrow.num_rows, 0), np.float32)]
    used = _used(embedding_column, parts[0].shape[1], found.columns, names if options.as_they_are else None)
    used = [_with_remarks(use, found.raw.get(use.column), arrow[use.column].type) for use in used]
    done = {*source.roles.used, *(use.column for use in used), *(out.column for out in found.left_out)}
    rest = (LeftOut(name, columns.ONLY_NAMED) for name in arrow.column_names if name not in done)
    remarks = (*filter(None, found.remarks), *_odd_numbers(arrow, found.columns))
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return Features(joined, chosen, tuple(found.columns), tuple(used), (*found.left_out, *rest), remarks)


def _fitted(source: Source, names: Sequence[str] | None, embedding: str | None) -> _Fitted:
    """The columns to encode and how, as before or fitted now; and the columns left out, with the reasons."""
    encoding = source.options.encoding
    if encoding is not None:
        raw = {column.name: column_kinds.encoded_values(source.arrow, column, source.path) for column in encoding}
        return _Fitted(raw, list(encoding), [], [])
    return _fit_default(source, embedding) if names is None else _fit_named(source, names)


def _check_named(asked: Sequence[str], source: Source) -> None:
    """Refuses features that do not exist, have another use, or are named twice."""
    for name in asked:
        if list(asked).count(name) > 1:
            raise DataError(f"{source.path}: column {name!r} is named twice among the features; name it once")
        columns.require(name, source.arrow.column_names, str(source.path))
        if name in source.roles.used:
            raise DataError(f"{source.path}: column {name!r} is a feature and has another use too; name it once")


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
        elif column.words is not None:
            how = f"text, as {column.words.width} numbers from its words"
        elif how == "date":
            how = f"date {in_words(column.form)}, as {', '.join(FORMATS[column.form])}"
        found.append(Feature(column.name, how))
    return found


def _odd_numbers(arrow: pa.Table, fitted: Sequence[Column]) -> list[str]:
    """Names the features that count the rows, as ids do, and those that single precision makes equal."""
    remarks = []
    for name in (column.name for column in fitted):
        if ends := counts_rows(arrow[name]):
            count = f"{name!r} holds each number from {ends[0]} to {ends[1]} once"
            remarks.append(f"{count}; if it is an id, name it with leave_out")
    for name in (column.name for column in fitted if column.kind == "number"):
        if lost := rounded_away(arrow[name]):
            count = f"{name!r} holds {lost[0]} different numbers, but only {lost[1]} of them differ in single precision"
            remarks.append(f"{count} (seven digits); subtract a constant, or write them as dates")
    return remarks


def _with_remarks(use: Feature, values: NDArray | None, kind: pa.DataType) -> Feature:
    """The record of a feature: how many of its values are blank, and the time zone of dates."""
    zone = ", in UTC" if (pa.types.is_timestamp(kind) and kind.tz is not None) or "+zone" in use.how else ""
    if ANY_ISO in use.how and values is not None and any(text and ZONE.search(text) for text in values):
        zone = ", in UTC where a zone is written"
    return use if values is None else Feature(use.column, f"{use.how}{zone}", int(is_blank(values).sum()))


def _guessed_embedding(source: Source) -> str | None:
    """The column of lists of numbers, if any; one that is named as an embedding goes before others."""
    taken = (*source.roles.used, *source.options.leave_out)
    types = {name: source.arrow[name].type for name in source.arrow.column_names if name not in taken}
    lists = [name for name, kind in types.items() if column_kinds.is_list(kind)]
    named = [name for name in lists if columns.plain(name) in columns.EMBEDDING_NAMES]
    known = named or [name for name in lists if column_kinds.is_numeric(types[name].value_type)]
    return columns.the_one(known, "embedding_column", source.path)


def _fit_named(source: Source, names: Sequence[str]) -> _Fitted:
    """The columns that the user named, also those that look suspicious. One that cannot be used is an error."""
    kinds, fitted = [], []
    for name in names:
        kind = source.kind_of(name)
        if why := why_never(kind, source.labelled):
            raise DataError(f"{source.path}: column {name!r} cannot be a feature: {why}; leave it out")
        found = _examined(source, name)
        kinds.append(replace(kind, remark=f"{name!r}: {found.partition(';')[0]}") if isinstance(found, str) else found)
    for kind, column in zip(kinds, column_kinds.fit_kinds(kinds, source.train), strict=True):
        if isinstance(column, str):
            raise DataError(f"{source.path}: column {kind.name!r} cannot be a feature: {column}; leave it out")
        fitted.append(column)
    return _Fitted({kind.name: kind.values for kind in kinds}, fitted, [], [kind.remark for kind in kinds])


def _examined(source: Source, name: str) -> column_kinds.Kind | str:
    """What a column is; or why it is not used, although it could be."""
    kind = source.kind_of(name)
    if name in source.options.trust_columns:
        return why_never(kind, source.labelled) or kind
    texts = column_kinds.texts_of(source.arrow, name, source.path) if kind.kind == "number" else None
    return examined(kind, texts, source.train, source.labelled)


def _fit_default(source: Source, embedding: str | None) -> _Fitted:
    """Every column without another use that can be numbers; and the columns left out, with the reasons."""
    found, kinds, arrow, trusted = _Fitted({}, [], [], []), [], source.arrow, source.options.trust_columns
    for name in arrow.column_names:
        if name in source.roles.used or name == embedding:
            continue
        if why_not := _why_not(source, name):
            found.left_out.append(LeftOut(name, why_not))
            continue
        kind = _examined(source, name)
        if isinstance(kind, str):
            found.left_out.append(LeftOut(name, kind))
        elif kind.kind == "text" and is_id_name(name) and not (source.asked(name) or name in trusted):
            found.left_out.append(LeftOut(name, f"an id by its name, different in most rows{TRUST}"))
        else:
            kinds.append(kind)
    for kind, column in zip(kinds, column_kinds.fit_kinds(kinds, source.train), strict=True):
        if isinstance(column, str):
            found.left_out.append(LeftOut(kind.name, f"{column}; {kind.remark}" if kind.remark else column))
        else:
            found.columns.append(column)
            found.raw[kind.name] = kind.values
            found.remarks.append(kind.remark)
    if embedding is None and source.labelled is not None:
        _leave_out_idle(found, source, source.labelled)
    order = {name: place for place, name in enumerate(arrow.column_names)}
    found.left_out.sort(key=lambda out: order[out.column])
    if not found.columns and embedding is None and not source.beside:
        named = some(f"{out.column!r} ({out.why})" for out in found.left_out) or "none"
        raise DataError(
            f"{source.path}: no column to train on; left out: {named}; features are numbers, categories, dates, texts"
            " or one embedding column"
        )
    if unasked := [out for out in found.left_out if out.column not in source.options.leave_out]:
        named = some(f"{out.column!r} ({out.why})" for out in unasked)
        warnings.warn(f"{source.path}: not among the features: {named}", stacklevel=6)
    return found


def _leave_out_idle(found: _Fitted, source: Source, labelled: Labelled) -> None:
    """Leaves out columns of many numbers that do not help to predict the given label, unless the user named them."""
    options = source.options
    named = {*options.text_columns, *options.category_columns, *options.trust_columns}
    for name in idle_columns(found.columns, found.raw, named, labelled.given, source.train):
        place = next(j for j, column in enumerate(found.columns) if column.name == name)
        column = found.columns.pop(place)
        remark = found.remarks.pop(place)
        found.raw.pop(name)
        kind = "text_columns" if column.kind == "text" else "category_columns"
        why = f"as a {column.kind} it does not help to predict the given label; to use it anyway, name it with"
        found.left_out.append(LeftOut(name, f"{why} {kind}{'; ' if remark else ''}{remark}"))


def _why_not(source: Source, name: str) -> str | None:
    """Why a column cannot be a feature, by its name, its type or what the user said; None if it can."""
    kind, trusted = source.arrow[name].type, name in source.options.trust_columns
    if name in source.options.leave_out:
        return "as you said"
    if source.asked(name) is not None:
        return None
    if columns.plain(name) in columns.NEVER_FEATURES and not trusted:
        return f"a label, an id or a row number, by its name{TRUST}"
    if is_id(name, source.arrow[name]) and not trusted:
        return f"an id by its name, different in every row{TRUST}"
    if pc.all(pc.is_null(source.arrow[name], nan_is_null=True)).as_py():
        return "empty"
    usable = column_kinds.is_numeric(kind) or column_kinds.is_text(kind)
    return None if usable or column_kinds.is_date(kind) else f"of type {kind}"
