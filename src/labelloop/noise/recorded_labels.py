"""Recorded human noise: the labels that people gave, as CIFAR-10N and CIFAR-100N publish them.

Their files (torch.save's .pt, np.save's .npy) are read without running code from a pickle.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelloop.errors import DataError, UsageError, nearest
from labelloop.noise.draw import Noisy, changes_nothing, checked_labels, realised_rate
from labelloop.safe_pickle import PickledArray, SafeUnpickler
from labelloop.trust import check_growth, load_array
from labelloop.types import MISSING

TRUE_KEY = "clean_label"


def read_label_file(path: str | Path) -> dict[str, NDArray[np.int64]]:
    """All label columns of a file: name -> labels [N]. Anything but a column of whole numbers is left out."""
    path = Path(path)
    readers = {".pt": _read_pt, ".npy": _read_npy}
    if path.suffix not in readers:
        raise UsageError(f"{path}: recorded labels are read from .pt or .npy files, not {path.suffix or 'this'!r}")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file: check the path, or download the file again")
    try:
        content = readers[path.suffix](path)
        columns = {str(name): _column(value) for name, value in content.items()} if isinstance(content, dict) else None
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(
            f"{path}: is not a dictionary of label arrays ({error or type(error).__name__}): download it again"
        ) from error
    if columns is None:
        raise DataError(f"{path}: holds no dictionary of label arrays: save it as {{'clean_label': ..., ...}}")
    return {name: column for name, column in columns.items() if column is not None}


def _read_pt(path: Path) -> Any:
    if not zipfile.is_zipfile(path):  # before torch 1.6: a magic number, a version and the system, then the object
        with path.open("rb") as file:
            *_, content = [SafeUnpickler(file).load() for _ in range(4)]
        return content
    with zipfile.ZipFile(path) as archive:
        listed = {info.filename.split("/")[-1]: info for info in archive.infolist()}
        check_growth(path.stat().st_size, listed["data.pkl"].file_size)
        return SafeUnpickler(io.BytesIO(archive.read(listed["data.pkl"]))).load()


def _read_npy(path: Path) -> Any:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        _, _, dtype = read_header[version](file)
        if not dtype.hasobject:
            return None  # a plain array says neither what it holds nor which rows it belongs to
        objects = SafeUnpickler(file).load().objects()
    return objects[0] if len(objects) == 1 else None


def _column(value: Any) -> NDArray[np.int64] | None:
    """A column of whole numbers, or None."""
    if isinstance(value, PickledArray):
        value = value.numbers()
    elif isinstance(value, list):
        value = np.array(value) if all(isinstance(item, int | np.integer) for item in value) else None
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu":
        return None
    return value.astype(np.int64)


def recorded(
    labels: ArrayLike,
    num_classes: int,
    rate: float | None,
    rng: np.random.Generator | None,
    images: Any = None,
    *,
    path: str | Path | None = None,
    key: str | None = None,
    order: str | Path | None = None,
) -> Noisy:
    """Noisy labels from a file; nothing is random.

    The true labels in the file must equal `labels`, so a file in another order is refused.

    Args:
        labels: The true labels of the first rows of the file, or of all [N]; -1 is missing and stays so.
        num_classes: How many classes there are.
        rate: 1 (or None) to use the record, 0 for no noise. The nominal rate of the result is that of the whole file.
        rng: Ignored.
        images: Ignored.
        path: The .pt or .npy file: a dictionary with `clean_label` and one or more columns of human labels.
        key: Which column, such as "aggre_label". Needed if there is more than one.
        order: An .npy file that names, for every row of the file, its row in the data set: `image_order_c10.npy` beside
            `CIFAR-10_human_ordered.npy`. The .pt files are in the data set's order and need none.
    """
    labels = checked_labels(labels, num_classes)
    if changes_nothing(rate, "the record"):
        return Noisy(labels=labels, matrix=None, probabilities=None, rate=0.0)
    if path is None:
        raise UsageError("recorded noise needs the file of labels: give path=, such as CIFAR-10_human.pt")
    columns = read_label_file(path)
    key = _checked_key(key, columns, path)
    true, given = columns[TRUE_KEY], columns[key]
    if len(true) != len(given):
        raise DataError(f"{path}: {len(true)} true labels but {len(given)} under {key!r}: download the file again")
    if order is not None:
        rows = np.argsort(_read_order(order, len(true)))
        true, given = true[rows], given[rows]
    if len(labels) > len(true):
        raise DataError(f"{path}: holds {len(true)} rows, but there are {len(labels)} labels: wrong data set?")
    differ = np.flatnonzero((labels != MISSING) & (labels != true[: len(labels)]))
    if len(differ):
        row = differ[0]
        raise DataError(
            f"{path}: row {row} has true label {true[row]}, but the data say {labels[row]} ({len(differ)} such rows): "
            "the file is in another order (an '_ordered.npy' file needs order=image_order_*.npy) or of other data"
        )
    human = checked_labels(given[: len(labels)], num_classes, what="recorded label")
    noisy = np.where(labels == MISSING, MISSING, human)
    return Noisy(labels=noisy, matrix=None, probabilities=None, rate=realised_rate(true, given))


def _checked_key(key: str | None, columns: dict[str, NDArray[np.int64]], path: str | Path) -> str:
    if TRUE_KEY not in columns:
        raise DataError(f"{path}: has no {TRUE_KEY!r}, so its rows cannot be matched: use the published file")
    known = [name for name in columns if "clean" not in name and "coarse" not in name]
    if not known:
        raise DataError(f"{path}: has no column of human labels besides {TRUE_KEY!r}: use the published file")
    if key is None and len(known) == 1:
        return known[0]
    if key is None:
        raise UsageError(f"{path}: has several columns of human labels, choose one with key=: {', '.join(known)}")
    if key not in known:
        raise UsageError(f"{path}: has no human labels {key!r}: {nearest(key, known)}")
    return key


def _read_order(path: str | Path, rows: int) -> NDArray[np.int64]:
    try:
        order = load_array(Path(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as an array of row numbers ({error}): download it again") from error
    if order.dtype.kind not in "iu" or not np.array_equal(np.sort(order, axis=None), np.arange(rows)):
        raise DataError(f"{path}: does not name each of the rows 0..{rows - 1} once: is it the order of this data set?")
    return order.reshape(-1)
