"""Clothing1M in its official layout: key lists give the images of each part, kv files their labels."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from labelloop.data.datasets.labelled import LabelledData, check_flags, checked_limit, labelled, not_found, places
from labelloop.data.image_files import ImageFiles
from labelloop.errors import DataError, UsageError, nearest, some
from labelloop.seeds import stream
from labelloop.splits import clean_split
from labelloop.types import MISSING, Labels

NAMES = "category_names_eng.txt"
NOISY_LABELS = "noisy_label_kv.txt"
CLEAN_LABELS = "clean_label_kv.txt"
PARTS = ("noisy_train", "clean_train", "clean_val", "clean_test")
CLEAN_SOURCES = ("clean_train", "clean_val")
FOLDERS = ("Clothing1M", "clothing1M", "clothing1m")


def clothing1m(
    root: str | Path | None = None,
    *,
    limit: int | None = None,
    clean_source: str = "clean_train",
    clean_fraction: float = 1.0,
    paired: bool = False,
    seed: int = 0,
) -> LabelledData:
    """A million photographs of clothes, labelled from the text around them in shops, and some labelled by people.

    The noisy rows come first, then the clean ones, listed in `clean_index`. True labels are known only for those.

    Args:
        root: The folder that holds the folder Clothing1M, or that folder itself; by default LABELLOOP_DATA.
        limit: Use only the first noisy rows. The clean and the test rows stay.
        clean_source: Which part the clean rows come from: "clean_train" or "clean_val".
        clean_fraction: The share of those to use, the same in each class.
        paired: Keep the noisy labels of the clean rows too, if the files have them. The paper does not use them.
        seed: The seed of the run; draws that share.
    """
    checked_limit(limit)
    check_flags(paired=paired)
    _check_options(clean_source, clean_fraction)
    folder = _folder(root)
    keys = {part: _read_keys(folder / f"{part}_key_list.txt") for part in PARTS}
    _check_disjoint(keys, folder)
    class_names = _read_lines(folder / NAMES)
    noisy_of, clean_of = _read_labels(folder / NOISY_LABELS), _read_labels(folder / CLEAN_LABELS)

    noisy_keys = keys["noisy_train"][: checked_limit(limit, len(keys["noisy_train"]))]
    clean_keys, test_keys = keys[clean_source], keys["clean_test"]
    noisy = _labels_of(noisy_keys, noisy_of, folder / NOISY_LABELS)
    clean = _labels_of(clean_keys, clean_of, folder / CLEAN_LABELS)
    wanted = round(clean_fraction * len(clean))
    if wanted < 1:
        raise UsageError(
            f"clean_fraction is {clean_fraction}, which leaves none of the {len(clean)} clean rows: give a larger share"
        )
    if wanted < len(clean):
        _, chosen = clean_split(clean, wanted, stream(seed, "clean-fraction"))
        clean_keys, clean = [clean_keys[i] for i in chosen], clean[chosen]
    _check_files([*noisy_keys, *clean_keys, *test_keys], folder)

    given = [noisy_of.get(key, MISSING) if paired else MISSING for key in clean_keys]
    images, test_images = (ImageFiles(folder / key for key in ks) for ks in ([*noisy_keys, *clean_keys], test_keys))
    return labelled(
        "clothing1m",
        folder,
        (images, np.concatenate([np.full(len(noisy), MISSING), clean])),
        (test_images, _labels_of(test_keys, clean_of, folder / CLEAN_LABELS)),
        class_names,
        given_labels=np.concatenate([noisy, np.array(given, dtype=np.int64)]),
        clean_index=np.arange(len(noisy), len(noisy) + len(clean)),
    )


def _check_options(clean_source: str, clean_fraction: float) -> None:
    if clean_source not in CLEAN_SOURCES:
        raise UsageError(f"clean_source: unknown part {clean_source!r}; {nearest(clean_source, CLEAN_SOURCES)}")
    if not isinstance(clean_fraction, int | float) or not 0 < clean_fraction <= 1:
        raise UsageError(f"clean_fraction is {clean_fraction!r}: give a number above 0 and up to 1, such as 0.1")


def _folder(root: str | Path | None) -> Path:
    for place in places(root):
        for folder in (place, *(place / name for name in FOLDERS)):
            if (folder / "noisy_train_key_list.txt").is_file():
                return folder
    lists = ", ".join(f"{part}_key_list.txt" for part in PARTS)
    raise not_found(
        "clothing1m", root, f"the folder {FOLDERS[0]} with {lists}, {NOISY_LABELS}, {CLEAN_LABELS}, {NAMES} and images/"
    )


def _read_lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}): unpack the data set again") from error
    return [line.strip() for line in lines if line.strip()]


def _read_keys(path: Path) -> list[str]:
    keys = _read_lines(path)
    if len(set(keys)) != len(keys):
        raise DataError(f"{path}: names {len(keys) - len(set(keys))} images more than once: unpack the data set again")
    return keys


def _read_labels(path: Path) -> dict[str, int]:
    """Lines of `path label`."""
    labels: dict[str, int] = {}
    for number, line in enumerate(_read_lines(path), start=1):
        key, _, label = line.rpartition(" ")
        if not key or not label.isdecimal():
            raise DataError(f"{path}: line {number} is {line!r}; expected the path of an image, a space and its label")
        labels[key.strip()] = int(label)
    return labels


def _labels_of(keys: list[str], labels: dict[str, int], path: Path) -> Labels:
    absent = [key for key in keys if key not in labels]
    if absent:
        raise DataError(f"{path}: has no label for {len(absent)} images in the key list: {some(absent)}")
    return np.array([labels[key] for key in keys], dtype=np.int64)


def _check_disjoint(keys: dict[str, list[str]], folder: Path) -> None:
    for i, first in enumerate(PARTS):
        for second in PARTS[i + 1 :]:
            both = sorted(set(keys[first]) & set(keys[second]))
            if both:
                raise DataError(
                    f"{folder}: {len(both)} images are in the key lists of both {first} and {second}: {some(both)};"
                    " remove them from one"
                )


def _check_files(keys: Iterable[str], folder: Path) -> None:
    """Lists every folder once: checking a million files one by one takes minutes on a network disk."""
    listed: dict[str, set[str]] = {}
    absent = []
    for key in keys:
        parent, _, name = key.rpartition("/")
        if parent not in listed:
            path = folder / parent
            listed[parent] = set(os.listdir(path)) if path.is_dir() else set()
        if name not in listed[parent]:
            absent.append(key)
    if absent:
        raise DataError(
            f"{folder}: {len(absent)} images in the key lists are missing: {some(absent)}; unpack the images into it"
        )
