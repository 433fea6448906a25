"""A file of recorded labels is found beside the data sets, so that a grid is the same on every machine."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.errors import DataError
from labelloop.workflows.noise import corrupt


def labels_of(path):
    return corrupt(np.array([0, 1, 2]), 3, "recorded", 0.0, {"path": path, "key": "human"}, 0, lambda: None).labels


def test_a_relative_path_is_looked_for_in_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "n").mkdir()
    record = {"clean_label": np.array([0, 1, 2]), "human": np.array([0, 2, 2])}
    np.save(tmp_path / "n" / "a.npy", record, allow_pickle=True)
    monkeypatch.setenv("LABELLOOP_DATA", str(tmp_path))
    assert labels_of("n/a.npy").tolist() == [0, 2, 2]
    assert labels_of(str(tmp_path / "n" / "a.npy")).tolist() == [0, 2, 2]
    with pytest.raises((DataError, OSError), match=r"b\.npy"):
        labels_of("n/b.npy")
