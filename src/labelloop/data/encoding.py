"""Columns as numbers: missing values are filled in and marked, categories become columns of 0 and 1, dates several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, some
from labelloop.large_arrays import by_chunks, is_large
from labelloop.types import Floats

DATE = ("year", "month", "day", "weekday")
TIME = (*DATE, "hour")
MIDDLE = {"month": 6.5, "day": 15.5, "weekday": 3.0, "hour": 12.0}  # replaces a missing date
# Day first if the order is ambiguous, as in most of the world; the user is told.
FORMATS = (
    ("%Y-%m-%d", DATE),
    ("%Y/%m/%d", DATE),
    ("%d/%m/%Y", DATE),
    ("%m/%d/%Y", DATE),
    ("%d.%m.%Y", DATE),
    ("%d-%m-%Y", DATE),
    ("%b %d %Y", DATE),
    ("%b %d, %Y", DATE),
    ("%d %b %Y", DATE),
    ("%d-%b-%Y", DATE),
    ("%B %d %Y", DATE),
    ("%B %d, %Y", DATE),
    ("%d %B %Y", DATE),
    ("%Y-%m-%d %H:%M:%S", TIME),
    ("%Y-%m-%dT%H:%M:%S", TIME),
    ("%Y-%m-%d %H:%M", TIME),
    ("%Y-%m-%d %H:%M:%S.%f", TIME),
    ("%Y-%m-%dT%H:%M:%S.%f", TIME),
    ("%Y-%m-%dT%H:%M:%S%z", TIME),
    ("%Y-%m-%d %H:%M:%S%z", TIME),
    ("%d/%m/%Y %H:%M", TIME),
    ("%m/%d/%Y %H:%M", TIME),
    ("%d/%m/%Y %H:%M:%S", TIME),
    ("%m/%d/%Y %H:%M:%S", TIME),
)
WORDS = {"%Y": "yyyy", "%m": "mm", "%d": "dd", "%H": "hh", "%M": "mm", "%S": "ss", "%f": "fff", "%z": "+zone"}
WORDS |= {"%b": "mon", "%B": "month"}

MAX_LEVELS = 100  # a column with more distinct values is text or an id
FEW_LEVELS = 12  # up to this many are fine for any number of rows; beyond, levels need ROWS_A_LEVEL on average
ROWS_A_LEVEL = 30
RARE = 0.001  # levels with a smaller share of the rows, or a single row, are merged
OTHER, BLANK = "(other)", "(missing)"


def date_format(texts: Sequence[str]) -> str | None:
    """The first format that fits every text, or None."""
    different = sorted(set(texts))
    for form, _ in FORMATS:
        if different and all(_read(text, form) is not None for text in different):
            return form
    return None


def in_words(form: str) -> str:
    """A format as people write it: dd/mm/yyyy."""
    for code, word in WORDS.items():
        form = form.replace(code, word)
    return form


def date_parts(form: str) -> tuple[str, ...]:
    return dict(FORMATS)[form]


def dates_as_numbers(values: NDArray, form: str, year: float) -> tuple[Floats, NDArray[np.bool_]]:
    """The parts of dates [n, P], and which were missing or of another form [n].

    Args:
        values: Text, None where missing.
        form: A format from `date_format`.
        year: Replaces a missing year.
    """
    parts = date_parts(form)
    numbers = np.empty((len(values), len(parts)), dtype=np.float32)
    gone = np.zeros(len(values), dtype=bool)
    known: dict[str, list[float]] = {}
    middle = [MIDDLE.get(part, year) for part in parts]
    for row, text in enumerate(values):
        if text is not None and text not in known:
            date = _read(text, form)
            known[text] = [] if date is None else [float(_part(date, part)) for part in parts]
        found = known[text] if text is not None else []
        gone[row] = not found
        numbers[row] = found or middle
    return numbers, gone


def is_date(text: str, form: str) -> bool:
    return _read(text, form) is not None


def _part(date: datetime, part: str) -> int:
    return date.weekday() if part == "weekday" else getattr(date, part)


def _read(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)
    except ValueError:
        return None


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    Attributes:
        name: Its name in the file.
        kind: "number", "category" or "date".
        median: Replaces a missing number, or the year of a missing date.
        levels: The categories with their own column.
        other: Whether rare categories share a column.
        missing: Whether a column marks missing values.
        form: The format of dates, as for `strptime`.
    """

    name: str
    kind: str
    median: float = 0.0
    levels: tuple[str, ...] = ()
    other: bool = False
    missing: bool = False
    form: str = ""

    @property
    def encoded_names(self) -> list[str]:
        marks = [OTHER] * self.other + [BLANK] * self.missing
        if self.kind == "date":
            return [*(f"{self.name}.{part}" for part in date_parts(self.form)), *(f"{self.name}={m}" for m in marks)]
        if self.kind == "number":
            return [self.name, *(f"{self.name}={mark}" for mark in marks)]
        return [f"{self.name}={level}" for level in [*self.levels, *marks]]


