"""Columns as numbers: missing values are filled in and marked, categories become columns of 0 and 1, dates and texts
several. Numbers may be written with a currency, a unit, a percent sign or thousands separators.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.data.words import Words, fit_words, from_text, to_text, words_as_numbers
from labelloop.errors import DataError, some
from labelloop.large_arrays import by_chunks, is_large
from labelloop.types import Floats

DATE = ("year", "month", "day", "weekday")
TIME = (*DATE, "hour")
MIDDLE = {"month": 6.5, "day": 15.5, "weekday": 3.0, "hour": 12.0}  # replaces a missing date
# Day first if the order is ambiguous, as in most of the world; the user is told.
DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d-%b-%y"),
    *("%b %d %Y", "%b %d, %Y", "%d %b %Y", "%d-%b-%Y", "%B %d %Y", "%B %d, %Y", "%d %B %Y", "%d/%m/%y", "%m/%d/%y"),
    *("%d.%m.%y", "%Y%m%d"),
)
ISO = (" %H:%M:%S", "T%H:%M:%S", " %H:%M", " %H:%M:%S.%f", "T%H:%M:%S.%f", "T%H:%M:%S%z", " %H:%M:%S%z")
TIMES = [f"%Y-%m-%d{time}" for time in ISO]
CLOCKS = (" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
TIMES += [f"{date}{time}" for time in CLOCKS for date in ("%d/%m/%Y", "%m/%d/%Y")]
ANY_ISO = "yyyy-mm-dd, some with a time"  # as `datetime.fromisoformat` reads them
FORMATS = {**dict.fromkeys(DATES, DATE), **dict.fromkeys([*TIMES, ANY_ISO], TIME)}  # the parts of each
WORDS = {"%Y": "yyyy", "%m": "mm", "%d": "dd", "%H": "hh", "%M": "mm", "%S": "ss", "%f": "fff", "%z": "+zone"}
WORDS |= {"%b": "mon", "%B": "month", "%y": "yy", "%I": "hh", "%p": "am"}

KINDS = ("number", "category", "date", "text")
GAPS = {"number": "numbers (filled in with the training median)"}
MAX_LEVELS = 256  # categories with a column of their own: the most frequent ones
FEW_LEVELS = 12  # up to this many are categories for any number of rows
COVERED = 0.7  # with more, this share of the rows must have a value that occurs ENOUGH times; else it is text or an id
ENOUGH = 3
RARE = 0.001  # where there are fewer than MANY_LEVELS, levels with a smaller share of the rows are merged
MANY_LEVELS = 100
OTHER, BLANK = "(other)", "(missing)"
MOST_UNITS = 4  # of numbers in a column; what has more are codes


# How people write a number: with a currency before or after it, a unit, a percent sign, thousands separators, in
# brackets where it is negative, or as hours and minutes.
_CURRENCY = r"(?:[A-Z]{0,2}[$€£¥₹]|USD|EUR|GBP|JPY|CHF|CAD|AUD|CNY|INR)"
_BEFORE, _AFTER = rf"(?:{_CURRENCY}\s?)?", rf"(?:\s?{_CURRENCY}|\s?[%‰°]|\s?[A-Za-zµ°Ω][A-Za-z/²³]{{0,5}})?"
STYLES = {
    style: re.compile(f"{_BEFORE}(?P<number>{digits}){_AFTER}")
    for style, digits in {
        "1,234.5": r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+|\d+\.",
        "1.234,5": r"\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+(?:,\d+)?",
        "1 234.5": r"\d{1,3}(?:[\s'’]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?",
    }.items()
}
CLOCK = "hh:mm"
STYLES[CLOCK] = re.compile(r"(?P<number>\d{1,3}:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?)(?:\s?(?P<half>[AaPp])[Mm])?")


def number_style(texts: Iterable[str], share: float) -> str | None:
    """How numbers are written, a key of STYLES, if at least this share of the different texts are such numbers.

    A unit made of letters must stand in all of them: 12a and 12b are codes, 1K and 1M differ a thousandfold.
    """
    different = sorted(set(texts))
    for style in STYLES:
        found = [text for text in different if signed_number(text, style) is not None]
        if different and len(found) >= share * len(different) and (style == CLOCK or not several_units(found)):
            return style
    return None


def several_units(texts: Iterable[str]) -> list[str]:
    """The signs beside the digits of texts, if some are units made of letters and others are not the same."""
    signs = signs_of(texts)
    units = [sign for sign in signs if re.search("[A-Za-z]", sign) and not re.fullmatch(_CURRENCY, sign)]
    return signs if units and len(signs) > 1 else []


def mixed_units(texts: Sequence[str], share: float) -> list[str]:
    """The few units that numbers have, if at least this share of the texts are numbers, and their units differ."""
    found = [text for text in texts if any(signed_number(text, style) is not None for style in STYLES)]
    units = several_units(found) if len(found) >= share * len(texts) else []
    return units if len(units) <= MOST_UNITS else []


def signed_number(text: str, style: str) -> float | None:
    """The number that a text holds, or None."""
    bare = text.strip()
    if negative := bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip()
    sign = bare[:1] if bare[:1] in "+-−" else ""
    found = STYLES[style].fullmatch(bare.removeprefix(sign).strip())
    if found is None:
        return None
    digits = found["number"]
    if style == CLOCK:
        number = sum(float(part) / 60**k for k, part in enumerate(digits.split(":")))
        number = number if not found["half"] else number % 12 + 12 * (found["half"] in "Pp")
    elif style == "1,234.5":
        number = float(digits.replace(",", ""))
    elif style == "1.234,5":
        number = float(digits.replace(".", "").replace(",", "."))
    else:
        number = float(re.sub(r"[\s'’]", "", digits).replace(",", "."))
    return -number if negative or sign in ("-", "−") else number


def signs_of(texts: Iterable[str]) -> list[str]:
    """What stands beside the digits of numbers, the most frequent first: $, %, kg; "" where nothing does."""
    bare = Counter(re.sub(r"[\d.,:'’+\-−()\s]", "", text) for text in texts)
    return sorted(bare, key=lambda sign: (-bare[sign], sign))


def date_format(texts: Sequence[str]) -> tuple[str, bool] | None:
    """The first format that fits every text, and whether days and months may be the other way round; or None."""
    different = sorted(set(texts))

    def fits(form: str) -> bool:
        return form in FORMATS and all(_read(text, form) is not None for text in different)

    for form in FORMATS if different else ():
        if fits(form):
            turned = form.translate({ord("d"): "m", ord("m"): "d"})
            return form, turned != form and fits(turned)
    return None


def in_words(form: str) -> str:
    """A format as people write it: dd/mm/yyyy."""
    for code, word in WORDS.items():
        form = form.replace(code, word)
    return form


def is_blank(values: NDArray) -> NDArray[np.bool_]:
    """Which values are missing: NaN among numbers, None among texts."""
    return np.isnan(values) if values.dtype.kind == "f" else values == None  # noqa: E711  (elementwise)


def dates_as_numbers(values: NDArray, form: str, year: float) -> tuple[Floats, NDArray[np.bool_]]:
    """The parts of dates [n, P], and which were missing or of another form [n].

    Args:
        values: Text, None where missing.
        form: A format from `date_format`.
        year: Replaces a missing year.
    """
    parts = FORMATS[form]
    numbers = np.empty((len(values), len(parts)), dtype=np.float32)
    gone = np.zeros(len(values), dtype=bool)
    known: dict[str, list[float]] = {}
    middle = [MIDDLE.get(part, year) for part in parts]
    for row, text in enumerate(values):
        if text is not None and text not in known:
            date = _read(text, form) or (_read(text, ANY_ISO) if form.startswith("%Y-%m-%d") else None)
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
    """A date; in UTC if it has a time zone."""
    try:
        date = datetime.fromisoformat(text) if form == ANY_ISO else datetime.strptime(text, form)
        return date if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    Attributes:
        name: Its name in the file.
        kind: "number", "category", "date" or "text".
        median: Replaces a missing number, or the year of a missing date.
        levels: The categories with their own column.
        other: Whether rare categories share a column.
        missing: Whether a column marks missing values.
        form: The format of dates, as for `strptime`; for numbers with signs, how they are written.
        sentinels: Numbers that stand for a missing one, such as -999.
        words: The words of texts.
    """

    name: str
    kind: str
    median: float = 0.0
    levels: tuple[str, ...] = ()
    other: bool = False
    missing: bool = False
    form: str = ""
    sentinels: tuple[float, ...] = ()
    words: Words | None = field(default=None, compare=False, repr=False)

    @property
    def encoded_names(self) -> list[str]:
        marks = [OTHER] * self.other + [BLANK] * self.missing
        if self.words is not None:
            return [*(f"{self.name}~{j}" for j in range(self.words.width)), *(f"{self.name}={m}" for m in marks)]
        if self.kind == "date":
            return [*(f"{self.name}.{part}" for part in FORMATS[self.form]), *(f"{self.name}={m}" for m in marks)]
        if self.kind == "number":
            return [self.name, *(f"{self.name}={mark}" for mark in marks)]
        return [f"{self.name}={level}" for level in [*self.levels, *marks]]


