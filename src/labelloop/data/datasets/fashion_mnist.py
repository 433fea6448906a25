"""Fashion-MNIST: grey images of clothes, in the four published .gz files of the IDX format."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelloop.data.datasets.labelled import LabelledData, checked_limit, labelled, not_found, places
from labelloop.errors import DataError

FOLDER = "fashion-mnist"
NAMES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
UNSIGNED_BYTES = 8  # the third byte of an IDX file says what its values are


def fashion_mnist(
    root: str | Path | None = None, *, limit: int | None = None, test_limit: int | None = None
) -> LabelledData:
    """Fashion-MNIST: 60,000 + 10,000 grey images of 28 x 28 pixels, 10 classes.

    Args:
        root: The folder that holds the folder fashion-mnist; by default LABELLOOP_DATA.
        limit: Use only the first training rows.
        test_limit: Use only the first test rows.
    """
    checked_limit(limit)
    folder = next((place / FOLDER for place in places(root) if (place / FOLDER).is_dir()), None)
    if folder is None:
        raise not_found("fashion-mnist", root, f"{FOLDER}/train-images-idx3-ubyte.gz and the three files beside it")
    train, test = (_part(folder, name, most) for name, most in (("train", limit), ("t10k", test_limit)))
    return labelled("fashion-mnist", folder, train, test, NAMES)


def _part(folder: Path, name: str, limit: int | None) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, H, W, 1] and labels [N] of the training or the test rows."""
    images = read_idx(folder / f"{name}-images-idx3-ubyte.gz", 3)
    labels = read_idx(folder / f"{name}-labels-idx1-ubyte.gz", 1)
    if len(images) != len(labels):
        raise DataError(f"{folder}: {len(images)} images but {len(labels)} labels of {name}; fetch the files again")
    first = slice(checked_limit(limit, len(labels)))
    return images[first, :, :, None], labels[first].astype(np.int64)


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in a .gz file of the IDX format: two zero bytes, type, number of dimensions, sizes, values."""
    if not path.is_file():
        raise DataError(f"{path} is missing; fashion-mnist needs its four .gz files in one folder")
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}; fetch it again") from None
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes([0, 0, UNSIGNED_BYTES, dimensions]):
        raise DataError(f"{path}: not an IDX file of bytes with {dimensions} dimensions; fetch it again")
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    if len(content) - start != shape.prod():
        raise DataError(f"{path}: {len(content) - start} values where {shape.prod()} are announced; fetch it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
