"""Fashion-MNIST from files of the published format, made by hand."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from labelloop.data.datasets import load_dataset
from labelloop.errors import DataError

DEBIAN = Path("/usr/share/datasets")


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write(folder: Path, **changes: bytes) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (12, 28, 28), dtype=np.uint8), (np.arange(12) % 10).astype(np.uint8)
    contents = {"train_images": idx(images), "train_labels": idx(labels), "t10k_images": idx(images[:5])}
    contents |= {"t10k_labels": idx(labels[:5])} | changes
    (folder / "fashion-mnist").mkdir(exist_ok=True)
    for name, content in contents.items():
        part, what = name.split("_")
        kind = "idx3" if what == "images" else "idx1"
        (folder / "fashion-mnist" / f"{part}-{what}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    return images, labels


def test_images_and_labels_arrive_in_order(tmp_path):
    images, labels = write(tmp_path)
    data = load_dataset("fashion-mnist", tmp_path, limit=8, test_limit=3)
    np.testing.assert_array_equal(data.inputs, images[:8, :, :, None])
    assert data.labels.tolist() == labels[:8].tolist()
    np.testing.assert_array_equal(data.test_inputs, images[:3, :, :, None])
    assert data.class_names[9] == "Ankle boot"
    assert len(load_dataset("fashion-mnist", tmp_path)) == 12


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_labels": idx(np.zeros(11, np.uint8))}, "12 images but 11 labels of train"),
        ({"train_images": idx(np.zeros((12, 28, 28), np.uint8))[:-1]}, "9407 values where 9408 are announced"),
        ({"t10k_labels": b"\0\0\x0d\1" + bytes(9)}, "not an IDX file of bytes with 1 dimensions"),
        ({"t10k_images": b""}, "not an IDX file"),
    ],
)
def test_damaged_files_are_refused_in_words(tmp_path, changes, words):
    write(tmp_path, **changes)
    with pytest.raises(DataError, match=words):
        load_dataset("fashion-mnist", tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(DataError, match=r"fashion-mnist: not found in .*train-images-idx3-ubyte\.gz"):
        load_dataset("fashion-mnist", tmp_path)
    write(tmp_path)
    place = tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz"
    place.write_bytes(place.read_bytes()[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        load_dataset("fashion-mnist", tmp_path)
    place.unlink()
    with pytest.raises(DataError, match="is missing"):
        load_dataset("fashion-mnist", tmp_path)


@pytest.mark.skipif(not (DEBIAN / "fashion-mnist").is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_the_real_files_are_read():
    data = load_dataset("fashion-mnist", DEBIAN)
    assert data.inputs.shape == (60000, 28, 28, 1)
    assert np.bincount(data.labels).tolist() == [6000] * 10
