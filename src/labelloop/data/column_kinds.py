"""What a column of an Arrow table is, a number, a category, a date or a text, and its values as those; labels and ids
as the user wrote them.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelloop.data import encoding
from labelloop.data.classes import numbers_where_all_are
from labelloop.data.columns import NULL_NUMBERS, Roles, is_number, plain
from labelloop.data.questions import slip_among_dates
from labelloop.data.words import WIDTH
from labelloop.errors import DataError, some
from labelloop.large_arrays import release, zeros
from labelloop.types import MISSING, Floats

ALMOST_ALL = 0.9  # a text column with this share of numbers is a column of numbers with a typo
ONE_HOT = 384  # columns for the categories of all columns with many, at most
EMBEDDINGS = 16_384  # rows read at a time
SHOWN = 6  # texts among numbers that are named
LOOKED_AT = 1000  # texts, to look for numbers with units or in lists
_NUMBERS = r"\s*-?\d[-+\d.eE]*([\s,;]+-?\d[-+\d.eE]*)+\s*"
LIST = re.compile(rf"\[{_NUMBERS}\]|\({_NUMBERS}\)")  # and not (1, 2], which is an interval
WORDS = 96  # numbers for the texts of all columns, at most
# What people write in a column that says whether a row was verified.
FLAG_WORDS = "true false yes no y n t f x ok 0 1 done checked verified none nan"


CATEGORY = {b"labelloop": b"category"}  # marks a column of numbers that its owner declared as categories


@dataclass(frozen=True)
class Kind:
    """What a column is.

    Attributes:
        name: The column.
        kind: As in `Column`.
        values: float32 with NaN, or text with None, where missing [n].
        form: As in `Column`.
        remark: How its values were read, where that is not plain.
        sentinels: As in `Column`.
    """

    name: str
    kind: str
    values: NDArray
    form: str = ""
    remark: str = ""
    sentinels: tuple[float, ...] = ()


def kind_of(arrow: pa.Table, name: str, path: Path, train: NDArray[np.bool_], asked: str | None) -> Kind:
    """What a column is: as asked for, else by its values.

    Args:
        arrow: The rows.
        name: The column.
        path: For messages.
        train: Masks the rows to judge by [n].
        asked: "category" or "text" if the user said so.
    """
    column = arrow[name]
    if asked is not None:
        return Kind(name, asked, texts_of(arrow, name, path))
    if not (pa.types.is_temporal(column.type) or (is_text(column.type) and not _nearly_numbers(column))):
        return Kind(name, "number", numbers(arrow, [name], path)[:, 0])
    values = texts_of(arrow, name, path)
    known = [text for text in values if text is not None]
    if (found := encoding.date_format(known)) is not None:
        form, turned = found
        words = f"{name!r} is read as {encoding.in_words(form)}, but no day is above 12: if months come first, write"
        return Kind(name, "date", values, form, f"{words} dates as yyyy-mm-dd" if turned else "")
    if slip := slip_among_dates(values.tolist()):
        row, words = slip
        raise DataError(
            f"{path}: column {name!r} is not dates: row {row} holds {values[row]!r}, not {words} (the first row is 0);"
            f" correct it, say --na {values[row]} if the date is missing, or leave the column out"
        )
    if (style := encoding.number_style(known, ALMOST_ALL)) is not None:
        return Kind(name, "number", _signed(values, style, name, path), style, _reading(name, known, style))
    kind, remark = "category" if encoding.are_categories(values, train) else "text", ""
    if units := encoding.mixed_units(known[:LOOKED_AT], ALMOST_ALL):
        remark = f"{name!r} is not read as numbers: their units differ ({some(map(repr, units))}); convert them to one"
    elif known and all(LIST.fullmatch(text) for text in known[:LOOKED_AT]):
        remark = f"{name!r} holds lists of numbers as text; save them as lists in Parquet, or a column for each number"
    elif known and all(encoding.date_format([text]) for text in known[:LOOKED_AT]):
        remark = f"{name!r} holds dates in several forms, so it is not read as dates; write all as yyyy-mm-dd"
    return Kind(name, kind, values, remark=remark)


def fit_kinds(kinds: Sequence[Kind], train: NDArray[np.bool_]) -> list[encoding.Column | str]:
    """How each column becomes numbers, or why it cannot be used. The more texts there are, the fewer numbers each."""
    many = sum(kind.kind == "category" and _different(kind, train) > encoding.FEW_LEVELS for kind in kinds)
    texts = sum(kind.kind == "text" for kind in kinds)
    return [_fit(kind, train, ONE_HOT // max(many, 1), min(WIDTH, WORDS // max(texts, 1))) for kind in kinds]


def _fit(kind: Kind, train: NDArray[np.bool_], levels: int, width: int) -> encoding.Column | str:
    name, values = kind.name, kind.values
    if kind.kind == "number":
        return replace(encoding.fit_number(name, values, train, kind.form), sentinels=kind.sentinels)
    if kind.kind == "date":
        return encoding.fit_date(name, values, train, kind.form)
    if kind.kind == "category":
        column = encoding.fit_category(name, values, train, max(levels, encoding.FEW_LEVELS))
        return column if len(column.encoded_names) > 1 else "the same value in every row"
    found = encoding.fit_text(name, values, train, max(width, 1))
    if found is None:
        rows = int(train.sum())
        return f"{_different(kind, train)} different values in {rows} rows that share no words, like ids"
    return found


def _different(kind: Kind, train: NDArray[np.bool_]) -> int:
    return len(set(kind.values[train]) - {None})


def encoded_values(arrow: pa.Table, column: encoding.Column, path: Path) -> NDArray:
    """The values of a column that was fitted before."""
    if column.kind != "number":
        return texts_of(arrow, column.name, path)
    if column.form and not is_numeric(arrow[column.name].type):
        values = _signed(texts_of(arrow, column.name, path), column.form, column.name, path)
    else:
        values = numbers(arrow, [column.name], path)[:, 0]
    return without_sentinels(values, column.sentinels)


def without_sentinels(values: Floats, sentinels: Sequence[float]) -> Floats:
    """The numbers, NaN where one stands for a missing one."""
    return np.where(np.isin(values, np.array(sentinels, np.float32)), np.float32(np.nan), values)


def _signed(values: NDArray, style: str, name: str, path: Path) -> Floats:
    """Numbers with signs, as float32."""
    found = [np.nan if text is None else encoding.signed_number(text, style) for text in values]
    _refuse_others(values.tolist(), [number is None for number in found], name, path)
    return encoding.to_float32(np.array(found, dtype=np.float64))


def _reading(name: str, known: Sequence[str], style: str) -> str:
    """How numbers with signs were read, in words."""
    example = max(sorted(set(known)), key=len)
    signs = encoding.signs_of(known)
    number = encoding.signed_number(example, style)
    mixed = ""
    if len(signs) > 1 and style != encoding.CLOCK:
        named = some("no sign" if not sign else repr(sign) for sign in signs)
        mixed = f"; they are written with {named}, all read as the same unit"
    return f"{name!r} is read as numbers: {example!r} as {number:.10g}{mixed}"


def texts_of(arrow: pa.Table, name: str, path: Path) -> NDArray:
    """A column as text, with None where missing."""
    column, kind = arrow[name], arrow[name].type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("s"), safe=False)
    elif pa.types.is_time(kind):
        column = pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    elif not (pa.types.is_date(kind) or is_text(kind) or is_numeric(kind) or pa.types.is_null(kind)):
        raise _unusable(name, kind, path, "a number, a text or a date")
    stripped = [None if text is None else text.strip() for text in column.cast(pa.string()).to_pylist()]
    return np.array([None if text in NULL_NUMBERS else text for text in stripped], dtype=object)


def _nearly_numbers(column: pa.ChunkedArray) -> bool:
    """Whether a column of text holds numbers with a typo: as categories the typo would go unseen."""
    texts = column.to_pylist()
    written = [value for value in texts if value is not None and value.strip() not in NULL_NUMBERS]
    return bool(written) and sum(map(is_number, written)) >= ALMOST_ALL * len(written)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_date(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind)


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_numeric(kind: pa.DataType) -> bool:
    of = pa.types
    return of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind) or of.is_boolean(kind)


def numbers(arrow: pa.Table, names: Sequence[str], path: Path) -> Floats:
    """Columns as float32 [n, D], NaN where blank."""
    values = np.empty((arrow.num_rows, len(names)), dtype=np.float32)
    for j, name in enumerate(names):
        column = arrow[name]
        if pa.types.is_null(column.type):
            values[:, j] = np.nan
        elif is_text(column.type):
            values[:, j] = _numbers_from_text(column, name, path)
        elif is_numeric(column.type):
            values[:, j] = encoding.to_float32(column.cast(pa.float64(), safe=False).to_numpy())
        else:
            raise _unusable(name, column.type, path, f"numbers (row 0 holds {column[0]})")
    return values


def _unusable(name: str, kind: pa.DataType, path: Path, wanted: str) -> DataError:
    return DataError(f"{path}: column {name!r} is of type {kind}, not {wanted}; convert it, or leave it out")


def _no_labels(name: str, kind: pa.DataType, path: Path) -> DataError:
    return DataError(f"{path}: column {name!r} is of type {kind}, which cannot hold labels; use text or whole numbers")


def _numbers_from_text(column: pa.ChunkedArray, name: str, path: Path) -> NDArray:
    texts = [value.strip() for value in column.fill_null("").to_pylist()]
    _refuse_others(texts, [text not in NULL_NUMBERS and not is_number(text) for text in texts], name, path)
    return np.array([np.nan if text in NULL_NUMBERS else float(text) for text in texts])


def _refuse_others(texts: Sequence[str], others: Sequence[bool], name: str, path: Path) -> None:
    """Refuses texts among numbers, and names all of them."""
    rows = np.flatnonzero(others)
    if not len(rows):
        return
    different = list(dict.fromkeys(texts[row] for row in rows.tolist()))
    also = f", other rows {some(map(repr, different[1:]))}" if len(different) > 1 else ""
    na = ",".join(text for text in different[:SHOWN] if "," not in text)  # a comma is between two markers
    way_out = f" say --na={shlex.quote(na)} if it means that the number is missing," if na else ""
    raise DataError(
        f"{path}: column {name!r} is not numbers: row {rows[0]} holds {different[0]!r}{also} (the first row is 0);"
        f" correct it,{way_out} or leave the column out of the features"
    )


def embedding_values(column: pa.ChunkedArray, name: str, path: Path) -> Floats:
    """A column of lists as an array [n, D]."""
    if not is_list(column.type) or not is_numeric(column.type.value_type):
        raise _unusable(name, column.type, path, "lists of numbers, as in Parquet")
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise DataError(
            f"{path}: column {name!r} has no embedding in row {row} (from 0); leave out the row, or use leave_out"
        )
    widths = pc.list_value_length(column).to_numpy()
    other = np.flatnonzero(widths != widths[0])
    if len(other):
        raise DataError(
            f"{path}: column {name!r} has {widths[0]} numbers in row 0 and {widths[other[0]]} in row {other[0]};"
            " every embedding needs the same number, or use leave_out"
        )
    values, start = zeros((len(column), int(widths[0]))), 0
    for chunk in column.chunks:
        for offset in range(0, len(chunk), EMBEDDINGS):
            part = chunk.slice(offset, EMBEDDINGS)
            flat = pc.list_flatten(part).cast(pa.float64()).to_numpy(zero_copy_only=False)  # [m * D]
            values[start : start + len(part)] = encoding.to_float32(flat.reshape(len(part), -1))
            start += len(part)
        release()
    return values


def labels_of(
    arrow: pa.Table, roles: Roles, path: Path, untyped: bool, markers: Sequence[str]
) -> tuple[NDArray | None, NDArray | None]:
    """The given and the clean labels. In an `untyped` file, labels that are all whole numbers become numbers."""
    names = (roles.label, roles.clean)
    columns = [None if name is None else _label(arrow[name], name, path, markers) for name in names]
    text = untyped and all(column is None or column.dtype.kind == "U" for column in columns)
    labels, clean_labels = numbers_where_all_are(columns, markers) if text else columns
    return labels, clean_labels


def without_flags(arrow: pa.Table, roles: Roles, path: Path) -> Roles:
    """The roles without a guessed column `verified` that only says whether or by whom, and holds no labels."""
    name = roles.clean
    if name is None or not roles.clean_guessed or plain(name) != "verified":
        return roles
    values = _values(arrow[name])
    given = set() if roles.label is None else _values(arrow[roles.label])
    if not {value.lower() for value in values} <= set(FLAG_WORDS.split()) and (not given or values <= given):
        return roles
    warnings.warn(
        f"{path}: column {name!r} holds {some(sorted(values), 3)}, which says that a row was verified, not its label,"
        " so it is not used; name the column of clean labels with clean_column",
        stacklevel=4,
    )
    return replace(roles, clean=None, clean_guessed=False, flag=name)


def without_repeated_ids(arrow: pa.Table, roles: Roles) -> Roles:
    """The roles without a guessed id that repeats or has gaps, such as one of patients, where nothing needs ids."""
    column = None if roles.id is None or not roles.id_guessed else arrow[roles.id]
    if column is None or (not column.null_count and len(column.unique()) == len(column)):
        return roles
    return replace(roles, id=None, repeated_id=roles.id)


def _values(column: pa.ChunkedArray) -> set[str]:
    return {str(value).strip().removesuffix(".0") for value in column.unique().to_pylist() if value is not None} - {""}


def refuse_lists(arrow: pa.Table, roles: Roles, path: Path) -> None:
    """Refuses columns of lists or records as labels."""
    for name in (roles.label, roles.clean):
        if name is not None and pa.types.is_nested(arrow[name].type):
            raise _no_labels(name, arrow[name].type, path)


def written(arrow: pa.Table, name: str | None, *, stripped: bool = True) -> Counter[str]:
    """The count of each label in a column that is not blank; blanks around labels are removed if `stripped`."""
    if name is None:
        return Counter()
    found: Counter[str] = Counter()
    for pair in arrow[name].value_counts().to_pylist():
        value = pair["values"]
        if value is not None and value == value:
            text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
            found[text.strip() if stripped else text] += pair["counts"]
    return found


def ids_of(arrow: pa.Table, name: str, path: Path) -> NDArray:
    """A column of ids as text; none may be blank."""
    ids = np.array(arrow[name].cast(pa.string()).fill_null("").to_pylist(), dtype=str)
    blank = np.flatnonzero(ids == "")
    if len(blank):
        raise DataError(f"{path}: column {name!r} has no id in row {some(blank)} (the first row is 0); fill it in")
    return ids


def _label(column: pa.ChunkedArray, name: str, path: Path, markers: Sequence[str]) -> NDArray:
    kind = column.type
    if is_text(kind):
        return np.array(column.fill_null("").to_pylist(), dtype=str)
    if column.null_count and (pa.types.is_uint64(kind) or (pa.types.is_integer(kind) and "-1" not in markers)):
        return np.array(column.to_pylist(), dtype=object)  # some may be too large for a signed integer
    if pa.types.is_integer(kind):
        return column.to_numpy() if not column.null_count else column.cast(pa.int64()).fill_null(MISSING).to_numpy()
    if pa.types.is_floating(kind):
        return column.cast(pa.float64()).to_numpy()
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        values = column.to_pylist()
        return np.array(values, dtype=object if column.null_count else bool)
    raise _no_labels(name, kind, path)
