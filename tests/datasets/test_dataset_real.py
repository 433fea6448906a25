"""The real data, where it is: facts that are known of it."""

from __future__ import annotations

import numpy as np
import pytest
from cifar_files import python2, write_folder

from labelloop.data.datasets import load_dataset
from labelloop.data.datasets.labelled import fingerprint_of
from labelloop.noise.recorded_labels import read_label_file

pytestmark = pytest.mark.slow


def load(name, root):
    if not (root / name).is_dir():
        pytest.skip(f"no {name} here: {root}")
    return load_dataset(name, root)


@pytest.fixture(scope="module")
def cifar10(shared_data):
    return load("cifar10", shared_data)


def human(shared_data, name):
    path = shared_data / "cifar-n" / name
    if not path.is_file():
        pytest.skip(f"no CIFAR-N here: {path}")
    return read_label_file(path)["clean_label"]


def test_cifar10(cifar10, shared_data):
    assert cifar10.inputs.shape == (50_000, 32, 32, 3)
    assert cifar10.test_inputs.shape == (10_000, 32, 32, 3)
    assert " ".join(cifar10.class_names) == "airplane automobile bird cat deer dog frog horse ship truck"
    assert np.bincount(cifar10.labels).tolist() == [5000] * 10
    assert np.bincount(cifar10.test_labels).tolist() == [1000] * 10
    means = cifar10.inputs.reshape(-1, 3).mean(axis=0) / 255
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=1e-4)  # as widely published
    np.testing.assert_array_equal(cifar10.labels, human(shared_data, "CIFAR-10_human.pt"))


def test_cifar100_subset(shared_data):
    data = load("cifar100-subset", shared_data)
    assert (len(data), len(data.test_labels), data.num_classes) == (20_000, 5_000, 100)
    np.testing.assert_array_equal(data.labels, human(shared_data, "CIFAR-100_human.pt")[:20_000])
    assert (data.class_names[0], data.class_names[99]) == ("apple", "worm")


def test_the_same_rows_in_the_published_form_have_the_same_fingerprint(cifar10, tmp_path):
    images, labels = cifar10.inputs[:60], cifar10.labels[:60]
    names = [name.encode() for name in cifar10.class_names]
    contents = {"batches.meta": {b"label_names": names}}
    parts = {f"data_batch_{i + 1}": slice(12 * i, 12 * i + 12) for i in range(5)} | {"test_batch": slice(0, 5)}
    for file, rows in parts.items():
        planes = images[rows].transpose(0, 3, 1, 2).reshape(-1, 3072)
        contents[file] = {b"data": np.ascontiguousarray(planes), b"labels": labels[rows].tolist()}
    write_folder(tmp_path, "cifar10", python2, contents)
    published = load_dataset("cifar10", tmp_path)
    np.testing.assert_array_equal(published.inputs, images)
    assert published.class_names == cifar10.class_names
    assert published.fingerprint == fingerprint_of(images, labels)


def test_cifar10_embeddings(cifar10, shared_data):
    if not (shared_data / "embeddings").is_dir():
        pytest.skip(f"no embeddings here: {shared_data}")
    data = load_dataset("cifar10-embeddings", shared_data)
    assert (data.inputs.shape, data.inputs.dtype) == ((50_000, 256), np.float32)
    assert data.class_names == cifar10.class_names
    np.testing.assert_array_equal(data.labels, cifar10.labels)
    np.testing.assert_array_equal(data.test_labels, cifar10.test_labels)
    part = load_dataset("cifar10-embeddings", shared_data, limit=100)
    np.testing.assert_array_equal(part.noise_inputs(), cifar10.inputs[:100])
