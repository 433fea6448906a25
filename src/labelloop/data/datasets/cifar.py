"""CIFAR-10 and CIFAR-100: from the published archive, unpacked or not, from the hub's Parquet files, or the hub."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from labelloop.data.datasets.cifar_archive import CIFAR10, CIFAR100, Cifar, Variant, read_archive, read_folder
from labelloop.data.datasets.cifar_parquet import parquet_folder, read_hub, read_parquet
from labelloop.data.datasets.labelled import LabelledData, check_flags, checked_limit, labelled, not_found, places

# Its own name, so that a result on part of the rows cannot pass for one on all of them.
SUBSET = "cifar100-subset"


def cifar100_subset(root: str | Path | None = None, *, limit: int | None = None) -> LabelledData:
    """The first rows of CIFAR-100, in the hub's Parquet layout in a folder `cifar100-subset`.

    Args:
        root: As for `cifar10`.
        limit: Use only the first training rows.
    """
    variant = replace(CIFAR100, name=SUBSET)
    checked_limit(limit)
    for place in places(root):
        folder = parquet_folder(place, SUBSET)
        if folder is not None:
            return _labelled(variant, read_parquet(folder, variant, limit), folder, limit)
    raise not_found(SUBSET, root, f"a folder {SUBSET} with train-*.parquet and test-*.parquet")


def _load(
    variant: Variant,
    root: str | Path | None = None,
    *,
    limit: int | None = None,
    test_limit: int | None = None,
    verify: bool = True,
    hub: bool = False,
) -> LabelledData:
    """50,000 + 10,000 colour images of 32 x 32 pixels, of 10 classes, or of 100 in 20 super-classes.

    Args:
        variant: Which of the two.
        root: The folder that holds it in any of its forms, or the archive itself; by default LABELLOOP_DATA.
        limit: Use only the first training rows.
        test_limit: Use only the first test rows.
        verify: Compare the checksum of a .tar.gz with the published one. Use False for an archive you packed yourself.
        hub: Load it from the hub by name instead.
    """
    checked_limit(limit)
    checked_limit(test_limit, name="test_limit")
    check_flags(verify=verify, hub=hub)
    if hub:
        return _labelled(variant, read_hub(variant, limit), variant.hub_name, limit, test_limit)
    for place in places(root):
        found = _read(variant, place, limit, verify)
        if found is not None:
            return _labelled(variant, *found, limit, test_limit)
    subset = any(parquet_folder(place, SUBSET) for place in places(root)) and variant is CIFAR100
    raise not_found(
        variant.name,
        root,
        f"{variant.archive}, or the folder {variant.folder} it unpacks to, or a folder {variant.name} with the hub's"
        f" train-*.parquet and test-*.parquet{f' (only {SUBSET} is there: ask for it by that name)' if subset else ''}",
    )


cifar10, cifar100 = partial(_load, CIFAR10), partial(_load, CIFAR100)


def _read(variant: Variant, place: Path, limit: int | None, verify: bool) -> tuple[Cifar, Path] | None:
    """The form found in one folder, and its exact path: published forms first."""
    if place.is_file():
        return read_archive(place, variant, verify), place
    folder = place if place.name == variant.folder else place / variant.folder
    if folder.is_dir():
        return read_folder(folder, variant), folder
    archive = place / variant.archive
    if archive.is_file():
        return read_archive(archive, variant, verify), archive
    parquet = parquet_folder(place, variant.name)
    if parquet is not None and parquet.name != SUBSET:
        return read_parquet(parquet, variant, limit), parquet
    return None


def _labelled(
    variant: Variant, cifar: Cifar, source: object, limit: int | None, test_limit: int | None = None
) -> LabelledData:
    train, test = cifar.train, cifar.test
    # A reader that stops early has already found enough rows; otherwise it returns all of them.
    limit = checked_limit(limit, len(train.images))
    test_limit = checked_limit(test_limit, len(test.images), name="test_limit")
    rows = train.images[:limit], np.asarray(train.labels)[:limit]
    test_rows = test.images[:test_limit], np.asarray(test.labels)[:test_limit]
    return labelled(variant.name, source, rows, test_rows, cifar.class_names)
