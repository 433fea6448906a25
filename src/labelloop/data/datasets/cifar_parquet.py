"""CIFAR in the hub's layout: Parquet files with encoded images and the names of the classes in their metadata."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.data.datasets.cifar_record import SIZE, Cifar, Split, Variant, concatenated
from labelloop.data.datasets.decoded import decoded_once
from labelloop.data.images.pillow import decode_all, need_pillow
from labelloop.errors import DataError, some

IMAGE_COLUMN = "img"
ROWS_AT_A_TIME = 1000


def parquet_folder(place: Path, name: str) -> Path | None:
    """The folder of the files: one of that name, one inside it (as on the hub), or the given folder."""
    folders = [place / name, *sorted(path for path in (place / name).glob("*") if path.is_dir()), place]
    return next((folder for folder in folders if _files(folder, "train")), None)


def read_parquet(folder: Path, variant: Variant, limit: int | None = None) -> Cifar:
    """Reads a folder of train-*.parquet and test-*.parquet.

    Args:
        folder: Where they are.
        variant: Which of the two data sets it is.
        limit: Decode only the first training rows.
    """
    need_pillow(f"{folder}: decoding its images")
    train_files, test_files = _files(folder, "train"), _files(folder, "test")
    for files, split in ((train_files, "train"), (test_files, "test")):
        _check_complete(files, split, folder)
    names = _names(train_files[0], variant)
    about = (variant.name, variant.label_column)
    train = decoded_once(train_files, (*about, limit), lambda: _read(train_files, variant, limit))
    test = decoded_once(test_files, about, lambda: _read(test_files, variant, None))
    return Cifar(train, test, names)


def _files(folder: Path, split: str) -> list[Path]:
    return sorted(folder.glob(f"{split}-*.parquet"))


def _check_complete(files: list[Path], split: str, folder: Path) -> None:
    if not files:
        raise DataError(f"{folder}: has no {split}-*.parquet: download it again")
    said = re.search(r"-of-(\d+)\.parquet$", files[0].name)
    if said and int(said[1]) != len(files):
        raise DataError(
            f"{folder}: only {len(files)} of {int(said[1])} {split} files found ({some(f.name for f in files)}):"
            " download the others"
        )


def _names(path: Path, variant: Variant) -> tuple[str, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _class_names(pq.read_schema(path).metadata, variant)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}): download it again") from error


def _read(files: list[Path], variant: Variant, limit: int | None) -> Split:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts: list[Split] = []
    rows = 0
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                columns = _columns(file.schema_arrow.names, variant, path)
                for batch in file.iter_batches(ROWS_AT_A_TIME, columns=columns):
                    if limit is not None and rows >= limit:
                        break
                    batch = batch.slice(0, None if limit is None else limit - rows)
                    parts.append(_part(batch, variant, path, rows))
                    rows += len(batch)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise DataError(f"{path}: cannot be read as Parquet ({error}): download it again") from error
    if not parts:
        raise DataError(f"{files[0]}: has no rows: download it again")
    return concatenated(parts)


def _columns(present: list[str], variant: Variant, path: Path) -> list[str]:
    wanted = [IMAGE_COLUMN, variant.label_column]
    absent = [name for name in wanted if name not in present]
    if absent:
        raise DataError(
            f"{path}: has no column {some(absent)}, only {', '.join(present)}: is this really {variant.name}?"
        )
    return wanted


def _part(batch: Any, variant: Variant, path: Path, first_row: int) -> Split:
    try:
        encoded = batch.column(IMAGE_COLUMN).field("bytes").to_pylist()
    except (AttributeError, KeyError) as error:
        raise DataError(
            f"{path}: column {IMAGE_COLUMN!r} is {batch.column(IMAGE_COLUMN).type}, not a struct with the 'bytes' of an"
            " image: use the hub's own files"
        ) from error
    return Split(
        decode_all(encoded, SIZE, str(path), first_row),
        _numbers(batch, variant.label_column),
    )


def _numbers(batch: Any, column: str) -> np.ndarray:
    return batch.column(column).to_numpy(zero_copy_only=False)


def _class_names(metadata: dict[bytes, bytes] | None, variant: Variant) -> tuple[str, ...]:
    """The class names stored in the hub's files, else numbers."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        names = tuple(str(name) for name in features[variant.label_column]["names"])
    except (KeyError, TypeError, ValueError):
        names = ()
    return names if len(names) == variant.num_classes else tuple(str(i) for i in range(variant.num_classes))
