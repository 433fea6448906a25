"""Hugging Face data sets, from a folder of `save_to_disk` or by their name on the hub, as Arrow tables."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from labelloop.data.pillow import needing
from labelloop.errors import DataError

PREFIX = "hf:"  # before a name on the hub
MARKS = ("dataset_dict.json", "state.json")  # what save_to_disk writes, for several splits or one


@dataclass(frozen=True)
class HubData:
    """One split of a data set.

    Attributes:
        arrow: Its rows, with class names instead of class numbers.
        split: The split, or None if the data set has no splits.
        class_names: The classes of every ClassLabel column, in order.
        image_columns: The columns of images.
        root: The folder that its files are in; None where the library put them.
    """

    arrow: pa.Table
    split: str | None
    class_names: dict[str, tuple[str, ...]]
    image_columns: tuple[str, ...]
    root: Path | None = None

    def images(self, column: str) -> list[Path | bytes]:
        """The images of a column, encoded or as files; no bytes where one is missing."""
        cells = [cell or {} for cell in self.arrow[column].to_pylist()]
        return [cell.get("bytes") or self._file(cell.get("path")) for cell in cells]

    def _file(self, name: str | None) -> Path | bytes:
        if not name or self.root is None:
            return Path(name) if name else b""
        place = Path(os.path.realpath(self.root / name))
        return place if place.is_relative_to(os.path.realpath(self.root)) else b""


def has_test_split(path: Path) -> bool:
    """Whether a data set on disk or on the hub has a split of this name."""
    if str(path).startswith(PREFIX):
        return "test" in _load(path)
    listed = path / MARKS[0]
    return listed.is_file() and "test" in json.loads(listed.read_text(encoding="utf-8")).get("splits", ())


def read_hub_dataset(path: Path, split: str = "train") -> HubData:
    """Reads a split, or the only one.

    Raises:
        UsageError: The `datasets` library is not installed.
        DataError: The data set cannot be read, or has several splits but not this one.
    """
    datasets, data = _datasets(), _load(path)
    chosen = None
    if isinstance(data, datasets.DatasetDict):
        chosen = split if split in data else next(iter(data)) if len(data) == 1 else None
        if chosen is None:
            raise DataError(f"{path}: no split {split!r}, only {', '.join(data)}; give the folder of one of them")
        data = data[chosen]
    images = [name for name, feature in data.features.items() if isinstance(feature, datasets.Image)]
    classes = {
        name: tuple(feature.names)
        for name, feature in data.features.items()
        if isinstance(feature, datasets.ClassLabel) and feature.names
    }
    arrow = data.with_format("arrow")[:]  # respects a selection or order of rows
    for name, names in classes.items():
        column = _named(arrow[name].to_pylist(), names, f"{path}: column {name!r}")
        arrow = arrow.set_column(arrow.column_names.index(name), name, pa.array(column, pa.string()))
    return HubData(arrow, chosen, classes, tuple(images), None if str(path).startswith(PREFIX) else path)


def _named(numbers: Sequence[int | None], names: Sequence[str], where: str) -> list[str | None]:
    for row, number in enumerate(numbers):
        if number is not None and number >= len(names):
            raise DataError(f"{where}: row {row} holds {number}, but there are {len(names)} classes, counted from 0")
    return [None if number is None or number < 0 else names[number] for number in numbers]


def _load(path: Path) -> Any:
    datasets = _datasets()
    name = str(path)
    try:
        on_hub = name.startswith(PREFIX)
        data = datasets.load_dataset(name.removeprefix(PREFIX)) if on_hub else datasets.load_from_disk(name)
        for split in data.values() if isinstance(data, dict) else (data,):
            split.data.table.validate(full=True)  # a damaged file would end the process once it is looked at
        return data
    except Exception as error:  # every layer below, network or disk, raises its own kind of error
        advice = "check its name and the network" if name.startswith(PREFIX) else "save it again"
        raise DataError(f"{path}: cannot be read as a data set ({type(error).__name__}: {error}); {advice}") from error


def _datasets() -> Any:
    with needing("hub", "reading a Hugging Face data set"):
        return import_module("datasets")