def fit_number(name: str, values: Floats, train: NDArray[np.bool_]) -> Column:
    """How to encode a column of numbers, NaN where missing. `train` masks the rows to fit on."""
    seen = values[train]
    known = seen[~np.isnan(seen)]
    median = float(np.median(known)) if len(known) else 0.0
    return Column(name, "number", median=median if math.isfinite(median) else 0.0, missing=len(known) < len(seen))


def fit_category(name: str, values: NDArray, train: NDArray[np.bool_]) -> Column:
    """How to encode a column of text, None where missing. `train` masks the rows to fit on."""
    seen = values[train]
    known = seen[seen != None]  # noqa: E711  (elementwise)
    levels, counts = np.unique(known.astype(str), return_counts=True)
    rare = counts < max(2, RARE * len(seen))
    return Column(
        name,
        "category",
        levels=tuple(levels[~rare].tolist()),
        other=bool(rare.any()),
        missing=len(known) < len(seen),
    )


def fit_date(name: str, values: NDArray, train: NDArray[np.bool_], form: str) -> Column:
    """How to encode a column of dates, as text, None where missing. `train` masks the rows to fit on."""
    numbers, gone = dates_as_numbers(values[train], form, 0.0)
    known = numbers[~gone, 0]
    year = float(np.median(known)) if len(known) else 0.0
    return Column(name, "date", median=year, missing=bool(gone.any()), form=form)


def unusable(column: Column, values: NDArray, train: NDArray[np.bool_]) -> str | None:
    """Why a column of text cannot be a feature, or None."""
    different = len(set(values[train]) - {None})
    rows = int(train.sum())
    if different > min(MAX_LEVELS, rows / 2):
        return f"{different} different values in {rows} rows, like text or ids"
    if different > max(FEW_LEVELS, rows / ROWS_A_LEVEL):
        return f"{different} different values in {rows} rows, too few rows per value to learn from"
    return "the same value in every row" if len(column.encoded_names) < 2 else None


def encode_columns(columns: Sequence[Column], raw: Mapping[str, NDArray]) -> tuple[list[str], Floats, list[str]]:
    """Applies the encoding.

    Args:
        columns: The fitted columns.
        raw: The values of each: float32 with NaN, or text with None.

    Returns:
        The names of the encoded columns, the numbers [n, D], and remarks on values that did not occur in training.
    """
    parts: list[NDArray] = []
    remarks: list[str] = []
    for column in columns:
        values = raw[column.name]
        if column.kind == "number":
            gone = np.isnan(values)
            if gone.any() and not column.missing:
                remarks.append(f"{column.name!r} has {gone.sum()} missing numbers (filled in with the training median)")
            parts.append(np.where(gone, np.float32(column.median), values) if gone.any() else values)
        elif column.kind == "date":
            dates, gone = dates_as_numbers(values, column.form, column.median)
            strange = sorted({str(value) for value in values[gone] if value is not None})
            if strange:
                remarks.append(f"{column.name!r} has dates that are not {in_words(column.form)} ({some(strange)})")
            parts += list(dates.T)
        else:
            gone = values == None  # noqa: E711  (elementwise)
            known = np.isin(values.astype(str), column.levels) & ~gone
            parts += [(values == level) & known for level in column.levels]
            if column.other:
                parts.append(~known & ~gone)
            elif strange := sorted({str(value) for value in values[~known & ~gone]}):
                remarks.append(f"{column.name!r} has categories that did not occur in training ({some(strange)})")
        if column.missing:
            parts.append(gone)
    names = [name for column in columns for name in column.encoded_names]
    return names, np.column_stack(parts).astype(np.float32), remarks


def to_json(columns: Sequence[Column]) -> list[dict[str, Any]]:
    return [asdict(column) for column in columns]


def from_json(stored: Sequence[Mapping[str, Any]], source: str) -> tuple[Column, ...]:
    try:
        return tuple(Column(**{**about, "levels": tuple(about["levels"])}) for about in stored)
    except (TypeError, KeyError) as error:
        raise DataError(f"{source}: the description of the columns cannot be read ({error})") from None


def to_float32(array: NDArray) -> Floats:
    """Numbers as float32; one that is too large becomes infinite, and the check of the features reports it."""
    with np.errstate(over="ignore"):
        if array.dtype == np.float32 or not is_large(4 * array.size):
            return array.astype(np.float32, copy=False)
        flat = by_chunks(lambda rows: array[rows].reshape(len(array[rows]), -1), (len(array), array[0].size))
        return flat.reshape(array.shape)
