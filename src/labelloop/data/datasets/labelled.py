"""What every data set returns, where data sets are looked for, and the options that they share."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelloop.data.image_files import ImageFiles
from labelloop.errors import DataError, UsageError
from labelloop.types import MISSING, Labels

SAMPLE = 256  # rows of the inputs in the fingerprint
SAMPLE_FILES = 16

VARIABLE = "LABELLOOP_DATA"

InputsAndLabels = tuple[Any, ArrayLike]


@dataclass(frozen=True)
class LabelledData:
    """A data set. Shape letters: N training rows, T test rows.

    Attributes:
        name: The data set's name in DATASETS.
        source: The file or folder it was read from.
        inputs: Training inputs: uint8 images [N, H, W, C], float32 rows [N, D], or `ImageFiles` of N large images.
        labels: True labels [N]; -1 where unknown.
        given_labels: The noisy labels that the data set comes with [N], -1 where a row has none; None if the labels
            are true and noise is added later.
        clean_index: The clean rows that the data set defines [M]; None if they are drawn later.
        test_inputs: Like `inputs`, for T test rows.
        test_labels: True labels [T].
        class_names: The classes in order.
        noise_inputs: Returns the inputs of instance-dependent noise [N, ...], if these are not `inputs`. A function,
            because most noises do not need them.
        fingerprint: A checksum of the training rows. It is the same for the same rows in another file format.
    """

    name: str
    source: str
    inputs: Any
    labels: Labels
    test_inputs: Any
    test_labels: Labels
    class_names: tuple[str, ...]
    given_labels: Labels | None = None
    clean_index: Labels | None = None
    noise_inputs: Callable[[], NDArray] | None = None
    fingerprint: str = ""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


def labelled(
    name: str, source: object, train: InputsAndLabels, test: InputsAndLabels, names: Sequence[str], **own: Any
) -> LabelledData:
    """Checks the parts of a data set against each other, and computes its fingerprint.

    Args:
        name: The data set's name in DATASETS.
        source: The file or folder it was read from.
        train: Inputs and true labels of the training rows.
        test: The same for the test rows.
        names: The classes in order.
        own: Given labels, clean rows and inputs for noise, if it has its own: further fields of LabelledData.

    Raises:
        DataError: Lengths differ, or a label is not a class.
    """
    (inputs, labels), (test_inputs, test_labels), classes = train, test, len(names)
    given = own.pop("given_labels", None)
    if given is not None:
        given = _checked(given, len(inputs), classes, f"{source}: given label", may_miss=True)
    # If it comes with noisy labels, the true ones may be unknown.
    true = _checked(labels, len(inputs), classes, f"{source}: label", may_miss=given is not None)
    tested = _checked(test_labels, len(test_inputs), classes, f"{source}: test label")
    fingerprint, class_names = fingerprint_of(inputs, true, given), tuple(map(str, names))
    parts = (name, str(source), inputs, true, test_inputs, tested, class_names, given)
    return LabelledData(*parts, fingerprint=fingerprint, **own)


def fingerprint_of(inputs: Any, labels: Labels, given_labels: Labels | None = None) -> str:
    """A checksum of all labels and of some inputs: evenly spaced rows or files."""
    digest = hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes())
    if given_labels is not None:
        digest.update(np.ascontiguousarray(given_labels, dtype="<i8").tobytes())
    if isinstance(inputs, ImageFiles):
        for i in _spread(len(inputs), SAMPLE_FILES):
            digest.update(inputs.path(int(i)).read_bytes())
    else:
        digest.update(f"{inputs.dtype.str} {inputs.shape}".encode())
        digest.update(np.ascontiguousarray(inputs[_spread(len(inputs), SAMPLE)]).tobytes())
    return digest.hexdigest()


def _spread(count: int, wanted: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, min(wanted, count)).astype(np.int64))


def _checked(labels: ArrayLike, count: int, classes: int, what: str, may_miss: bool = False) -> Labels:
    array = np.asarray(labels)
    if array.dtype.kind not in "iu" or array.shape != (count,):
        raise DataError(
            f"{what}s of type {array.dtype} and shape {array.shape} for {count} rows; expected one number each"
        )
    array = array.astype(np.int64)
    bad = np.flatnonzero((array < (MISSING if may_miss else 0)) | (array >= classes))
    if len(bad):
        raise DataError(f"{what} {array[bad[0]]} of row {bad[0]} is not a class: there are {classes}, counted from 0")
    return array


def checked_limit(limit: int | None, count: int | None = None, name: str = "limit") -> int | None:
    """Checks a limit. `count` is the number of such rows, once known."""
    rows = "test rows" if name == "test_limit" else "training rows"
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1:
        raise UsageError(f"{name} is {limit!r}: give the number of {rows} to use, 1 or more, or leave it out")
    if count is not None and limit > count:
        raise UsageError(f"{name} is {limit}, but there are {count} {rows}: give {count} or less, or leave it out")
    return int(limit)


def check_flags(**flags: bool) -> None:
    """Refuses anything but true or false: the text "false" would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise UsageError(f"{name} is {value!r}: give True or False")


def places(root: str | Path | None) -> list[Path]:
    """The folder to look in: `root`, else LABELLOOP_DATA; none if neither is set."""
    named = root if root is not None else os.environ.get(VARIABLE)
    return [Path(named).expanduser()] if named else []


def not_found(name: str, root: str | Path | None, needed: str) -> DataError:
    """The error for a data set that was not found, or whose folder is not set."""
    if not places(root):
        return DataError(
            f"{name}: no folder of data sets is set; set {VARIABLE} to the folder that holds {needed}, or give root="
        )
    looked_in = [f"{place}{'' if place.exists() else ' (does not exist)'}" for place in places(root)]
    return DataError(
        f"{name}: not found in {', '.join(looked_in)}; put {needed} there, or name another folder with root= or the"
        f" variable {VARIABLE}"
    )
