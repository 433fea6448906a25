"""Embeddings in .npz files: of images with true labels, and of texts with weak labels from labelling functions."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelloop.data.checks import check_finite
from labelloop.data.datasets.cifar import cifar10
from labelloop.data.datasets.labelled import LabelledData, checked_limit, labelled, not_found, places
from labelloop.errors import DataError, UsageError, nearest, some
from labelloop.seeds import stream
from labelloop.splits import clean_split
from labelloop.types import MISSING, Labels

KEYS = ("x_train", "y_train", "x_test", "y_test")
CIFAR10_FILE = Path("embeddings") / "cifar10_efficientnet_lite0_pca256.npz"

FOLDER = "weak-text"
NAMES = ("youtube", "sms")
WEAK_KEYS = ("x_train", "y_train", "votes_train", "x_test", "y_test")


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
    train = read_features(x_train[:limit], f"{path}: x_train"), y_train[:limit]
    test = read_features(x_test, f"{path}: x_test"), y_test
    return labelled(name, path, train, test, names, noise_inputs=noise_inputs)


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


def weak_text(
    root: str | Path | None = None, *, limit: int | None = None, texts: str = "youtube", clean: int = 300, seed: int = 0
) -> LabelledData:
    """Public texts whose given labels are the majority of some labelling functions' votes.

    Args:
        root: The folder that holds the folder weak-text; by default LABELLOOP_DATA.
        limit: Use only the first training rows.
        texts: "youtube" (spam comments) or "sms" (spam messages).
        clean: The number of clean training rows, stratified by class.
        seed: The seed of the run; draws the clean rows.
    """
    checked_limit(limit)
    if texts not in NAMES:
        raise UsageError(f"weak-text: unknown texts {texts!r}; {nearest(texts, NAMES)}")
    file = Path(FOLDER) / f"{texts}.npz"
    path = next((place / file for place in places(root) if (place / file).is_file()), None)
    if path is None:
        raise not_found("weak-text", root, str(file))
    arrays = read_arrays(path, WEAK_KEYS)
    if "class_names" not in arrays:
        raise DataError(f"{path}: has no class_names: write them with the other arrays by np.savez")
    names = arrays["class_names"].astype(str).tolist()
    first = slice(checked_limit(limit, len(arrays["x_train"])))
    _, clean_index = clean_split(arrays["y_train"][first], clean, stream(seed, "clean-split"))
    train = read_features(arrays["x_train"][first], f"{path}: x_train"), arrays["y_train"][first]
    test = read_features(arrays["x_test"], f"{path}: x_test"), arrays["y_test"]
    given = majority(arrays["votes_train"][first], len(names))
    return labelled("weak-text", path, train, test, names, given_labels=given, clean_index=clean_index)


def majority(votes: NDArray, num_classes: int) -> Labels:
    """The class with the most votes of every row [N], the first one in a tie; missing without a vote.

    Args:
        votes: [N, functions]; -1 abstains.
        num_classes: How many classes there are.
    """
    if votes.ndim != 2 or votes.dtype.kind not in "iu":
        raise DataError(f"votes have shape {votes.shape} and type {votes.dtype}; expected whole numbers [N, functions]")
    bad = np.flatnonzero(((votes < MISSING) | (votes >= num_classes)).any(axis=1))
    if len(bad):
        raise DataError(f"votes of row {bad[0]}: {votes[bad[0]].tolist()}; expected -1 or a class below {num_classes}")
    counts = np.stack([(votes == number).sum(axis=1) for number in range(num_classes)], axis=1)  # [N, C]
    return np.where(counts.any(axis=1), counts.argmax(axis=1), MISSING)
