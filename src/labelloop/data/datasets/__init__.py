"""Public data sets by name.

A data set is a function `(root, **options) -> LabelledData`. Importing this loads neither Pillow nor pyarrow.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labelloop.data.datasets.cifar import cifar10, cifar100, cifar100_subset
from labelloop.data.datasets.clothing1m import clothing1m
from labelloop.data.datasets.digits import digits_data
from labelloop.data.datasets.embeddings import cifar10_embeddings, embeddings, weak_text
from labelloop.data.datasets.fashion_mnist import fashion_mnist
from labelloop.data.datasets.labelled import LabelledData
from labelloop.data.datasets.tables import table
from labelloop.errors import UsageError, nearest

DataSet = Callable[..., LabelledData]

DATASETS: dict[str, DataSet] = {
    "digits": digits_data,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "cifar100-subset": cifar100_subset,
    "cifar10-embeddings": cifar10_embeddings,
    "embeddings": embeddings,
    "clothing1m": clothing1m,
    "fashion-mnist": fashion_mnist,
    "table": table,
    "weak-text": weak_text,
}

__all__ = ["DATASETS", "DataSet", "LabelledData", "load_dataset"]


def load_dataset(name: str, root: str | Path | None = None, **options: Any) -> LabelledData:
    """Loads a data set by its name.

    Args:
        name: One of DATASETS.
        root: Where it is; by default in LABELLOOP_DATA.
        options: Options of the data set's function.

    Raises:
        UsageError: There is no such data set or option.
        DataError: It was not found, or cannot be used.
    """
    if name not in DATASETS:
        raise UsageError(f"unknown data set {name!r}; {nearest(name, DATASETS)}")
    known = [option for option in inspect.signature(DATASETS[name]).parameters if option != "root"]
    for option in options:
        if option not in known:
            raise UsageError(f"data set {name!r} has no option {option!r}; {nearest(option, known)}")
    return DATASETS[name](root, **options)
