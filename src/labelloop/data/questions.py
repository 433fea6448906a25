"""Ambiguous columns and labels: the user is asked, and nothing is decided silently."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelloop.data.classes import MISSING_TEXT, typed
from labelloop.data.columns import is_number, plain
from labelloop.data.encoding import FORMATS, in_words, is_date
from labelloop.errors import DataError, UsageError, some

ID_NAME = re.compile(r"(^|_)(id|ids|uid|uuid|guid|key|index|idx|nr|no|row|rownames|row_names|obs)$")
CAMEL_ID = re.compile(r"[a-z](Id|ID)$")
FEW = 20  # with fewer rows, different numbers in every row mean nothing
COUNTED = 50  # the same for numbers that count the rows
LOOKED_AT = 50  # distinct texts from which the format of dates is guessed
PRECISE = 10_000  # rows that are checked for digits lost in single precision
ALMOST_ALL = 0.9  # a text column with this share of dates is a column of dates with a typo
MANY = 30  # a column of more distinct numbers may be a measurement
FEW_ROWS = 10  # rows per class
PADDED, VERSION = re.compile(r"0\d+(\.\d+)?"), re.compile(r"\d+\.[1-9]0")
TRUTHS = {"true": "1", "false": "0"}  # as programs write them
SHOWN = 3  # groups of spellings in a message


def is_id(name: str, column: pa.ChunkedArray) -> bool:
    """Whether a column is an id: by its name, with a different whole number in every row."""
    return is_id_name(name) and len(column) >= FEW and _all_different(column)


def is_id_name(name: str) -> bool:
    """Whether a column is named as ids are."""
    return bool(ID_NAME.search(plain(name)) or CAMEL_ID.search(name.strip()))


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


def lost_digits(texts: Sequence[str]) -> str | None:
    """What is lost where texts are read as numbers, and how to keep it: zeros of codes or versions; None if nothing."""
    if found := next((text for text in texts if VERSION.fullmatch(text) and text[:-1] in texts), None):
        return f"{found!r} as {found[:-1]}; if these are versions, name it with category_columns"
    padded = next((text for text in texts if PADDED.fullmatch(text)), None)
    if padded is None or not all(text.replace(".", "", 1).isdecimal() for text in texts):
        return None
    return f"without its leading zeros ({padded!r}); if it is a code, name it with category_columns"


def slip_among_dates(texts: Sequence[str | None]) -> tuple[int, str] | None:
    """The first row that is not a date although nearly all are, and their format in words; else None."""
    different = sorted({text for text in texts if text is not None})
    sample = different[:: max(1, len(different) // LOOKED_AT)]
    for form in FORMATS:
        if not different or _share(sample, form) < ALMOST_ALL or _share(different, form) < ALMOST_ALL:
            continue
        return next((row, in_words(form)) for row, text in enumerate(texts) if text and not is_date(text, form))
    return None


def _share(texts: Sequence[str], form: str) -> float:
    return sum(is_date(text, form) for text in texts) / len(texts)


def ask_about_markers(given: Counter[str], clean: Counter[str], source: str, *, usual: bool = False) -> None:
    """Refuses -1, None or nan among the given labels if it may be a class.

    Text always raises the question. The number -1 does if the labels are among -1, 0 and 1, if other labels are
    negative too, or if it occurs in both label columns.

    Args:
        given: The count of each given label.
        clean: The count of each clean label.
        source: For messages.
        usual: Whether -1 usually means a missing clean label, as in arrays, so that it says nothing about given ones.

    Raises:
        UsageError: With where and how often it occurs, and how to decide.
    """
    found = [marker for marker in MISSING_TEXT if marker and marker in given]
    classes = [name for name in given if name not in MISSING_TEXT]
    if not found or not classes:
        return
    if all(_is_whole(name) for name in classes):
        numbers = sorted(int(float(name)) for name in classes)
        both = not usual and any(marker in clean for marker in found)
        if numbers[0] >= 0 and numbers != [0, 1] and len(numbers) > 1 and not both:
            return
    marker = found[0]
    raise UsageError(
        f"{source}: {marker!r} occurs {given[marker]} times among the given labels (besides {_said(given, classes)})"
        f" and {clean.get(marker, 0)} times among the clean ones: is it a class or a missing label? say --missing"
        f" {marker} if these labels are missing, or --missing blank if it is a class"
    )


def name_spellings(given: Counter[str], clean: Counter[str], source: str, *, numbers: bool) -> None:
    """Says which labels are written in several ways and read as one class: with blanks around them, or 1 and 1.0.

    Args:
        given: The count of each given label as written, blanks included.
        clean: The same for clean labels.
        source: For messages.
        numbers: Whether labels that are all whole numbers are read as numbers.

    Warns:
        UserWarning: Some are.
    """
    names = [name for name in {**given, **clean} if name.strip() not in MISSING_TEXT]
    whole = numbers and all(_is_whole(name.strip()) for name in names)
    groups: dict[str, list[str]] = {}
    for name in names:
        key = name.strip().removesuffix(".0") if whole else name.strip()
        groups.setdefault(key, []).append(name)
    several = [group for group in groups.values() if len(group) > 1]
    if several:
        warnings.warn(f"{source}: {_listed(several, given, clean)} are read as one class", stacklevel=4)


def _said(counts: Counter[str], names: Sequence[str]) -> str:
    return some(f"{name}: {counts[name]}" for name in sorted(names))


def _is_whole(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.0)?", text))


def compare_labels(
    labels: NDArray | None,
    clean_labels: NDArray | None,
    source: str,
    markers: Sequence[str],
    declared: Sequence[str] = (),
) -> None:
    """Compares the classes of given and clean labels.

    Args:
        labels: Given labels.
        clean_labels: Clean labels.
        source: Where they are from, for messages.
        markers: What means that a label is missing.
        declared: Classes that the source names, which are not questioned.

    Raises:
        DataError: They share none.

    Warns:
        UserWarning: Names differ only in case, spaces, signs that look alike or how a number is written, or are true
            and 1; or clean labels hold a class that no given label has.
    """
    given = _classes(labels, markers, f"{source}: label")
    clean = _classes(clean_labels, markers, f"{source}: clean_label")
    alike = variants([*given, *clean])
    kinds = {values.dtype.kind for values in (labels, clean_labels) if values is not None}
    mixed = "U" in kinds and len(kinds) > 1  # reported when the classes are numbered
    if given and clean and not mixed and not set(given) & set(clean):
        hint = f"; {_named(alike[0], given, clean)} differ only in how they are written" if alike else ""
        raise DataError(
            f"{source}: given and clean labels share no class: given are {_said(given, list(given))}, clean are"
            f" {_said(clean, list(clean))}{hint}; write both alike, or name the right columns with label_column and"
            " clean_column"
        )
    if alike:
        named = _listed(alike, given, clean)
        warnings.warn(f"{source}: {named} count as different classes; if they are one, write them alike", stacklevel=3)
    known = {*given, *declared}.union(*alike)
    new = [name for name in clean if name not in known]
    if given and new and not mixed:
        warnings.warn(
            f"{source}: clean labels hold {some(f'{name!r} ({clean[name]} times)' for name in new)}, which"
            " never occur as given labels; if that is not a class, correct it, or mark it as missing"
            f" (--missing={new[0]})",
            stacklevel=3,
        )


def _classes(labels: NDArray | None, markers: Sequence[str], what: str) -> Counter[str]:
    if labels is None:
        return Counter()
    array, missing = typed(labels, what, markers)
    array = array.astype(np.int64) if array.dtype.kind == "b" else array
    return Counter(str(value) for value in array[~missing].tolist())


def variants(names: Sequence[str]) -> list[list[str]]:
    """Groups of two or more names that a reader would take for the same."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        bare = _bare(name)
        groups.setdefault(TRUTHS.get(bare, bare), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _bare(name: str) -> str:
    """A name without case, blanks, invisible signs and leading zeros; a number as its value: 1e3 and 1000.0 as 1000."""
    text = "".join(sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf")
    text = text.strip().casefold()
    if text.removesuffix(".0").isdecimal():
        return text.removesuffix(".0").lstrip("0") or "0"
    return f"{float(text):.15g}" if is_number(text) else re.sub(r"[\s_-]+", " ", text).removesuffix(".0")


def _listed(groups: Sequence[Sequence[str]], given: Counter[str], clean: Counter[str]) -> str:
    return some((_named(group, given, clean) for group in groups), SHOWN)


def _named(group: Sequence[str], given: Counter[str], clean: Counter[str]) -> str:
    """The names with counts; by their code points where they look the same."""
    alike = len({unicodedata.normalize("NFKC", name) for name in group}) < len(group)
    hidden = any(unicodedata.category(sign) == "Cf" for name in group for sign in name)
    show = ascii if alike or hidden else repr
    return " and ".join(f"{show(name)} ({given[name] + clean[name]} times)" for name in group)


def question_numbers(labels: NDArray | None, column: str | None, guessed: bool, source: str) -> None:
    """Asks whether a column of many distinct numbers is the label or a measurement.

    Raises:
        UsageError: The column was guessed.

    Warns:
        UserWarning: It was named.
    """
    if labels is None or column is None:
        return
    array, missing = typed(labels, f"{source}: {column}")
    classes, rows = _as_numbers(np.unique(array[~missing])), int((~missing).sum())
    if len(classes) <= MANY or rows >= FEW_ROWS * len(classes):
        return
    if np.array_equal(classes, np.arange(classes[0], classes[0] + len(classes))):
        return
    message = (
        f"{source}: column {column!r} holds {len(classes)} different numbers in {rows} rows (from {classes[0]} to"
        f" {classes[-1]}), which looks like a measurement, not like classes"
    )
    if guessed:
        raise UsageError(f"{message}; if it is the label, say so with label_column")
    warnings.warn(f"{message}; every number becomes its own class", stacklevel=3)


def _as_numbers(classes: NDArray) -> NDArray:
    """Classes that are numbers, sorted; none if some are names, or codes such as 007."""
    if classes.dtype.kind == "U":
        names = classes.tolist()
        codes = [re.fullmatch(r"-?0\d+", name) is not None for name in names]
        usable = all(map(is_number, names)) and not any(codes)
        return np.unique(np.array([float(name) for name in names] if usable else []))
    return classes if classes.dtype.kind == "i" else classes[:0]
