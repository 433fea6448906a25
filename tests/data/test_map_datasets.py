"""A map-style dataset gives what the same array gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labelloop import fit
from labelloop.data.table import from_arrays

QUICK = {"epochs": 4, "rounds": 0, "network_options": {"hidden": [8]}}


class Items(torch.utils.data.Dataset):
    """Rows of an array, with or without a label, as torch has them."""

    def __init__(self, values, labelled=True, noise=0.0):
        self.values, self.labelled, self.noise = values, labelled, noise

    def __len__(self):
        return len(self.values)

    def __getitem__(self, row):
        item = torch.as_tensor(self.values[row]) + self.noise * torch.rand(())
        return (item, 0) if self.labelled else item


def rows(count=120):
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=count)
    inputs = (100 * rng.normal(size=(count, 5)) + 300 * np.eye(3, 5)[true]).astype(np.float32)
    given = np.where(rng.random(count) < 0.3, rng.integers(3, size=count), true)
    clean = np.where(np.arange(count) < 40, true, -1)
    return inputs, given, clean


@pytest.mark.parametrize("labelled", [True, False])
def test_the_same_rows_come_back_with_the_same_labels_bit_for_bit(labelled):
    inputs, given, clean = rows()
    found = [fit(each, given, clean, config=QUICK, progress=False) for each in (inputs, Items(inputs, labelled))]
    np.testing.assert_array_equal(found[0].corrected_proba, found[1].corrected_proba)
    np.testing.assert_array_equal(found[0].predicted_proba, found[1].predicted_proba)


def test_images_in_torchs_order_become_those_of_the_array():
    images = np.random.default_rng(0).random((6, 3, 8, 8)).astype(np.float32)
    table = from_arrays(Items(images), np.arange(6) % 2, np.arange(6) % 2)
    np.testing.assert_array_equal(table.inputs, np.moveaxis(images, 1, 3))


def test_a_dataset_that_gives_other_values_each_time_stays_one_and_says_so():
    inputs, given, clean = rows()
    random = Items(inputs, noise=1.0)
    with pytest.warns(UserWarning, match="reading row 0 twice gives other values"):
        assert from_arrays(random, given, clean).inputs is random


def test_items_of_several_shapes_stay_in_their_dataset():
    ragged = [np.zeros(3), np.zeros(4)]
    items = Items(ragged)
    assert from_arrays(items, [0, 1], [0, 1]).inputs is items
