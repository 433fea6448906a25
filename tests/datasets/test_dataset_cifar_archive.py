"""CIFAR as published: unpacked and packed, of Python 2 and 3, damaged, wrong, and trying to run code."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest
from cifar_files import VARIANTS, batches, images_of, python2, python3, write_archive, write_folder

from labelloop.data.datasets import load_dataset
from labelloop.data.datasets.cifar_archive import read_archive
from labelloop.errors import DataError, UsageError

BOTH = pytest.mark.parametrize("name", ["cifar10", "cifar100"])


def check(data, name):
    contents, variant = batches(name), VARIANTS[name]
    train = [contents[file] for file in variant.train_files]
    np.testing.assert_array_equal(data.inputs, np.concatenate([images_of(batch) for batch in train]))
    assert data.labels.tolist() == [label for batch in train for label in batch[variant.label_key]]
    np.testing.assert_array_equal(data.test_inputs, images_of(contents[variant.test_file]))
    assert data.test_labels.tolist() == contents[variant.test_file][variant.label_key]
    assert data.class_names == tuple(f"class_{i}" for i in range(variant.num_classes))
    assert (data.name, data.inputs.dtype, data.labels.dtype) == (name, np.uint8, np.int64)
    assert data.given_labels is data.clean_index is data.noise_inputs is None


@BOTH
@pytest.mark.parametrize("dumps", [python2, python3])
def test_the_unpacked_archive(tmp_path, name, dumps):
    folder = write_folder(tmp_path, name, dumps)
    check(load_dataset(name, tmp_path), name)
    check(load_dataset(name, folder), name)


def test_the_published_form_is_that_of_python_2():
    pickled = python2(batches("cifar10")["test_batch"])
    assert b"numpy.core.multiarray\n_reconstruct" in pickled
    assert b"_codecs" not in pickled  # Python 3 would write its bytes through a codec
    assert b"_codecs" in python3(batches("cifar10")["test_batch"])


@BOTH
@pytest.mark.parametrize("dumps", [python2, python3])
def test_the_packed_archive(tmp_path, name, dumps):
    path = write_archive(tmp_path, name, dumps)
    before = sorted(tmp_path.rglob("*"))
    check(load_dataset(name, tmp_path, verify=False), name)
    check(load_dataset(name, path, verify=False), name)
    assert sorted(tmp_path.rglob("*")) == before  # nothing is unpacked to disk


def test_the_right_checksum_is_accepted(tmp_path):
    path = write_archive(tmp_path, "cifar10")
    variant = replace(VARIANTS["cifar10"], md5=hashlib.md5(path.read_bytes()).hexdigest())
    assert len(read_archive(path, variant).train.images) == 20


@BOTH
def test_the_wrong_checksum_is_refused_before_anything_is_read(tmp_path, name):
    path = tmp_path / VARIANTS[name].archive
    path.write_bytes(b"not even an archive")
    with pytest.raises(DataError, match=f"its md5 is .* not {VARIANTS[name].md5} .*download it again.*verify=False"):
        load_dataset(name, tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_archive_is_refused(tmp_path, share):
    path = write_archive(tmp_path, "cifar10")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match="md5"):
        load_dataset("cifar10", tmp_path)
    with pytest.raises(DataError, match=r"cifar-10-python.tar.gz: (cannot be unpacked|has no )"):
        load_dataset("cifar10", tmp_path, verify=False)


def test_an_archive_of_the_other_data_set_is_refused(tmp_path):
    path = write_archive(tmp_path, "cifar100")
    with pytest.raises(DataError, match=r"has no data_batch_1, .*not the python version of cifar10"):
        load_dataset("cifar10", path, verify=False)


def test_an_incomplete_folder_is_refused(tmp_path):
    (write_folder(tmp_path, "cifar10") / "data_batch_3").unlink()
    with pytest.raises(DataError, match="has no data_batch_3, so it is not the python version of cifar10"):
        load_dataset("cifar10", tmp_path)


class Command:
    """Leaves a trace when it is unpickled the ordinary way."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("file", ["data_batch_2", "test_batch", "batches.meta"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_runs_code_is_refused_and_does_not_run(tmp_path, file, packed):
    contents = batches("cifar10")
    contents[file] = python3({**contents[file], b"extra": Command(tmp_path / "trace")})
    (write_archive if packed else write_folder)(tmp_path, "cifar10", contents=contents)
    with pytest.raises(DataError, match=rf"{file}: cannot be read \(it asks for (posix|nt)\.mkdir"):
        load_dataset("cifar10", tmp_path, verify=False)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("data_batch_1", {b"data": np.zeros((5, 3071), np.uint8)}, "'data' is not an array of bytes with 3072"),
        ("data_batch_1", {b"data": np.zeros((5, 3072), np.int64)}, "'data' is not an array of bytes"),
        ("data_batch_1", {b"data": [1, 2]}, "'data' is not an array of bytes"),
        ("data_batch_1", {b"labels": [0] * 4}, "'labels' is not a list of 5 numbers"),
        ("data_batch_1", {b"labels": ["cat"] * 5}, "'labels' is not a list of 5 numbers"),
        ("data_batch_1", {b"labels": [0, 1, 2, 3, 10]}, "label 10 of row 4 is not a class: there are 10"),
        ("test_batch", {b"labels": [-1] * 7}, "test label -1 of row 0 is not a class"),
        ("batches.meta", {b"label_names": [b"cat"]}, "does not name 10 classes"),
    ],
)
def test_other_contents_are_refused(tmp_path, file, change, message):
    contents = batches("cifar10")
    contents[file] |= change
    write_folder(tmp_path, "cifar10", python3, contents)
    with pytest.raises(DataError, match=message):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (python2([1, 2]), "does not hold a dictionary"),
        (python2({b"data": 1}), "has no labels; it holds b'data': does it belong to another data set"),
        (b"", "cannot be read"),
        (b"\x80\x02}", "cannot be read"),
    ],
)
def test_other_pickles_are_refused(tmp_path, content, message):
    contents = batches("cifar10")
    contents["data_batch_5"] = content
    write_folder(tmp_path, "cifar10", contents=contents)
    with pytest.raises(DataError, match=f"data_batch_5: {message}"):
        load_dataset("cifar10", tmp_path)


