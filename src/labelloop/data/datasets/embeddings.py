"""Embeddings in an .npz file: x_train, y_train, x_test, y_test and, if the classes have names, class_names."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelloop.data.checks import check_finite
from labelloop.data.datasets.cifar import cifar10
from labelloop.data.datasets.labelled import LabelledData, labelled
from labelloop.data.datasets.options import checked_limit
from labelloop.data.datasets.places import not_found, places
from labelloop.errors import DataError, UsageError, some
from labelloop.types import Labels

KEYS = ("x_train", "y_train", "x_test", "y_test")
CIFAR10_FILE = Path("embeddings") / "cifar10_efficientnet_lite0_pca256.npz"


def embeddings(root: str | Path | None = None, *, limit: int | None = None) -> LabelledData:
    """Your own embeddings.

    Args:
        root: The .npz file.
        limit: Use only the first training rows.
    """
    checked_limit(limit)
    if root is None:
        raise UsageError("embeddings: no file given; give root=, an .npz file with " + ", ".join(KEYS))
    path = Path(root).expanduser()
    if not path.is_file():
        raise DataError(f"{path}: no such file: give root=, an .npz file with {', '.join(KEYS)}")
    return _read(path, "embeddings", limit)


def cifar10_embeddings(root: str | Path | None = None, *, limit: int | None = None) -> LabelledData:
    """CIFAR-10 as 256 features of a network trained on ImageNet: real data that trains in seconds.

    Args:
        root: The folder that holds `embeddings/cifar10_efficientnet_lite0_pca256.npz`, or the file itself.
        limit: Use only the first training rows.
    """
    checked_limit(limit)
    for place in places(root):
        path = place if place.is_file() else place / CIFAR10_FILE
        if path.is_file():
            return _read(path, "cifar10-embeddings", limit, pixels_from=root)
    raise not_found("cifar10-embeddings", root, str(CIFAR10_FILE))


def _read(path: Path, name: str, limit: int | None, pixels_from: str | Path | None = None) -> LabelledData:
    arrays = read_arrays(path, KEYS)
    x_train, y_train, x_test, y_test = (arrays[key] for key in KEYS)
    limit = checked_limit(limit, len(x_train))
    if "class_names" in arrays:
        names = arrays["class_names"].astype(str).tolist()
    else:
        names = [str(i) for i in range(int(max(y_train.max(), y_test.max())) + 1)]
    noise_inputs: Callable[[], NDArray] | None = None
    if name == "cifar10-embeddings":
        noise_inputs = partial(_pixels, pixels_from, y_train[:limit])
    return labelled(
        name=name,
        source=path,
        inputs=read_features(x_train[:limit], f"{path}: x_train"),
        labels=y_train[:limit],
        test_inputs=read_features(x_test, f"{path}: x_test"),
        test_labels=y_test,
        class_names=names,
        noise_inputs=noise_inputs,
    )


def read_arrays(path: Path, keys: Sequence[str]) -> dict[str, NDArray]:
    """These arrays of an .npz file, and class_names if it has them."""
    try:
        with zipfile.ZipFile(path) as members, path.open("rb") as file:  # np.load leaves a damaged file open
            present = {name.removesuffix(".npy") for name in members.namelist()}
            archive = np.load(file, allow_pickle=False)
            arrays = {key: archive[key] for key in (*keys, "class_names") if key in present}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as .npz ({error}): write it with np.savez, without objects") from error
    absent = [key for key in keys if key not in arrays]
    if absent:
        raise DataError(f"{path}: has no {some(absent)}: write all of {', '.join(keys)} with np.savez")
    return arrays


def read_features(array: NDArray, source: str) -> NDArray[np.float32]:
    """Rows of numbers as float32; anything else is refused."""
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise DataError(f"{source}: has shape {array.shape} and type {array.dtype}; expected rows of numbers [n, D]")
    array = array.astype(np.float32)
    check_finite(array, (), source)
    return array


def _pixels(root: str | Path | None, labels: Labels) -> NDArray[np.uint8]:
    """The images that the embeddings are of, in the same order [N, 32, 32, 3]."""
    folder = Path(root).resolve().parents[1] if root is not None and Path(root).is_file() else root
    images = cifar10(folder, limit=len(labels))
    if not np.array_equal(images.labels, labels):
        raise DataError(f"{images.source}: its rows are not in the order of the embeddings")
    return images.inputs
