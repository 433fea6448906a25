"""Texts with weak labels: sentence embeddings, and the votes of labelling functions whose majority is the given label.

One .npz file per data set, with x_*, y_* and votes_* of train and test, and class_names. A vote of -1 abstains.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelloop.data.datasets.embeddings import read_arrays, read_features
from labelloop.data.datasets.labelled import LabelledData, labelled
from labelloop.data.datasets.options import checked_limit
from labelloop.data.datasets.places import not_found, places
from labelloop.errors import DataError, UsageError, nearest
from labelloop.seeds import stream
from labelloop.splits import clean_split
from labelloop.types import MISSING, Labels

FOLDER = "weak-text"
NAMES = ("youtube", "sms")
KEYS = ("x_train", "y_train", "votes_train", "x_test", "y_test")


def weak_text(
    root: str | Path | None = None,
    *,
    limit: int | None = None,
    texts: str = "youtube",
    clean: int = 300,
    seed: int = 0,
) -> LabelledData:
    """Public texts whose given labels are the majority of some labelling functions' votes.

    Args:
        root: The folder that holds the folder weak-text; by default LABELLOOP_DATA.
        limit: Use only the first training rows.
        texts: "youtube" (spam comments) or "sms" (spam messages).
        clean: The number of clean training rows, stratified by class.
        seed: The seed of the run; draws the clean rows.
    """
    checked_limit(limit)
    if texts not in NAMES:
        raise UsageError(f"weak-text: unknown texts {texts!r}; {nearest(texts, NAMES)}")
    file = Path(FOLDER) / f"{texts}.npz"
    path = next((place / file for place in places(root) if (place / file).is_file()), None)
    if path is None:
        raise not_found("weak-text", root, str(file))
    arrays = read_arrays(path, KEYS)
    if "class_names" not in arrays:
        raise DataError(f"{path}: has no class_names: write them with the other arrays by np.savez")
    names = arrays["class_names"].astype(str).tolist()
    first = slice(checked_limit(limit, len(arrays["x_train"])))
    _, clean_index = clean_split(arrays["y_train"][first], clean, stream(seed, "clean-split"))
    return labelled(
        name="weak-text",
        source=path,
        inputs=read_features(arrays["x_train"][first], f"{path}: x_train"),
        labels=arrays["y_train"][first],
        test_inputs=read_features(arrays["x_test"], f"{path}: x_test"),
        test_labels=arrays["y_test"],
        class_names=names,
        given_labels=majority(arrays["votes_train"][first], len(names)),
        clean_index=clean_index,
    )


def majority(votes: NDArray, num_classes: int) -> Labels:
    """The class with the most votes of every row [N], the first one in a tie; missing without a vote.

    Args:
        votes: [N, functions]; -1 abstains.
        num_classes: How many classes there are.
    """
    if votes.ndim != 2 or votes.dtype.kind not in "iu":
        raise DataError(f"votes have shape {votes.shape} and type {votes.dtype}; expected whole numbers [N, functions]")
    bad = np.flatnonzero(((votes < MISSING) | (votes >= num_classes)).any(axis=1))
    if len(bad):
        raise DataError(f"votes of row {bad[0]}: {votes[bad[0]].tolist()}; expected -1 or a class below {num_classes}")
    counts = np.stack([(votes == number).sum(axis=1) for number in range(num_classes)], axis=1)  # [N, C]
    return np.where(counts.any(axis=1), counts.argmax(axis=1), MISSING)
