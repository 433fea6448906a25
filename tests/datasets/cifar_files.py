"""Writes CIFAR in the forms it is published in, with a few rows of noise for images."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile

import numpy as np

from labelloop.data.datasets.cifar_archive import CIFAR10, CIFAR100

VARIANTS = {"cifar10": CIFAR10, "cifar100": CIFAR100}
ROWS = {"data_batch_1": 5, "data_batch_2": 4, "data_batch_3": 3, "data_batch_4": 2, "data_batch_5": 6, "train": 20}


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes alike as Python 2 did: as byte strings."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_string(self, value):
        value = value.encode("latin1") if isinstance(value, str) else value
        if len(value) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(value)]) + value)
        else:
            self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_string
    dispatch[str] = save_string


def python2(content):
    """The bytes that Python 2 with numpy 1 wrote for this object: the form of the published files."""
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(content)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def python3(content):
    return pickle.dumps(content, protocol=2)


def rows(name, count, seed=0):
    """A batch: images as planes, labels, and the rest that the published files hold."""
    rng = np.random.default_rng([seed, count])
    classes = VARIANTS[name].num_classes
    batch = {
        b"data": rng.integers(0, 256, (count, 3072), dtype=np.uint8),
        b"filenames": [b"image_s_%06d.png" % i for i in range(count)],
        b"batch_label": b"training batch 1 of 5",
        VARIANTS[name].label_key: rng.integers(0, classes, count).tolist(),
    }
    if name == "cifar100":
        batch[b"coarse_labels"] = rng.integers(0, 20, count).tolist()
    return batch


def batches(name):
    """What stands in each file of the archive."""
    variant = VARIANTS[name]
    contents = {file: rows(name, ROWS[file], seed) for seed, file in enumerate(variant.train_files)}
    contents[variant.test_file] = rows(name, 7, seed=9)
    names = [b"class_%d" % i for i in range(variant.num_classes)]
    contents[variant.meta_file] = {variant.names_key: names, b"num_vis": 3072}
    if name == "cifar100":
        contents[variant.meta_file][b"coarse_label_names"] = [b"coarse_%d" % i for i in range(20)]
    return contents


def write_folder(root, name, dumps=python2, contents=None):
    folder = root / VARIANTS[name].folder
    folder.mkdir(parents=True)
    for file, content in (contents or batches(name)).items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else dumps(content))
    (folder / "readme.html").write_text("<html></html>", encoding="utf-8")
    return folder


def write_archive(root, name, dumps=python2, contents=None):
    folder = write_folder(root / "unpacked", name, dumps, contents)
    path = root / VARIANTS[name].archive
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    return path


def images_of(batch):
    """[n, 32, 32, 3], pixel by pixel: the slow and plain reading of the format."""
    images = np.zeros((len(batch[b"data"]), 32, 32, 3), dtype=np.uint8)
    for row in range(32):
        for column in range(32):
            for channel in range(3):
                images[:, row, column, channel] = batch[b"data"][:, channel * 1024 + row * 32 + column]
    return images


def write_parquet(folder, name, counts=(5,), encode="PNG", split="train", named=True, seed=0):
    """Files in the hub's layout; returns the images and the columns of labels."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    variant = VARIANTS[name]
    images, labels = [], {}
    for part, count in enumerate(counts):
        batch = rows(name, count, seed=100 * seed + part)
        pixels = images_of(batch)
        encoded = []
        for image in pixels:
            file = io.BytesIO()
            Image.fromarray(image).save(file, encode, **({"lossless": True} if encode == "WEBP" else {}))
            encoded.append({"bytes": file.getvalue(), "path": "image.png"})
        columns = {"img": encoded, variant.label_column: batch[variant.label_key]}
        if name == "cifar100":
            columns["coarse_label"] = batch[b"coarse_labels"]
        table = pa.table(columns)
        if named:
            feature = {"names": [f"class_{i}" for i in range(variant.num_classes)], "_type": "ClassLabel"}
            info = {"info": {"features": {variant.label_column: feature}}}
            table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
        pq.write_table(table, folder / f"{split}-{part:05d}-of-{len(counts):05d}.parquet", row_group_size=2)
        images.append(pixels)
        for key, values in columns.items():
            labels.setdefault(key, []).extend(values)
    return np.concatenate(images), labels
