"""Ambiguous labels: the user is asked, with counts, and nothing is decided silently."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.data.classes import MISSING_TEXT, typed
from labelloop.errors import DataError, UsageError, some

MANY = 30  # a column of more distinct numbers may be a measurement
FEW_ROWS = 10  # rows per class


def ask_about_markers(given: Counter[str], clean: Counter[str], source: str) -> None:
    """Refuses -1, None or nan among the given labels if it may be a class.

    Text always raises the question. The number -1 does if the labels are among -1, 0 and 1, if other labels are
    negative too, or if it occurs in both label columns.

    Args:
        given: The count of each given label.
        clean: The count of each clean label.
        source: For messages.

    Raises:
        UsageError: With where and how often it occurs, and how to decide.
    """
    found = [marker for marker in MISSING_TEXT if marker and marker in given]
    classes = [name for name in given if name not in MISSING_TEXT]
    if not found or not classes:
        return
    if all(_is_whole(name) for name in classes):
        numbers = sorted(int(float(name)) for name in classes)
        both = any(marker in clean for marker in found)
        if numbers[0] >= 0 and numbers != [0, 1] and len(numbers) > 1 and not both:
            return
    marker = found[0]
    raise UsageError(
        f"{source}: {marker!r} occurs {given[marker]} times among the given labels (beside {_said(given, classes)}) and"
        f" {clean.get(marker, 0)} times among the clean ones: a class, or a missing label? say --missing {marker} if"
        " these labels are missing, --missing blank if it is a class"
    )


def name_spellings(given: Counter[str], clean: Counter[str], source: str) -> None:
    """Says which whole numbers are written in two ways, 1 and 1.0, and read as one class.

    Warns:
        UserWarning: Some are.
    """
    names = [name for name in {**given, **clean} if name not in MISSING_TEXT]
    if not all(_is_whole(name) for name in names):
        return  # text: classes of their own
    for group in _variants(names):
        warnings.warn(f"{source}: {_named(group, given, clean)} are read as one class", stacklevel=4)


def _said(counts: Counter[str], names: Sequence[str]) -> str:
    return some(f"{name}: {counts[name]}" for name in sorted(names))


def _is_whole(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.0)?", text))


def compare_labels(labels: NDArray | None, clean_labels: NDArray | None, source: str, markers: Sequence[str]) -> None:
    """Compares the classes of given and clean labels.

    Raises:
        DataError: They share none.

    Warns:
        UserWarning: Names differ only in case, spaces or a trailing ".0".
    """
    given, clean = _classes(labels, markers), _classes(clean_labels, markers)
    alike = _variants([*given, *clean])
    kinds = {values.dtype.kind for values in (labels, clean_labels) if values is not None}
    mixed = "U" in kinds and len(kinds) > 1  # reported when the classes are numbered
    if given and clean and not mixed and not set(given) & set(clean):
        hint = f"; {_named(alike[0], given, clean)} differ only in how they are written" if alike else ""
        raise DataError(
            f"{source}: given and clean labels share no class: given are {_said(given, list(given))}, clean are"
            f" {_said(clean, list(clean))}{hint}; write both alike, or name the right columns with label_column and"
            " clean_column"
        )
    for group in alike:
        warnings.warn(
            f"{source}: {_named(group, given, clean)} count as different classes; if they are one, write them alike",
            stacklevel=3,
        )


def _classes(labels: NDArray | None, markers: Sequence[str]) -> Counter[str]:
    if labels is None:
        return Counter()
    array, missing = typed(labels, markers=markers)
    array = array.astype(np.int64) if array.dtype.kind == "b" else array
    return Counter(str(value) for value in array[~missing].tolist())


def _variants(names: Sequence[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(re.sub(r"[\s_-]+", " ", name.strip().casefold()).removesuffix(".0"), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _named(group: Sequence[str], given: Counter[str], clean: Counter[str]) -> str:
    return " and ".join(f"{name!r} ({given[name] + clean[name]} times)" for name in group)


def question_numbers(labels: NDArray | None, column: str | None, guessed: bool, source: str) -> None:
    """Asks whether a column of many distinct numbers is the label or a measurement.

    Raises:
        UsageError: The column was guessed.

    Warns:
        UserWarning: It was named.
    """
    classes: Any = None
    if labels is not None and column is not None:
        array, missing = typed(labels)
        classes = np.unique(array[~missing])
    if classes is None or classes.dtype.kind != "i" or len(classes) <= MANY:
        return
    rows = int((~missing).sum())
    if rows >= FEW_ROWS * len(classes) or np.array_equal(classes, np.arange(classes[0], classes[0] + len(classes))):
        return
    message = (
        f"{source}: column {column!r} holds {len(classes)} different numbers in {rows} rows (from {classes[0]} to"
        f" {classes[-1]}), which looks like a measurement, not like classes"
    )
    if guessed:
        raise UsageError(f"{message}; if it is the label, say so with label_column")
    warnings.warn(f"{message}; every number becomes its own class", stacklevel=3)
