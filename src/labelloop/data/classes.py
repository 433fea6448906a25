"""Translates between the user's labels (text, whole numbers, true/false) and the numbers 0 .. C-1 of the methods.

A missing label is blank, NaN or None, or one of the markers, such as -1, unless the user says that these are classes.
It becomes -1 here, whatever the type of the labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from labelloop.errors import DataError, UsageError, nearest, some
from labelloop.types import MISSING, Labels

# How Python and pandas spell a missing value as text. Lower-case "none" stays a class: defect data sets often have it.
MISSING_TEXT = ("", "nan", "NaN", "None", "<NA>", "-1", "-1.0")


LARGEST = np.iinfo(np.int64).max  # a larger number stays text
EXACT = 2**53  # beyond this, a float can stand for several whole numbers


def typed(
    values: ArrayLike, what: str = "label", markers: Sequence[str] = MISSING_TEXT
) -> tuple[NDArray, NDArray[np.bool_]]:
    """Converts labels to int64, bool or text, and finds the missing ones.

    Whole numbers that became floats because some are missing become whole numbers again.

    Args:
        values: One label per row, of any type.
        what: Their name in messages.
        markers: Labels that mean "missing", besides a blank, None and NaN.

    Returns:
        The labels, and a mask of the missing ones. Masked labels have no meaning.
    """
    minus_one = "-1" in markers
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"{what}: expected one label per row, got an array of shape {array.shape}")
    if array.dtype.kind == "O" or array.dtype.kind == "T":
        return _from_objects(array.astype(object), what, markers)
    large = array.dtype.kind == "u" and array.size and array.max() > LARGEST  # a class name like any other
    if array.dtype.kind == "b" or large:
        return array.astype(str) if large else array, np.zeros(len(array), dtype=bool)
    if array.dtype.kind in "iu":
        return array.astype(np.int64), (array == MISSING) & minus_one
    if array.dtype.kind == "f":
        missing = np.isnan(array) | ((array == MISSING) & minus_one)
        whole = np.where(missing, MISSING, array)
        bad = np.flatnonzero(~np.isfinite(whole) | (whole != np.floor(whole)) | (np.abs(whole) > EXACT))
        if len(bad):
            raise DataError(
                f"{what}: row {bad[0]} holds {array[bad[0]]}, which is not a class; labels are text or whole numbers"
                f" ({len(bad)} such rows: {some(bad)})"
            )
        return whole.astype(np.int64), missing
    if array.dtype.kind in "US":
        text = np.char.strip(array.astype(str))
        return text, np.isin(text, ("", *markers))
    raise DataError(f"{what}: labels of type {array.dtype} cannot be classes; use text or whole numbers")


def _from_objects(array: NDArray, what: str, markers: Sequence[str]) -> tuple[NDArray, NDArray[np.bool_]]:
    """The same for an array of Python objects, which must all be of one type."""
    markers = ("", *markers)
    absent = np.array([value is None or is_nan(value) for value in array], dtype=bool)
    rest = array[~absent].tolist()
    text = [isinstance(value, str) for value in rest]
    if any(text) and not all(text):
        # Numbers with "" where one is missing are common; a mix of numbers and names is a mistake.
        blank = np.array([isinstance(v, str) and v.strip() in markers for v in array], dtype=bool)
        if (blank & ~absent).sum() < sum(text):
            rows = np.flatnonzero([isinstance(v, str) and v.strip() not in markers for v in array])
            raise DataError(
                f"{what}: text and numbers are mixed (text in row {some(rows)}); write all labels as text or as numbers"
            )
        absent = absent | blank
        rest = array[~absent].tolist()
    found = np.array(rest) if rest else np.zeros(0, dtype=np.int64)
    if rest and all(isinstance(value, int) for value in rest) and max(map(abs, rest)) > LARGEST:
        found = np.array([str(value) for value in rest])
    elif found.dtype.kind == "O":
        raise DataError(f"{what}: {rest[0]!r} cannot be a class; use text or whole numbers")
    values, missing = typed(found, what, markers)
    full = np.zeros(len(array), dtype=values.dtype)
    full[~absent] = values
    absent[~absent] = missing
    return full, absent


def markers_beside(classes: ArrayLike) -> tuple[str, ...]:
    """The usual markers of a missing label that are not classes."""
    return tuple(marker for marker in MISSING_TEXT if marker not in set(text_of(classes)))


def is_nan(value: Any) -> bool:
    # pandas.NA cannot be compared, and pandas is not a dependency, so it is recognised by its name.
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float | np.floating) and value != value)


def class_names_of(
    labels: ArrayLike | None,
    clean_labels: ArrayLike | None,
    given: Iterable[Any] | None = None,
    markers: Sequence[str] = MISSING_TEXT,
) -> NDArray:
    """The classes in order, in the type of the labels.

    Args:
        labels: The given labels, or None.
        clean_labels: The clean labels, or None.
        given: The classes in the wanted order. By default the classes that occur, sorted: numbers by value, text
            alphabetically. If the labels are whole numbers and these are names, label k means the k-th name.
        markers: As for `typed`.

    Returns:
        An array [C] of int64, bool or text.
    """
    found = {}
    for what, values in (("label", labels), ("clean_label", clean_labels)):
        if values is not None:
            array, missing = typed(values, what, markers)
            if not missing.all():
                found[what] = array[~missing]
    kinds: set[str] = {array.dtype.kind for array in found.values()}
    if given is not None:
        return _as_given(list(given), kinds, markers)
    if not found:
        raise DataError("no row has a label: every label and clean_label is blank, NaN, None or -1")
    if "U" in kinds and len(kinds) > 1:
        text, numbers = sorted(found, key=lambda what: found[what].dtype.kind != "U")
        raise DataError(
            f"{text} holds text (such as {found[text][0]!s}) and {numbers} holds numbers (such as"
            f" {found[numbers][0]!s}); write both alike, or give the class names in the order of the numbers"
        )
    if kinds == {"b", "i"}:
        found = {what: array.astype(np.int64) for what, array in found.items()}
    return np.unique(np.concatenate(list(found.values())))


def _as_given(given: list[Any], kinds: set[str], markers: Sequence[str]) -> NDArray:
    if not given:
        raise UsageError("class_names is empty: name the classes, or leave it out")
    classes, missing = typed(np.array(given, dtype=object), "class_names", markers)
    if missing.any():
        raise UsageError(f"class_names: {given[int(np.argmax(missing))]!r} means a missing label and cannot be a class")
    names, counts = np.unique(classes, return_counts=True)
    if (counts > 1).any():
        raise UsageError(f"class_names: named more than once: {some(names[counts > 1])}")
    if classes.dtype.kind == "U" and kinds == {"i"} and all(_is_whole(name) for name in classes):
        return classes.astype(np.int64)
    if classes.dtype.kind == "U" and kinds == {"b"} and set(np.char.lower(classes)) == {"true", "false"}:
        return np.char.lower(classes) == "true"
    return classes


def _is_whole(text: str) -> bool:
    return text.lstrip("-").isdecimal() and str(int(text)) == text


def encode(
    values: ArrayLike, class_names: ArrayLike, what: str = "label", markers: Sequence[str] = MISSING_TEXT
) -> Labels:
    """Turns labels into class numbers.

    Args:
        values: One label per row.
        class_names: The classes in order, as from `class_names_of`.
        what: The name of the labels in messages.
        markers: As for `typed`.

    Returns:
        Labels from 0 to C-1, and -1 where missing.

    Raises:
        DataError: A label is not among the classes; the message names the rows.
    """
    array, missing = typed(values, what, markers)
    classes = np.asarray(class_names)
    if classes.dtype.kind == "O":
        classes = typed(classes, "class_names", ())[0]
    if array.dtype.kind == "b" and classes.dtype.kind == "U":
        array = np.where(array, "True", "False")
    if array.dtype.kind in "bi" and classes.dtype.kind in "bi":
        array, classes = array.astype(np.int64), classes.astype(np.int64)
    elif array.dtype.kind == "i" and classes.dtype.kind == "U":
        # Numbers that are also names ("3") mean those names; otherwise they are positions in the list.
        text = array.astype(str)
        if missing.all() or not np.isin(text[~missing], classes).all():
            return _checked(array, missing, (array >= 0) & (array < len(classes)), np.asarray(values), classes, what)
        array = text
    elif array.dtype.kind == "U" and classes.dtype.kind != "U":
        classes = classes.astype(str)
    order = np.argsort(classes, kind="stable")
    place = order[np.minimum(np.searchsorted(classes[order], array), len(classes) - 1)]  # [N]
    return _checked(place, missing, classes[place] == array, np.asarray(values), classes, what)


def _checked(
    place: NDArray, missing: NDArray[np.bool_], known: NDArray[np.bool_], values: NDArray, classes: NDArray, what: str
) -> Labels:
    bad = np.flatnonzero(~known & ~missing)
    if len(bad):
        strange = list(dict.fromkeys(str(values[row]) for row in bad))
        hint = nearest(strange[0], [str(name) for name in classes]) if len(classes) <= 20 else ""
        raise DataError(
            f"{what}: {some(map(repr, strange))} is not among the {len(classes)} classes, in row {some(bad)}"
            " (the first row is 0); correct it or leave it blank; a class must occur among the labels of the training"
            f" rows, or the classes you named. {hint}".rstrip()
        )
    return np.where(missing, MISSING, place).astype(np.int64)


def decode(labels: Labels, classes: ArrayLike, like: DTypeLike | None = None) -> NDArray:
    """Turns class numbers back into the user's labels; the reverse of `encode`.

    Args:
        labels: Labels from 0 to C-1, or -1 where missing.
        classes: The classes in order.
        like: The type of the user's labels; by default that of the classes.

    Returns:
        The labels in that type. A missing one is -1 among numbers, "" in text, NaN among floats, None otherwise.
    """
    classes, labels = np.asarray(classes), np.asarray(labels)
    dtype = classes.dtype if like is None else np.dtype(like)
    missing = labels == MISSING
    if dtype.kind in "iuf" and classes.dtype.kind == "U":
        # The user's labels were positions in a list of names, or the names are numbers.
        whole = all(_is_whole(str(name)) for name in classes)
        if whole and any(abs(int(name)) > LARGEST for name in classes):
            dtype = classes.dtype
        else:
            classes = classes.astype(np.int64) if whole else np.arange(len(classes))
    values = classes[np.where(missing, 0, labels)]
    if dtype.kind == "O" or (dtype.kind == "b" and missing.any()):
        return np.array([None if gone else v for gone, v in zip(missing, values.tolist(), strict=True)], dtype=object)
    if dtype.kind in "US":  # the text type of the user's array may be too short for another class
        values = values.astype(str)
        values[missing] = ""
        return values
    if missing.any() and dtype.kind == "u":
        dtype = np.dtype(np.int64)
    values = values.astype(dtype)
    if missing.any():
        values[missing] = np.nan if dtype.kind == "f" else MISSING
    return values


def text_of(classes: ArrayLike) -> tuple[str, ...]:
    """The classes as text, for output."""
    return tuple(str(name) for name in np.asarray(classes))


def numbers_where_all_are(
    columns: Sequence[NDArray | None], markers: Sequence[str] = MISSING_TEXT
) -> list[NDArray | None]:
    """Turns columns of text, as in a CSV file, into whole numbers if every label in all of them is one.

    All or none, so that a label and a clean label of the same class stay equal. "3.0" is 3 (pandas writes that when
    a label is missing); "007" stays text, and so does a number of more than 64 bits.
    """
    markers = ("", *markers)
    uniques = [np.unique(column, return_inverse=True) for column in columns if column is not None]
    present = [value for names, _ in uniques for value in names if value.strip() not in markers]
    texts = [value.strip().removesuffix(".0") for value in present]
    if not texts or not all(_is_whole(text) and abs(int(text)) <= LARGEST for text in texts):
        return list(columns)
    numbers = iter(_whole_numbers(names, markers)[inverse] for names, inverse in uniques)
    return [None if column is None else next(numbers) for column in columns]


def _whole_numbers(names: NDArray, markers: Sequence[str]) -> NDArray:
    """Text as whole numbers; -1 where missing, or None where -1 is a class."""
    found = [None if name.strip() in markers else int(name.strip().removesuffix(".0")) for name in names]
    if "-1" in markers:
        return np.array([MISSING if number is None else number for number in found], dtype=np.int64)
    return np.array(found, dtype=object if None in found else np.int64)
