"""Dates as features: year, month, day, weekday, and the hour where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

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
