"""What the files of a run may hold, checked where they are read: a wrong type is one line with the file and the field.

A shape is a type, a tuple of shapes of which one holds, a list with the shape of its items, `{str: shape}` for any
keys, or a dict of fields. A field that ends in "?" may be missing, and what is not named may be anything plain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelloop.errors import DataError

DEEPEST = 40
LARGEST = 1e300
NUMBER = (int, float)
TEXT_OR_NONE = (str, None)
NUMBERS = {str: (*NUMBER, None)}
COUNTS = ("rows", "noisy", "unlabelled", "clean_paired", "clean_unpaired")

SHARE: dict[str, Any] = {
    **{f"{name}?": (*NUMBER, None) for name in ("value", "low", "high")},
    "rows?": (int, None),
    "how?": TEXT_OR_NONE,
    "if_noise_model_holds?": ({}, None),
}
OF_CLASS: dict[str, Any] = {
    **{f"{name}?": NUMBER for name in ("good", "broken", "wrong", "fixed", "clean_rows")},
    **{f"{name}?": (SHARE, None) for name in ("precision", "recall", "given_precision", "given_recall")},
}
ESTIMATE = {
    **{f"{name}?": (SHARE, None) for name in ("corrected_label_accuracy", "good_labels_broken", "wrong_labels_fixed")},
    "given_label_accuracy?": (SHARE, None),
    "level?": NUMBER,
    "notes?": [str],
    "reliability?": ([NUMBERS], None),
    "by_class?": ([OF_CLASS], None),
    "at_risk?": ([{"class": int, "why": str, "verify": int}], None),
    "alternatives?": (NUMBERS, None),
}
SOURCE = {
    "kind?": str,
    "path": str,
    "sha256?": TEXT_OR_NONE,
    **{f"{name}?": TEXT_OR_NONE for name in ("listing", "label_column", "clean_column", "id_column")},
    "file_name_column?": TEXT_OR_NONE,
    "options?": {"added_rows?": int, "delimiter?": TEXT_OR_NONE, "encoder?": TEXT_OR_NONE},
    "class_names?": [str],
    "encoder?": ({"name?": str, "version?": str}, None),
}
ROUND = {
    "round?": int,
    "epoch?": int,
    "components?": [str],
    "weights?": [NUMBER],
    "component_losses?": [(*NUMBER, None)],
}
RUN = {
    "schema_version?": int,
    "kind?": str,
    "method?": str,
    "config?": {"corrector?": {}},
    "seed?": int,
    "data?": {
        "source?": str,
        **{f"{name}?": int for name in COUNTS},
        "classes?": [str],
        "sha256?": TEXT_OR_NONE,
        "test?": ({}, None),
    },
    "versions?": {str: str},
    "source?": (SOURCE, None),
    "state?": str,
    "stop_reason?": TEXT_OR_NONE,
    "rounds?": [ROUND],
    "labels_from?": TEXT_OR_NONE,
    "estimate?": (ESTIMATE, None),
    "weights?": (NUMBERS, None),
    "weights_without_label?": (NUMBERS, None),
    "guard?": ({"line?": str}, None),
    "seconds?": (NUMBERS, None),
    "experiment?": {"method?": str, "seed?": int},
    "refitted_from?": str,
    "threads?": {},
    "newly_verified?": int,
}
MEASURED = ("test_accuracy", "corrected_label_accuracy", "given_label_accuracy", "clean_accuracy")
EPOCH = {"epoch": int, "seconds?": (NUMBERS, None), **{f"{name}?": (*NUMBER, None) for name in MEASURED}}
FORM_LATER = {"trained?": bool, "column?": TEXT_OR_NONE, "width?": (int, None), "preprocessing?": {}}
MODEL = {
    "network": str,
    "network_options": {},
    "input_shape": [int],
    "classes": [(str, int, bool, float)],
    "column_names": [str],
    "encoding?": [{}],
    "image_form?": ({"height": int, "width": int, "streamed": bool}, None),
    "encoder_form?": ({"name": str, "kind": str, "version": str, **FORM_LATER}, None),
    "text_form?": ({"embedder": str, "column": TEXT_OR_NONE}, None),
}


def check(content: Any, shape: Any, path: Path | str) -> None:
    """Compares the content of a file with its shape.

    Raises:
        DataError: It differs, with the file and the field.
    """
    _plain(content, path, "", 0)
    _check(content, shape, path, "")


def _check(value: Any, shape: Any, path: Path | str, field: str) -> None:
    if isinstance(shape, tuple):
        if not any(_fits(value, one) for one in shape):
            raise _wrong(value, path, field)
        shape = next(one for one in shape if _fits(value, one))
    if not _fits(value, shape):
        raise _wrong(value, path, field)
    if isinstance(shape, list):
        for number, item in enumerate(value):
            _check(item, shape[0], path, f"{field}[{number}]")
    elif isinstance(shape, dict):
        named = f"{field}." if field else ""
        if str in shape:
            for key, item in value.items():
                _check(item, shape[str], path, f"{named}{key}")
            return
        for key, inner in shape.items():
            name = key.removesuffix("?")
            if name in value:
                _check(value[name], inner, path, f"{named}{name}")
            elif not key.endswith("?"):
                raise DataError(f"{path}: {named}{name} is missing; no run writes that, so the file is damaged")


def _fits(value: Any, shape: Any) -> bool:
    """Whether a value is of the kind of a shape, whatever is inside."""
    if shape is None:
        return value is None
    if isinstance(shape, list):
        return isinstance(value, list)
    if isinstance(shape, dict):
        return isinstance(value, dict)
    if isinstance(shape, tuple):
        return any(_fits(value, one) for one in shape)
    return isinstance(value, shape) and (shape is bool or not isinstance(value, bool))


def _wrong(value: Any, path: Path | str, field: str) -> DataError:
    return DataError(f"{path}: {field or 'the content'} is {value!r:.60}; no run writes that, so the file is damaged")


def _plain(value: Any, path: Path | str, field: str, depth: int) -> None:
    """Refuses what JSON can hold and nothing of ours does: surrogates, numbers without end, nesting without end."""
    if depth > DEEPEST:
        raise DataError(f"{path}: {field[:60]} is nested too deep; no run writes that, so the file is damaged")
    if isinstance(value, str):
        _text(value, path, field)
    elif isinstance(value, int | float):
        if (isinstance(value, float) and math.isinf(value)) or abs(value) > LARGEST:
            raise DataError(f"{path}: {field} is a number without end; no run writes that, so the file is damaged")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _text(key, path, field)
            _plain(inner, path, f"{field}.{key}" if field else key, depth + 1)
    elif isinstance(value, Sequence):
        for inner in value:
            _plain(inner, path, field, depth + 1)


def _text(value: str, path: Path | str, field: str) -> None:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(f"{path}: {field} is not text; no run writes that, so the file is damaged") from None


# --- labels.parquet and targets.npy -----------------------------------------------------------------------------------

_CLASS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_floating)
COLUMNS: dict[str, tuple[Any, ...]] = {
    "id": (pa.types.is_string, pa.types.is_large_string),
    "given_label": _CLASS,
    "corrected_label": _CLASS,
    "corrected_confidence": (pa.types.is_floating,),
    "changed": (pa.types.is_boolean,),
    "verified": (pa.types.is_boolean,),
    "predicted_label": _CLASS,
    "is_label_issue": (pa.types.is_boolean,),
    "label_score": (pa.types.is_floating,),
}
WHOLE = ("id", "changed", "verified", "is_label_issue")  # columns without a gap


def check_labels(table: pa.Table, path: Path, *, complete: bool) -> None:
    """Checks the columns of labels.parquet.

    Args:
        table: The file.
        path: Where it is.
        complete: Whether every column must be there; older versions wrote fewer.

    Raises:
        DataError: One is missing, twice there, of another type, or has gaps.
    """
    names = table.column_names
    for name, kinds in COLUMNS.items():
        if names.count(name) > 1 or (complete and name not in names):
            raise DataError(f"{path}: {'two columns' if name in names else 'no column'} {name!r}; the file is damaged")
        if name not in names:
            continue
        kind = table.schema.field(name).type
        if not any(is_kind(kind) for is_kind in kinds):
            raise DataError(f"{path}: column {name!r} is of type {kind!s:.40}; no run writes that, so it is damaged")
        if name in WHOLE and table[name].null_count:
            raise DataError(f"{path}: column {name!r} has gaps; no run writes that, so the file is damaged")
    labels = [table.schema.field(name).type for name in ("given_label", "corrected_label") if name in names]
    if len(set(labels)) > 1:
        raise DataError(f"{path}: given and corrected labels are of different types; the file is damaged")


def classes_as(names: Sequence[str], kind: pa.DataType, path: Path) -> list[Any]:
    """The classes of run.json in the type of the labels.

    Raises:
        DataError: They are of another type.
    """
    try:
        if pa.types.is_integer(kind):
            return [int(name) for name in names]
        if pa.types.is_floating(kind):
            return [float(name) for name in names]
    except ValueError:
        raise DataError(f"{path}: the classes {names!r:.60} are not of the type of the labels, {kind}") from None
    return [name == "True" for name in names] if pa.types.is_boolean(kind) else list(names)


def check_classes(table: pa.Table, classes: Sequence[Any], path: Path) -> None:
    """Refuses labels that are not among the classes of run.json."""
    for name in ("given_label", "corrected_label", "predicted_label"):
        if name in table.column_names:
            strange = set(table[name].unique().to_pylist()) - set(classes) - {None}
            if strange:
                raise DataError(
                    f"{path}: column {name!r} holds {next(iter(strange))!r:.60}, which is not a class of the run"
                )


def check_targets(targets: NDArray, rows: int, classes: int, path: Path) -> None:
    """Refuses soft labels of another type or shape [rows, classes]."""
    if targets.dtype.kind != "f" or targets.shape != (rows, classes):
        raise DataError(
            f"{path}: {targets.dtype} values of shape {targets.shape} for {rows} rows, {classes} classes; it is damaged"
        )


def check_rows(arrays: Mapping[str, NDArray], rows: int, classes: int, path: Path) -> None:
    """Checks features.npz: labels of every row, and inputs of every row [rows, ...]."""
    for name in ("given", "clean", "judges"):
        kinds, found = "b" if name == "judges" else "i", arrays[name]
        if found.dtype.kind not in kinds or found.shape != (rows,):
            raise DataError(f"{path}: {name} holds {found.dtype} values of shape {found.shape}; the file is damaged")
        if name != "judges" and ((found < -1) | (found >= classes)).any():
            raise DataError(f"{path}: {name} holds a class that does not exist; the file is damaged")
    for name, found in arrays.items():
        if name in ("given", "clean", "judges"):
            continue
        if found.dtype.kind not in "fiu" or found.ndim != 2 or len(found) != rows or not found.shape[1]:
            raise DataError(f"{path}: {name} holds {found.dtype} values of shape {found.shape}; the file is damaged")
        if name in ("logits", "noisy_posterior") and found.shape[1] != classes:
            raise DataError(f"{path}: {name} has {found.shape[1]} columns for {classes} classes; the file is damaged")
        if not np.isfinite(found).all():
            raise DataError(f"{path}: {name} holds values that are not numbers; the file is damaged")
