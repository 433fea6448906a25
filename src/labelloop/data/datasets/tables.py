"""A table of your own as a data set: all its columns, true labels in one of them, the same test rows every time.

Every method gets the same numbers: the columns are encoded as `labelloop fit` encodes them.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import numpy as np

from labelloop.data.classes import typed
from labelloop.data.datasets.labelled import LabelledData, checked_limit, labelled, not_found, places
from labelloop.errors import DataError, UsageError
from labelloop.seeds import stream
from labelloop.splits import clean_split
from labelloop.types import Floats

TEST_SHARE = 0.3


def table(root: str | Path | None = None, *, file: str = "", label: str = "", limit: int | None = None) -> LabelledData:
    """A file with one column of true labels; of all other columns that can be numbers, features are made.

    Args:
        root: The folder that holds the file; by default LABELLOOP_DATA.
        file: Its path in that folder, such as "tables/weather.csv".
        label: The column of the true labels; rows where it is blank are left out.
        limit: Use only the first training rows.
    """
    checked_limit(limit)
    if not file or not label:
        raise UsageError("table: give the options file, a path in the folder of data sets, and label, a column of it")
    path = next((place / file for place in places(root) if (place / file).is_file()), None)
    if path is None:
        raise not_found("table", root, file)
    from labelloop.data.readers import ReadOptions, read_table  # loads pyarrow

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is unusual about columns is for `labelloop fit --dry-run`
        read = read_table(path, ReadOptions(label_column=label))
    assert read.labels is not None
    values, missing = typed(read.labels)
    names, codes = np.unique(values[~missing].astype(str), return_inverse=True)
    if len(names) < 2:
        raise DataError(f"{path}: column {label!r} has fewer than two different labels")
    inputs = np.asarray(read.inputs, np.float32)[~missing]
    train, test = clean_split(codes, round(TEST_SHARE * len(codes)), stream(0, "table-test"))
    train = train[: checked_limit(limit, len(train))]
    return labelled(
        "table", path, (inputs[train], codes[train]), (inputs[test], codes[test]), names.tolist(),
        noise_inputs=partial(_on_one_scale, inputs[train]),
    )  # fmt: skip


def _on_one_scale(inputs: Floats) -> Floats:
    """Each column with mean 0 and deviation 1, so that instance-dependent noise does not follow the largest one."""
    spread = inputs.std(axis=0)
    return (inputs - inputs.mean(axis=0)) / np.where(spread > 0, spread, 1)
