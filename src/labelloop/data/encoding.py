"""Encodes the columns of a table: missing values are filled in and marked, categories become columns of 0 and 1.

Fitted on the training rows and stored in model.json, so that new rows are encoded in the same way. A column of numbers
without gaps is not changed. No level or mark gets a column that is constant in training, because its weight would never
be trained; so a new level is a row of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.data.dates import date_parts, dates_as_numbers, in_words
from labelloop.errors import DataError, some
from labelloop.types import Floats

MAX_LEVELS = 100  # a column with more distinct values is text or an id
FEW_LEVELS = 12  # up to this many are fine for any number of rows; beyond, levels need ROWS_A_LEVEL on average
ROWS_A_LEVEL = 30
RARE = 0.001  # levels with a smaller share of the rows, or a single row, are merged
OTHER, BLANK = "(other)", "(missing)"


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
