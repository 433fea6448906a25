"""The names of CIFAR-10 and CIFAR-100 in each of their forms, and what every reader returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
        np.concatenate([part.images for part in parts]),
        np.concatenate([np.asarray(part.labels) for part in parts]),
    )
