"""CIFAR in the hub's layout: Parquet files with encoded images, at hand or by its name on the hub, decoded once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.data.datasets.cifar_archive import SIZE, Cifar, Split, Variant, concatenated
from labelloop.data.pillow import decode_all, need_pillow, needing
from labelloop.errors import DataError, some
from labelloop.large_arrays import cache_folder

VERSION = "1"  # version of the decoding
FEWEST = 1000  # fewer images are not worth a file
FOLDER = "decoded"

IMAGE_COLUMN = "img"
ROWS_AT_A_TIME = 1000


def decoded_once(files: Sequence[Path], about: Sequence[object], decode: Callable[[], Split]) -> Split:
    """The result of `decode`, from the cache if it is there.

    Args:
        files: The files that are decoded.
        about: What else the result depends on.
        decode: Decodes the files.
    """
    key = hashlib.blake2b("\0".join(map(str, (VERSION, *about))).encode(), digest_size=16)
    for path in files:
        with path.open("rb") as file:
            key.update(hashlib.file_digest(file, "blake2b").digest())
    place = cache_folder() / FOLDER / f"{key.hexdigest()}.npz"
    try:
        with place.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return Split(stored["images"], stored["labels"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # missing or damaged
        pass
    split = decode()
    if len(split.images) >= FEWEST:
        _keep(place, split)
    return split


def _keep(place: Path, split: Split) -> None:
    """Writes it if possible; a failure only costs time later."""
    partial = place.with_name(f".{place.stem}.{os.getpid()}.npz")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez(partial, images=split.images, labels=split.labels)
        partial.replace(place)
    except OSError:
        partial.unlink(missing_ok=True)


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
    with _opened(train_files[0]) as first:
        names = _class_names(first.schema_arrow.metadata, variant)
    about = (variant.name, variant.label_column)
    train = decoded_once(train_files, (*about, limit), lambda: _read(train_files, variant, limit))
    test = decoded_once(test_files, about, lambda: _read(test_files, variant, None))
    return Cifar(train, test, names)


def _files(folder: Path, split: str) -> list[Path]:
    return sorted(folder.glob(f"{split}-*.parquet"))


def _check_complete(files: list[Path], split: str, folder: Path) -> None:
    if not files:
        raise DataError(f"{folder}: has no {split}-*.parquet: download it again")
    named = re.search(r"-of-(\d+)\.parquet$", files[0].name)
    if named and int(named[1]) != len(files):
        raise DataError(f"{folder}: only {len(files)} of {int(named[1])} {split} files found: download the others")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A Parquet file; an error in reading it says to download it again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}): download it again") from error


def _read(files: list[Path], variant: Variant, limit: int | None) -> Split:
    parts: list[Split] = []
    rows = 0
    for path in files:
        with _opened(path) as file:
            columns = _columns(file.schema_arrow.names, variant, path)
            for batch in file.iter_batches(ROWS_AT_A_TIME, columns=columns):
                if limit is not None and rows >= limit:
                    break
                batch = batch.slice(0, None if limit is None else limit - rows)
                parts.append(_part(batch, variant, path, rows))
                rows += len(batch)
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
        raise DataError(f"{path}: column {IMAGE_COLUMN!r} has no 'bytes' of images: use the hub's own files") from error
    labels = batch.column(variant.label_column).to_numpy(zero_copy_only=False)
    return Split(decode_all(encoded, SIZE, str(path), first_row), labels)


def _class_names(metadata: dict[bytes, bytes] | None, variant: Variant) -> tuple[str, ...]:
    """The class names stored in the hub's files, else numbers."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        names = tuple(str(name) for name in features[variant.label_column]["names"])
    except (KeyError, TypeError, ValueError):
        names = ()
    return names if len(names) == variant.num_classes else tuple(str(i) for i in range(variant.num_classes))


def read_hub(variant: Variant, limit: int | None = None) -> Cifar:
    """Downloads the data set, or reads it from the cache of `datasets`.

    Args:
        variant: Which of the two.
        limit: Decode only the first training rows.
    """
    need_pillow(f"{variant.name}: decoding its images")
    with needing("hub", f"{variant.name}: without root=, reading from the hub"):
        datasets: Any = import_module("datasets")
    try:
        splits = [datasets.load_dataset(variant.hub_name, split=split) for split in ("train", "test")]
    except Exception as error:  # without a network every layer below raises its own kind of error
        raise DataError(
            f"{variant.name}: {variant.hub_name!r} cannot be loaded from the hub ({error}): check the network, or give"
            " root=, the folder where the data are"
        ) from error
    train, test = (split.cast_column(IMAGE_COLUMN, datasets.Image(decode=False)) for split in splits)
    names = tuple(str(name) for name in train.features[variant.label_column].names)
    return Cifar(_split(train[:limit], variant), _split(test[:], variant), names)


def _split(columns: dict[str, list[Any]], variant: Variant) -> Split:
    encoded = [image["bytes"] for image in columns[IMAGE_COLUMN]]
    return Split(decode_all(encoded, SIZE, variant.hub_name), columns[variant.label_column])
