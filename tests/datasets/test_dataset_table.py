"""A file of one's own as a data set: its columns as `fit` reads them, the same test rows every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labelloop.data.datasets import load_dataset
from labelloop.errors import DataError, UsageError


def written(folder: Path, rows: int = 40, kinds: tuple[str, ...] = ("cat", "dog")) -> Path:
    (folder / "tables").mkdir()
    lines = [f"{k},{1000 * k},{'ab'[k % 2]},{kinds[k % len(kinds)]}" for k in range(rows)]
    (folder / "tables" / "pets.csv").write_text("\n".join(["age,weight,home,kind", *lines, "1,2,a,"]) + "\n")
    return folder


def test_columns_become_features_and_a_blank_label_leaves_its_row_out(tmp_path):
    data = load_dataset("table", written(tmp_path), file="tables/pets.csv", label="kind")
    assert data.class_names == ("cat", "dog")
    assert (data.inputs.shape, data.test_inputs.shape) == ((28, 4), (12, 4))  # 40 rows; age, weight, home=a, home=b
    ages = np.concatenate([data.inputs[:, 0], data.test_inputs[:, 0]])
    assert sorted(ages) == list(range(40))
    assert (data.labels == data.inputs[:, 0] % 2).all()
    assert (data.test_labels == data.test_inputs[:, 0] % 2).all()
    again = load_dataset("table", tmp_path, file="tables/pets.csv", label="kind")
    assert again.fingerprint == data.fingerprint
    assert (again.test_inputs == data.test_inputs).all()


def test_noise_that_follows_the_row_sees_columns_on_one_scale(tmp_path):
    data = load_dataset("table", written(tmp_path), file="tables/pets.csv", label="kind")
    assert data.noise_inputs is not None
    np.testing.assert_allclose(data.noise_inputs().std(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(data.noise_inputs()[:, 0], data.noise_inputs()[:, 1], atol=1e-5)  # age and weight


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(UsageError, match=r"table: give the options file, .*, and label"):
        load_dataset("table", tmp_path)
    with pytest.raises(DataError, match="'kind' has fewer than two different labels"):
        load_dataset("table", written(tmp_path, kinds=("cat",)), file="tables/pets.csv", label="kind")
    with pytest.raises(DataError, match="knd"):
        load_dataset("table", tmp_path, file="tables/pets.csv", label="knd")
