"""The table every user has: inputs with two optional labels per row, before classes are numbered."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from labelloop.data.checks import check_not_sparse
from labelloop.data.classes import MISSING_TEXT
from labelloop.data.columns import Feature, Roles, SchemaSummary
from labelloop.data.encoding import Column, to_float32
from labelloop.data.features import Features, Source, features_of
from labelloop.data.frames import are_plain_numbers, are_texts, arrow_of, is_frame
from labelloop.data.image_files import ImageForm, Unreadable
from labelloop.data.options import ReadOptions
from labelloop.data.suspicion import Labelled
from labelloop.errors import DataError
from labelloop.large_arrays import is_large
from labelloop.types import EncoderForm, Floats, RawInputs, StreamedStore

CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Table:
    """Rows in memory, in the user's order.

    Attributes:
        inputs: Features [n, D] in float32, images [n, H, W, C] in uint8 or float32, or a map-style dataset; or the
            original texts or images, for an encoder.
        labels: The given labels, of the user's type, or None.
        clean_labels: The clean labels, of the user's type, or None.
        ids: The id of every row as text: the user's, else the row number.
        split: "train" or "test" for every row, or None if there are no test rows.
        extra: Further columns for the correction network, or None.
        column_names: The names of the features, empty for images and datasets.
        source: Where the rows came from, for messages.
        ids_given: Whether the ids are the user's own, so that equal ids in two tables mean the same row.
        class_names: The classes in order, if the source gives them.
        encoding: How the named columns became numbers; empty if they already were.
        beside: Numbers of other columns, which are joined to what an encoder makes of `inputs`, or None.
        image_form: How image files became inputs, if they did.
        encoder_form: How an encoder made the inputs from texts or images, if it did.
        raw: The texts or images that the encoder saw.
        unreadable: The images that could not be used; their rows are neither trained nor tested on.
        origin: The record of the source for run.json, as from `origin_of`; None for arrays in memory.
        markers: Labels that mean "missing", besides a blank, None and NaN.
        schema_summary: How every column of the source is used; None for arrays in memory.
    """

    inputs: Any
    labels: NDArray | None  # [n]
    clean_labels: NDArray | None  # [n]
    ids: NDArray  # [n]
    split: NDArray | None = None  # [n]
    extra: Floats | None = None  # [n, E]
    column_names: tuple[str, ...] = ()
    source: str = "the given arrays"
    ids_given: bool = False
    class_names: tuple[str, ...] | None = None
    encoding: tuple[Column, ...] = ()
    beside: Floats | None = None  # [n, D]
    image_form: ImageForm | None = None
    encoder_form: EncoderForm | None = None
    raw: RawInputs | None = None
    unreadable: tuple[Unreadable, ...] = ()
    origin: Mapping[str, Any] | None = None
    markers: tuple[str, ...] = MISSING_TEXT
    schema_summary: SchemaSummary | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which rows have an input [n]."""
        mask = np.ones(len(self), dtype=bool)
        mask[[bad.row for bad in self.unreadable]] = False
        return mask


def from_arrays(
    inputs: Any,
    labels: ArrayLike | None = None,
    clean_labels: ArrayLike | None = None,
    *,
    ids: ArrayLike | None = None,
    split: ArrayLike | None = None,
    extra: ArrayLike | None = None,
    column_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    source: str = "the given arrays",
    origin: Mapping[str, Any] | None = None,
    encoding: Sequence[Column] | None = None,
) -> Table:
    """A table from arrays, lists, data frames or a map-style dataset.

    Args:
        inputs: As `Table.inputs`, of any number type; or a data frame, whose columns are read like those of a file;
            or texts.
        labels: The given labels, missing ones blank, NaN, None or -1.
        clean_labels: The clean labels, missing where a row has none.
        ids: An id for every row; by default the row number.
        split: "train" or "test" for every row.
        extra: Further columns for the correction network.
        column_names: The names of the features; by default those of the data frame, else x[0], x[1], ...
        class_names: The classes in order.
        source: Where the rows came from, for messages.
        origin: The record of the source for run.json.
        encoding: The encoding of an earlier data frame, to get the same features again.

    Raises:
        DataError: Lengths differ, or an array has a shape or type that cannot be used.
    """
    fitted: tuple[Column, ...] = ()
    schema_summary = None
    if is_frame(inputs) or are_texts(inputs):
        found = _features(inputs, source, encoding, (labels, clean_labels))
        inputs, column_names, fitted = found.values, column_names or found.names, found.encoding
        schema_summary = SchemaSummary((), found.used, found.left_out, found.remarks)
    names = column_names if column_names is not None else getattr(inputs, "columns", None)
    inputs = _inputs(inputs, source)
    table = Table(
        inputs=inputs,
        labels=None if labels is None else np.asarray(labels),
        clean_labels=None if clean_labels is None else np.asarray(clean_labels),
        ids=np.asarray(range(len(inputs)) if ids is None else ids).astype(str),
        split=None if split is None else split_names(split, source),
        extra=None if extra is None else _extra(extra, source),
        column_names=_names_of_columns(names, inputs, source),
        source=source,
        ids_given=ids is not None,
        class_names=None if class_names is None else tuple(str(name) for name in class_names),
        origin=origin,
        encoding=fitted,
        schema_summary=schema_summary,
    )
    check_lengths(table)
    return table


