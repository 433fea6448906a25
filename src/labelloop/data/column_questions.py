"""Columns that may not be what they seem: ids among the numbers, dates with a typo, numbers with extra characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labelloop.data.columns import plain
from labelloop.data.dates import FORMATS, in_words, is_date
from labelloop.data.written import is_number

ID_NAME = re.compile(r"(^|_)(id|ids|uid|uuid|guid|key|index|idx|nr|no|row|rownames|row_names|obs)$")
CAMEL_ID = re.compile(r"[a-z](Id|ID)$")
FEW = 20  # with fewer rows, different numbers in every row mean nothing
COUNTED = 50  # the same for numbers that count the rows
LOOKED_AT = 50  # distinct texts from which the format of dates is guessed
PRECISE = 10_000  # rows that are checked for digits lost in single precision
ALMOST_ALL = 0.9  # a text column with this share of dates is a column of dates with a typo
SIGNS = re.compile(r"[,'%$€£¥\s]")  # next to digits: thousands separator, percent, currency


def why_an_id(name: str, column: pa.ChunkedArray) -> str | None:
    """Why a column is an id: by its name, with a different whole number in every row."""
    named = ID_NAME.search(plain(name)) or CAMEL_ID.search(name.strip())
    if not named or len(column) < FEW or not _all_different(column):
        return None
    return "an id by its name, different in every row"


def counts_rows(column: pa.ChunkedArray) -> tuple[int, int] | None:
    """The first and last number of a column that holds each whole number between them once; None for any other."""
    if len(column) < COUNTED or not _all_different(column):
        return None
    ends = pc.min_max(column).as_py()
    return (ends["min"], ends["max"]) if ends["max"] - ends["min"] + 1 == len(column) else None


def _all_different(column: pa.ChunkedArray) -> bool:
    whole = pa.types.is_integer(column.type) and not column.null_count
    return bool(whole and pc.count_distinct(column).as_py() == len(column))


def rounded_away(column: pa.ChunkedArray) -> tuple[int, int] | None:
    """How many different numbers the first rows hold, and how many are left in single precision, if that is fewer."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_float64(kind)):
        return None
    exact = np.unique(column.slice(0, PRECISE).drop_null().to_numpy())
    with np.errstate(over="ignore"):  # numbers that are too large are refused elsewhere
        left = len(np.unique(exact.astype(np.float32)))
    return (len(exact), left) if left < ALMOST_ALL * len(exact) else None


def slip_among_dates(texts: Sequence[str | None]) -> tuple[int, str] | None:
    """The first row that is not a date although nearly all are, and their format in words; else None."""
    different = sorted({text for text in texts if text is not None})
    sample = different[:: max(1, len(different) // LOOKED_AT)]
    for form, _ in FORMATS:
        if not different or _share(sample, form) < ALMOST_ALL or _share(different, form) < ALMOST_ALL:
            continue
        return next((row, in_words(form)) for row, text in enumerate(texts) if text and not is_date(text, form))
    return None


def _share(texts: Sequence[str], form: str) -> float:
    return sum(is_date(text, form) for text in texts) / len(texts)


def number_with_signs(values: Iterable[str | None]) -> str | None:
    """An example if nearly all texts are numbers with other characters, such as 1,234 or 5%; else None."""
    different = {value for value in values if value is not None}
    signed = sorted(value for value in different if SIGNS.search(value) and is_number(SIGNS.sub("", value)))
    return signed[0] if different and len(signed) >= ALMOST_ALL * len(different) else None
