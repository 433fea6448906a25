"""CIFAR in the hub's layout and from the hub: several files, both encodings, and what can be wrong."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cifar_files import write_folder, write_parquet

from labelloop.data.datasets import cifar_parquet, load_dataset
from labelloop.errors import DataError, UsageError
from labelloop.large_arrays import cache_folder


def write(folder, name, **options):
    """Both splits; returns the training rows."""
    write_parquet(folder, name, split="test", seed=1)
    return write_parquet(folder, name, counts=(5, 4), **options)


@pytest.mark.parametrize("encode", ["PNG", "WEBP"])
@pytest.mark.parametrize("inside", ["cifar100", "cifar100/data", ""])
def test_the_files_are_found_and_read_in_order(tmp_path, encode, inside):
    images, columns = write(tmp_path / inside, "cifar100", encode=encode)
    data = load_dataset("cifar100", tmp_path)
    np.testing.assert_array_equal(data.inputs, images)
    assert data.labels.tolist() == columns["fine_label"]
    assert data.class_names[:2] == ("class_0", "class_1")
    assert (len(data.test_inputs), data.source) == (5, str(tmp_path / inside))
    part = load_dataset("cifar100", tmp_path, limit=6)
    np.testing.assert_array_equal(part.inputs, images[:6])
    assert part.labels.tolist() == columns["fine_label"][:6]


def test_without_names_the_classes_are_numbers(tmp_path):
    write(tmp_path / "cifar10", "cifar10", named=False)
    assert load_dataset("cifar10", tmp_path).class_names == tuple("0123456789")


def test_a_subset_does_not_pass_for_the_whole(tmp_path):
    write(tmp_path / "cifar100-subset", "cifar100")
    data = load_dataset("cifar100-subset", tmp_path)
    assert (data.name, len(data)) == ("cifar100-subset", 9)
    for root in (tmp_path, tmp_path / "cifar100-subset"):
        with pytest.raises(DataError, match="only cifar100-subset is there: ask for it by that name"):
            load_dataset("cifar100", root)
    with pytest.raises(DataError, match="cifar100-subset: not found in"):
        load_dataset("cifar100-subset", tmp_path / "elsewhere")


def test_the_published_form_goes_first(tmp_path):
    write(tmp_path / "cifar10", "cifar10")
    folder = write_folder(tmp_path, "cifar10")
    assert load_dataset("cifar10", tmp_path).source == str(folder)


def break_column(path):
    pq.write_table(pq.read_table(path).drop_columns("label"), path)


def break_image(path):
    table = pq.read_table(path)
    images = table["img"].to_pylist()
    images[3]["bytes"] = images[3]["bytes"][:40]
    pq.write_table(table.set_column(0, "img", pa.array(images)), path)


def break_absent_bytes(path):
    table = pq.read_table(path)
    images = [{**image, "bytes": None} for image in table["img"].to_pylist()]
    pq.write_table(table.set_column(0, "img", pa.array(images, table.schema.field("img").type)), path)


def break_struct(path):
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "img", pa.array(["a.png"] * len(table))), path)


def break_label(path):
    table = pq.read_table(path)
    pq.write_table(table.set_column(1, "label", pa.array([None] * len(table), pa.int64())), path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-50]), "cannot be read as Parquet"),
        (lambda path: path.write_bytes(b""), "cannot be read as Parquet"),
        (lambda path: path.unlink(), "only 1 of 2 train files found: download the others"),
        (lambda path: (path.parent / "test-00000-of-00001.parquet").unlink(), r"has no test-\*.parquet"),
        (break_column, "has no column label, only img: is this really cifar10"),
        (break_image, "the image of row 3 cannot be decoded"),
        (break_absent_bytes, "the image of row 0 cannot be decoded"),
        (break_struct, "column 'img' has no 'bytes' of images"),
        (break_label, "labels of type float64"),
    ],
)
def test_damaged_files_are_refused(tmp_path, damage, message):
    write(tmp_path / "cifar10", "cifar10")
    damage(tmp_path / "cifar10" / "train-00000-of-00002.parquet")
    with pytest.raises(DataError, match=message):
        load_dataset("cifar10", tmp_path)


def test_an_image_of_another_size_is_refused(tmp_path):
    import io

    from PIL import Image

    write(tmp_path / "cifar10", "cifar10")
    file = io.BytesIO()
    Image.new("RGB", (28, 28)).save(file, "PNG")
    path = tmp_path / "cifar10" / "train-00001-of-00002.parquet"
    pq.write_table(pa.table({"img": [{"bytes": file.getvalue(), "path": "a.png"}], "label": [1]}), path)
    with pytest.raises(DataError, match=r"the image of row 5 has shape \(28, 28, 3\), not \(32, 32, 3\)"):
        load_dataset("cifar10", tmp_path)


def test_images_need_pillow(tmp_path, monkeypatch):
    write(tmp_path / "cifar10", "cifar10")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UsageError, match=r"decoding its images needs more .*PIL.*: pip install 'labelloop\[images\]'"):
        load_dataset("cifar10", tmp_path)


def test_the_hub_needs_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"without root=, .* needs more .*datasets.*labelloop\[hub\]"):
        load_dataset("cifar10", hub=True)


def fake_datasets(load):
    module = ModuleType("datasets")
    module.load_dataset = load
    module.Image = lambda decode: ("image", decode)
    return module


def test_no_network_is_said_so(monkeypatch):
    def load(name, split):
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "datasets", fake_datasets(load))
    with pytest.raises(
        DataError, match=r"'uoft-cs/cifar100' cannot be loaded from the hub \(no route\): check the net"
    ):
        load_dataset("cifar100", hub=True)


class HubSplit:
    """Answers as a split of the `datasets` library does."""

    def __init__(self, columns):
        self.columns = columns
        self.features = {"label": SimpleNamespace(names=[f"class_{i}" for i in range(10)])}

    def cast_column(self, name, feature):
        assert (name, feature) == ("img", ("image", False))
        return self

    def __getitem__(self, rows):
        return {name: values[rows] for name, values in self.columns.items()}


def test_the_hub_gives_what_its_files_give(tmp_path, monkeypatch):
    folder = tmp_path / "cifar10"
    _, train = write(folder, "cifar10")
    test = pq.read_table(folder / "test-00000-of-00001.parquet").to_pydict()
    splits = {"train": HubSplit(train), "test": HubSplit(test)}
    monkeypatch.setitem(sys.modules, "datasets", fake_datasets(lambda name, split: splits[split]))
    for options in ({}, {"limit": 3}):
        ours, hub = load_dataset("cifar10", tmp_path, **options), load_dataset("cifar10", hub=True, **options)
        assert ours.fingerprint == hub.fingerprint
        assert ours.class_names == hub.class_names
        np.testing.assert_array_equal(ours.test_inputs, hub.test_inputs)
        np.testing.assert_array_equal(ours.test_labels, hub.test_labels)


def test_images_are_decoded_once_and_again_when_a_file_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar_parquet, "FEWEST", 1)
    write(tmp_path / "cifar10", "cifar10")
    first = load_dataset("cifar10", tmp_path)
    calls = []
    original = cifar_parquet.decode_all
    monkeypatch.setattr(cifar_parquet, "decode_all", lambda *a: calls.append(a) or original(*a))
    again = load_dataset("cifar10", tmp_path)
    assert calls == []
    np.testing.assert_array_equal(again.inputs, first.inputs)
    np.testing.assert_array_equal(again.labels, first.labels)
    for kept in (cache_folder() / cifar_parquet.FOLDER).iterdir():
        kept.write_bytes(kept.read_bytes()[:100])  # damaged: decoded anew
    np.testing.assert_array_equal(load_dataset("cifar10", tmp_path).inputs, first.inputs)
    assert calls
