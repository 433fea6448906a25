"""The handwritten digits that ship with scikit-learn: real images, no download, for the demo and the tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from labelloop.data.datasets.labelled import LabelledData, checked_limit, labelled
from labelloop.seeds import stream
from labelloop.splits import clean_split
from labelloop.types import Floats, Labels

NUM_TEST = 597


def digits() -> tuple[Floats, Labels, Floats, Labels]:
    """The 1,797 digits of 8 x 8 pixels, as rows of 64 values from 0 to 1.

    Returns:
        x_train [1200, 64], y_train [1200], x_test [597, 64] and y_test [597]. The test rows are always the same.
    """
    inputs, labels = _all_digits()
    train, test = clean_split(labels, NUM_TEST, stream(0, "digits-test"))
    return inputs[train], labels[train], inputs[test], labels[test]  # copies


@cache  # a grid of short runs would read the file again for each
def _all_digits() -> tuple[Floats, Labels]:
    from sklearn.datasets import load_digits  # takes half a second to import

    pixels, labels = load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32), labels.astype(np.int64)  # [1797, 64], [1797]


def digits_data(root: str | Path | None = None, *, limit: int | None = None) -> LabelledData:
    """The digits as a data set.

    Args:
        root: Ignored: the digits come with scikit-learn.
        limit: Use only the first training rows.
    """
    checked_limit(limit)
    x_train, y_train, x_test, y_test = digits()
    limit = checked_limit(limit, len(x_train))
    train, names = (x_train[:limit], y_train[:limit]), [str(digit) for digit in range(10)]
    return labelled("digits", "scikit-learn", train, (x_test, y_test), names)