def _features(
    inputs: Any, source: str, encoding: Sequence[Column] | None, labels: tuple[ArrayLike | None, ArrayLike | None]
) -> Features:
    """The features of a data frame, or of texts; without labels, numbers without gaps are the numbers as they are."""
    if not is_frame(inputs):
        name = next((column.name for column in encoding or () if column.kind == "text"), "text")
        inputs = pa.table({name: pa.array([str(text) for text in inputs], pa.string())})
        return features_of(_source(inputs, source, ReadOptions(text_columns=(name,), encoding=encoding or None)))
    arrow = arrow_of(inputs, source)
    both = [None if values is None else np.asarray(values) for values in labels]
    given, clean = (None if one is None or one.shape != (arrow.num_rows,) else one for one in both)  # refused later
    labelled = None if encoding else Labelled.of(given, clean, MISSING_TEXT, source)
    plain = not encoding and arrow.num_columns > 0 and are_plain_numbers(arrow)
    if plain and labelled is None:
        values = to_float32(np.column_stack([column.to_numpy() for column in arrow.columns]))
        used = tuple(Feature(name, "number") for name in arrow.column_names)
        return Features(values, arrow.column_names, used=used)
    found = features_of(_source(arrow, source, ReadOptions(encoding=encoding or None), labelled))
    return replace(found, encoding=()) if plain and list(found.names or ()) == arrow.column_names else found


def _source(arrow: pa.Table, name: str, options: ReadOptions, labelled: Labelled | None = None) -> Source:
    return Source(arrow, Roles(), Path(name), options, np.ones(arrow.num_rows, dtype=bool), labelled)


def _names_of_columns(names: Sequence[Any] | None, inputs: Any, source: str) -> tuple[str, ...]:
    """A name for every column of features; none for images and datasets."""
    if not isinstance(inputs, np.ndarray) or inputs.ndim != 2:
        return ()
    width = inputs.shape[1]
    found = tuple(f"x[{j}]" for j in range(width)) if names is None else tuple(str(name) for name in names)
    if len(found) != width:
        raise DataError(f"{source}: {len(found)} column names for {width} columns; name every column")
    return found


def check_lengths(table: Table) -> None:
    """Refuses a table whose parts do not have one entry per row."""
    count = len(table.inputs)
    for what in ("labels", "clean_labels", "ids", "split", "extra"):
        part = getattr(table, what)
        if part is not None and (found := len(np.atleast_1d(part))) != count:  # a dictionary is a single object
            raise DataError(f"{table.source}: {count} rows of inputs, but {found} {what}; give one for every row")


def split_names(values: ArrayLike, source: str) -> NDArray:
    """Reads a split column: "train" or "test" in any case; blank means train."""
    text = np.char.lower(np.char.strip(np.asarray(values).astype(str)))
    text[np.isin(text, ("", "none", "nan"))] = "train"
    bad = np.flatnonzero(~np.isin(text, ("train", "test")))
    if len(bad):
        raise DataError(f"{source}: the split of row {bad[0]} is {str(text[bad[0]])!r}; a split is 'train' or 'test'")
    return text


def _inputs(inputs: Any, source: str) -> Any:
    check_not_sparse(inputs, source)
    if isinstance(inputs, str | bytes | Path | Mapping):
        raise DataError(f"{source}: inputs of type {type(inputs).__name__}; give a data frame, an array or a dataset")
    if not isinstance(inputs, list | tuple) and hasattr(inputs, "__getitem__") and not hasattr(inputs, "__array__"):
        inputs = _read_whole(inputs, source)
        if not isinstance(inputs, np.ndarray):
            return inputs  # a map-style dataset whose items are read when needed
    array = np.asarray(inputs)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{source}: inputs of type {array.dtype} are not numbers; give numbers, images or embeddings")
    if array.ndim == 3:
        array = array[..., None]  # grey images
    if array.ndim == 4:
        if array.shape[3] not in CHANNELS and array.shape[1] in CHANNELS:
            array = np.moveaxis(array, 1, 3)  # torch's order
        return array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
    if array.ndim != 2:
        raise DataError(f"{source}: inputs of shape {array.shape}; expected features [n, D] or images [n, H, W, C]")
    if not array.shape[1]:
        raise DataError(f"{source}: inputs without columns (shape {array.shape}); give one or more features")
    return to_float32(array)


def _read_whole(dataset: Any, source: str) -> Any:
    """The items of a map-style dataset as an array, so that they are treated like one; or the dataset itself.

    It stays a dataset if it streams files, is large, has items of several shapes, or gives another item each time, as
    one that augments does. For items that are rows of features that is said: learners of columns cannot use them.
    """
    if isinstance(dataset, StreamedStore | RawInputs) or not hasattr(dataset, "__len__") or not len(dataset):
        return dataset
    first, again = _item(dataset, 0), _item(dataset, 0)
    if first.dtype.kind not in "biuf" or first.ndim not in (1, 3) or is_large(len(dataset) * first.nbytes):
        return dataset
    if first.shape != again.shape or not np.array_equal(first, again, equal_nan=True):
        if first.ndim == 1:
            warnings.warn(
                f"{source}: reading row 0 twice gives other values, so the rows are not scaled, and only networks"
                " learn from them; give a dataset without randomness, or an array",
                stacklevel=4,
            )
        return dataset
    items = [first, *(_item(dataset, row) for row in range(1, len(dataset)))]
    return np.stack(items) if all(item.shape == first.shape for item in items) else dataset


def _item(dataset: Any, row: int) -> NDArray:
    """An item of a dataset, without its label if it has one."""
    item = dataset[row]
    return np.asarray(item[0] if isinstance(item, tuple | list) else item)


def _extra(extra: ArrayLike, source: str) -> Floats:
    array = np.asarray(extra)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise DataError(f"{source}: extra columns are numbers [n, E], not {array.dtype} of shape {array.shape}")
    return to_float32(array.reshape(len(array), -1))
