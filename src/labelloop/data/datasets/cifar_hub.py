"""CIFAR by its name on the hub, through the `datasets` library, which downloads it once and keeps it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from labelloop.data.datasets.cifar_parquet import IMAGE_COLUMN
from labelloop.data.datasets.cifar_record import SIZE, Cifar, Split, Variant
from labelloop.data.images.pillow import decode_all, need_pillow
from labelloop.errors import DataError, UsageError


def read_hub(variant: Variant, limit: int | None = None) -> Cifar:
    """Downloads the data set, or reads it from the cache of `datasets`.

    Args:
        variant: Which of the two.
        limit: Decode only the first training rows.
    """
    need_pillow(f"{variant.name}: decoding its images")
    try:
        datasets: Any = import_module("datasets")
    except ImportError as error:
        raise UsageError(
            f"{variant.name}: reading from the hub needs the `datasets` library: install it with pip install"
            " 'labelloop[hub]', or give root=, the folder where the data are"
        ) from error
    try:
        splits = [datasets.load_dataset(variant.hub_name, split=split) for split in ("train", "test")]
    except Exception as error:  # without a network every layer below raises its own kind of error
        raise DataError(
            f"{variant.name}: {variant.hub_name!r} cannot be loaded from the hub ({error}): check the network, or give"
            " root=, the folder where the data are"
        ) from error
    train, test = (split.cast_column(IMAGE_COLUMN, datasets.Image(decode=False)) for split in splits)
    names = tuple(str(name) for name in train.features[variant.label_column].names)
    return Cifar(_split(train[:limit], variant), _split(test[:], variant), names)


def _split(columns: dict[str, list[Any]], variant: Variant) -> Split:
    encoded = [image["bytes"] for image in columns[IMAGE_COLUMN]]
    return Split(
        decode_all(encoded, SIZE, variant.hub_name),
        columns[variant.label_column],
    )
