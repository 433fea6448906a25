"""CIFAR as its authors publish it: pickled batches in a folder or a .tar.gz. No pickled code is ever run."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelloop.errors import DataError, some
from labelloop.safe_pickle import PickledArray, SafeUnpickler

SIZE = (32, 32)


@dataclass(frozen=True)
class Variant:
    """One of the two data sets.

    Attributes:
        name: Its name here, and that of its folder of Parquet files.
        num_classes: 10 or 100.
        folder: What the published archive unpacks to.
        archive: The published archive.
        md5: Its published checksum.
        train_files: The training batches in the folder, next to `test_file` and `meta_file`.
        label_key: The key of the labels in a batch; `names_key` is that of the class names.
        label_column: The labels in a Parquet file.
        hub_name: Its name on the hub.
    """

    name: str
    num_classes: int
    folder: str
    archive: str
    md5: str
    train_files: tuple[str, ...]
    test_file: str
    meta_file: str
    label_key: bytes
    names_key: bytes
    label_column: str
    hub_name: str

    @property
    def files(self) -> tuple[str, ...]:
        """What the archive holds."""
        return (*self.train_files, self.test_file, self.meta_file)


CIFAR10 = Variant(
    name="cifar10",
    num_classes=10,
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    train_files=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test_file="test_batch",
    meta_file="batches.meta",
    label_key=b"labels",
    names_key=b"label_names",
    label_column="label",
    hub_name="uoft-cs/cifar10",
)
CIFAR100 = Variant(
    name="cifar100",
    num_classes=100,
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    train_files=("train",),
    test_file="test",
    meta_file="meta",
    label_key=b"fine_labels",
    names_key=b"fine_label_names",
    label_column="fine_label",
    hub_name="uoft-cs/cifar100",
)


@dataclass(frozen=True)
class Split:
    """Rows of one of the data sets."""

    images: NDArray[np.uint8]  # [n, 32, 32, 3]
    labels: ArrayLike  # [n]


@dataclass(frozen=True)
class Cifar:
    """What a reader returns."""

    train: Split
    test: Split
    class_names: tuple[str, ...]


def concatenated(parts: list[Split]) -> Split:
    """The rows of all parts, in order."""
    return Split(
        np.concatenate([part.images for part in parts]), np.concatenate([np.asarray(part.labels) for part in parts])
    )


def read_folder(folder: Path, variant: Variant) -> Cifar:
    """Reads the unpacked archive."""
    present = [name for name in variant.files if (folder / name).is_file()]
    _check_complete(present, variant, folder)
    return _parse({name: (folder / name).read_bytes() for name in present}, variant, folder)


def read_archive(archive: Path, variant: Variant, verify: bool = True) -> Cifar:
    """Reads the .tar.gz without unpacking it to disk.

    Args:
        archive: The file.
        variant: Which of the two it is.
        verify: First compare its checksum with the published one.
    """
    if verify:
        _check_md5(archive, variant)
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r|gz") as members:  # one pass: looking up a member would decompress all twice
            for member in members:
                folder, _, name = member.name.removeprefix("./").rpartition("/")
                file = members.extractfile(member) if name in variant.files and folder == variant.folder else None
                if file is not None:
                    contents[name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{archive}: cannot be unpacked ({error}): download it again") from error
    _check_complete(list(contents), variant, archive)
    return _parse(contents, variant, archive)


def _check_md5(archive: Path, variant: Variant) -> None:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != variant.md5:
        raise DataError(
            f"{archive}: its md5 is {found}, not {variant.md5} as published: it is damaged or another file; download it"
            " again, or give verify=False if you packed it yourself"
        )


def _check_complete(present: list[str], variant: Variant, source: Path) -> None:
    absent = [name for name in variant.files if name not in present]
    if absent:
        raise DataError(
            f"{source}: has no {some(absent)}, so it is not the python version of {variant.name} (the folder"
            f" {variant.folder} with {', '.join(variant.files)}): unpack or download it again"
        )


def _parse(contents: dict[str, bytes], variant: Variant, source: Path) -> Cifar:
    train = concatenated([_split(contents[name], variant, f"{source}: {name}") for name in variant.train_files])
    test = _split(contents[variant.test_file], variant, f"{source}: {variant.test_file}")
    meta = _unpickled(contents[variant.meta_file], f"{source}: {variant.meta_file}")
    names = meta.get(variant.names_key)
    if not isinstance(names, list) or len(names) != variant.num_classes:
        raise DataError(f"{source}: {variant.meta_file} does not name {variant.num_classes} classes: download it again")
    class_names = tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)
    return Cifar(train, test, class_names)


def _split(content: bytes, variant: Variant, source: str) -> Split:
    batch = _unpickled(content, source)
    keys = [b"data", variant.label_key]
    absent = [key.decode() for key in keys if key not in batch]
    if absent:
        raise DataError(
            f"{source}: has no {' or '.join(absent)}; it holds {some(batch)}: does it belong to another data set?"
        )
    pixels = batch[b"data"]
    values = 3 * SIZE[0] * SIZE[1]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != values:
        raise DataError(f"{source}: 'data' is not an array of bytes with {values} per row: download it again")
    images = pixels.reshape(-1, 3, *SIZE).transpose(0, 2, 3, 1)  # [n, H, W, 3] from planes of red, green and blue
    labels = _labels(batch[variant.label_key], variant.label_key, len(images), source)
    return Split(np.ascontiguousarray(images), labels)


def _labels(value: Any, key: bytes, count: int, source: str) -> list[int]:
    if not isinstance(value, list) or len(value) != count or not all(isinstance(label, int) for label in value):
        raise DataError(f"{source}: {key.decode()!r} is not a list of {count} numbers: download it again")
    return value


def _unpickled(content: bytes, source: str) -> dict[bytes, Any]:
    try:
        loaded = SafeUnpickler(io.BytesIO(content), encoding="bytes").load()
        if isinstance(loaded, dict):
            loaded = {k: v.numbers() if isinstance(v, PickledArray) else v for k, v in loaded.items()}
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(f"{source}: cannot be read ({error or type(error).__name__}): download it again") from error
    if not isinstance(loaded, dict):
        raise DataError(f"{source}: does not hold a dictionary: it is not the published file, download it again")
    return loaded