def fit_number(name: str, values: Floats, train: NDArray[np.bool_], form: str = "") -> Column:
    """How to encode a column of numbers, NaN where missing. `train` masks the rows to fit on."""
    seen = values[train]
    known = seen[~np.isnan(seen)]
    median = float(np.median(known)) if len(known) else 0.0
    median = median if math.isfinite(median) else 0.0
    return Column(name, "number", median=median, missing=len(known) < len(seen), form=form)


def fit_category(name: str, values: NDArray, train: NDArray[np.bool_], most: int = MAX_LEVELS) -> Column:
    """How to encode a column of text, None where missing.

    Args:
        name: The column.
        values: Its texts.
        train: Masks the rows to fit on.
        most: The most categories with a column of their own.
    """
    seen = values[train]
    known = seen[~is_blank(seen)]
    levels, counts = np.unique(known.astype(str), return_counts=True)
    rare = counts < (2 if len(levels) > MANY_LEVELS else max(2, RARE * len(seen)))
    rare[np.argsort(-counts, kind="stable")[most:]] = True
    return Column(
        name, "category", levels=tuple(levels[~rare].tolist()), other=bool(rare.any()), missing=len(known) < len(seen)
    )


def fit_date(name: str, values: NDArray, train: NDArray[np.bool_], form: str) -> Column:
    """How to encode a column of dates, as text, None where missing. `train` masks the rows to fit on."""
    numbers, gone = dates_as_numbers(values[train], form, 0.0)
    known = numbers[~gone, 0]
    year = float(np.median(known)) if len(known) else 0.0
    return Column(name, "date", median=year, missing=bool(gone.any()), form=form)