def test_damaged_batches_never_escape_as_another_error(tmp_path):
    contents, rng = batches("cifar10"), np.random.default_rng(0)
    pickled = python2(contents["data_batch_1"])
    folder = write_folder(tmp_path, "cifar10")
    ends = [place for place in range(len(pickled)) if not 500 < place < len(pickled) - 500]  # not amid the pixels
    refused = 0
    for _ in range(100):
        broken = bytearray(pickled)
        for place in rng.choice(ends, 3):
            broken[place] = rng.integers(0, 256)
        (folder / "data_batch_1").write_bytes(broken)
        try:
            load_dataset("cifar10", tmp_path)
        except DataError:
            refused += 1
    assert 30 < refused < 100


def test_limit_takes_the_first_rows(tmp_path):
    write_folder(tmp_path, "cifar100")
    whole, part = load_dataset("cifar100", tmp_path), load_dataset("cifar100", tmp_path, limit=6)
    np.testing.assert_array_equal(part.inputs, whole.inputs[:6])
    np.testing.assert_array_equal(part.labels, whole.labels[:6])
    assert len(part.test_labels) == len(whole.test_labels) == 7
    assert part.fingerprint != whole.fingerprint
    with pytest.raises(UsageError, match="limit is 21, but there are 20 training rows"):
        load_dataset("cifar100", tmp_path, limit=21)


def test_test_limit_takes_the_first_test_rows(tmp_path):
    write_folder(tmp_path, "cifar100")
    whole, part = load_dataset("cifar100", tmp_path), load_dataset("cifar100", tmp_path, test_limit=3)
    np.testing.assert_array_equal(part.test_inputs, whole.test_inputs[:3])
    np.testing.assert_array_equal(part.test_labels, whole.test_labels[:3])
    np.testing.assert_array_equal(part.labels, whole.labels)
    with pytest.raises(UsageError, match="test_limit is 8, but there are 7 test rows"):
        load_dataset("cifar100", tmp_path, test_limit=8)
    with pytest.raises(UsageError, match="test_limit is 0: give the number of test rows"):
        load_dataset("cifar100", tmp_path, test_limit=0)