def fit_text(name: str, values: NDArray, train: NDArray[np.bool_], width: int) -> Column | None:
    """How to encode a column of texts, None where missing; None if they share no words."""
    seen = values[train]
    words = fit_words(seen, width)
    if words is None:
        return None
    return Column(name, "text", missing=bool(is_blank(seen).any()), words=words)


def are_categories(values: NDArray, train: NDArray[np.bool_]) -> bool:
    """Whether texts repeat often enough to be categories."""
    known = values[train]
    _, counts = np.unique(known[~is_blank(known)].astype(str), return_counts=True)
    if len(counts) <= FEW_LEVELS:
        return len(counts) <= counts.sum() / 2
    return counts[counts >= ENOUGH].sum() >= COVERED * counts.sum()


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
        gone = is_blank(values)
        if gone.any() and not column.missing:
            what = GAPS.get(column.kind, "values, and training had none")
            remarks.append(f"{column.name!r} has {gone.sum()} missing {what}")
        if column.kind == "number":
            parts.append(np.where(gone, np.float32(column.median), values) if gone.any() else values)
        elif column.kind == "date":
            dates, gone = dates_as_numbers(values, column.form, column.median)
            strange = sorted({str(value) for value in values[gone] if value is not None})
            if strange:
                remarks.append(f"{column.name!r} has dates that are not {in_words(column.form)} ({some(strange)})")
            parts += list(dates.T)
        elif column.words is not None:
            parts += list(words_as_numbers(column.words, values).T)
        else:
            place = {level: j for j, level in enumerate(column.levels)}
            codes = np.array([place.get(value, -1) for value in values], dtype=np.int64)  # [n]
            known = codes >= 0
            parts += [codes == j for j in range(len(column.levels))]
            if column.other:
                parts.append(~known & ~gone)
            elif strange := sorted({str(value) for value in values[~known & ~gone]}):
                remarks.append(f"{column.name!r} has categories that did not occur in training ({some(strange)})")
        if column.missing:
            parts.append(gone)
    names = [name for column in columns for name in column.encoded_names]
    return names, np.column_stack(parts).astype(np.float32), remarks


def to_json(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The encoding as plain data, for model.json."""
    found = []
    for column in columns:
        about = asdict(replace(column, words=None))
        if column.words is not None:
            about |= {"words": to_text(column.words.weights), "levels": list(column.words.terms)}
        found.append(about if column.words is not None else {k: v for k, v in about.items() if k != "words"})
    return found


def from_json(stored: Sequence[Mapping[str, Any]], source: str) -> tuple[Column, ...]:
    """The reverse of `to_json`, for a file that may come from a stranger."""
    columns = []
    try:
        for about in stored:
            fields = {**about, "levels": tuple(about["levels"]), "sentinels": tuple(about.get("sentinels", ()))}
            if (one := fields.pop("sentinel", None)) is not None:  # models of earlier versions
                fields["sentinels"] = (one,)
            if fields.get("words") is not None:
                terms = fields["levels"]
                if not all(isinstance(term, str) for term in terms) or len(set(terms)) < len(terms):
                    raise ValueError("words that are no text, or occur twice")
                fields |= {"words": Words(terms, from_text(fields["words"], len(terms))), "levels": ()}
            columns.append(_checked(Column(**fields)))
    except (TypeError, KeyError, ValueError) as error:
        raise DataError(f"{source}: the description of the columns cannot be read ({error})") from None
    return tuple(columns)


def _checked(column: Column) -> Column:
    """A column of the types that a run writes."""
    texts = (column.name, column.form, *column.levels)
    flags, numbers = (column.other, column.missing), (column.median, *column.sentinels)
    right = column.kind in KINDS and all(isinstance(text, str) for text in texts)
    if not right or {*map(type, flags)} != {bool} or not {*map(type, numbers)} <= {int, float}:
        raise ValueError(f"a field of column {column.name!r:.40} is of another type")
    return column


def to_float32(array: NDArray) -> Floats:
    """Numbers as float32; one that is too large becomes infinite, and the check of the features reports it."""
    with np.errstate(over="ignore"):
        if array.dtype == np.float32 or not is_large(4 * array.size):
            return array.astype(np.float32, copy=False)
        flat = by_chunks(lambda rows: array[rows].reshape(len(array[rows]), -1), (len(array), array[0].size))
        return flat.reshape(array.shape)
