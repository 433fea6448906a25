"""Batches of inputs by position, from arrays and from map-style datasets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_rows import Items, float_rows, image_rows, make_rows
from toys import random_states

from labelloop.training.batches import batches, input_shape, is_images

ORDER = np.random.default_rng(5).permutation(50)


def test_an_array_comes_in_the_order_asked_for_with_the_last_small_batch():
    rows = float_rows(50)
    parts = list(batches(rows, ORDER, 16))
    assert [len(position) for position, _ in parts] == [16, 16, 16, 2]
    np.testing.assert_array_equal(np.concatenate([position for position, _ in parts]), ORDER)
    for position, x in parts:
        assert x.dtype == torch.float32
        np.testing.assert_array_equal(x.numpy(), rows.inputs[position])


def test_positions_count_in_the_rows_not_in_the_store():
    store = float_rows(50).inputs
    rows = make_rows(store, 10)
    rows = replace(rows, index=np.arange(40, 50)[::-1].copy())
    for position, x in batches(rows, np.array([3, 0, 9]), 2):
        np.testing.assert_array_equal(x.numpy(), store[49 - position])


def test_numbers_of_another_type_become_float32():
    rows = make_rows(np.arange(20, dtype=np.float64).reshape(10, 2) / 3)
    (_, x), *_ = batches(rows, np.arange(10), 4)
    assert x.dtype == torch.float32
    np.testing.assert_array_equal(x.numpy(), (np.arange(8).reshape(4, 2) / 3).astype(np.float32))


@pytest.mark.parametrize("channels", [1, 3])
def test_images_keep_their_bytes_with_channels_first_in_shape_and_last_in_memory(channels):
    rows = image_rows(20, channels)
    for position, x in batches(rows, np.arange(20)[::-1], 8):
        assert x.dtype == torch.uint8
        assert x.shape == (len(position), channels, 8, 8)
        assert x.is_contiguous(memory_format=torch.channels_last)
        np.testing.assert_array_equal(x.numpy(), rows.inputs[position].transpose(0, 3, 1, 2))


def test_augmentation_gets_the_images_of_the_batch_and_leaves_the_store_alone():
    rows = image_rows(20)
    copy = rows.inputs.copy()

    def invert(images):
        assert images.shape[1:] == (8, 8, 3)
        images[:] = 255 - images
        return images

    for position, x in batches(rows, np.arange(20), 8, invert):
        np.testing.assert_array_equal(x.numpy(), 255 - copy[position].transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(rows.inputs, copy)


@pytest.mark.parametrize("form", ["input", "tuple", "list", "numpy"])
def test_a_dataset_gives_its_inputs_whatever_else_its_items_hold(form):
    store = float_rows(50).inputs
    rows = replace(make_rows(Items(store, form), 30), index=np.arange(20, 50))
    order = ORDER[ORDER < 30]
    parts = list(batches(rows, order, 8))
    assert [len(position) for position, _ in parts] == [8, 8, 8, 6]
    np.testing.assert_array_equal(np.concatenate([position for position, _ in parts]), order)
    for position, x in parts:
        np.testing.assert_array_equal(x.numpy(), store[20 + position])


def test_workers_give_the_same_batches():
    rows = make_rows(Items(float_rows(50).inputs, "tuple"), 50)
    alone, helped = list(batches(rows, ORDER, 16)), list(batches(rows, ORDER, 16, workers=2))
    assert len(alone) == len(helped) == 4
    for (position, x), (other_position, other_x) in zip(alone, helped, strict=True):
        np.testing.assert_array_equal(position, other_position)
        assert torch.equal(x, other_x)


def test_reading_a_dataset_draws_no_global_random_number():
    before = random_states()
    list(batches(make_rows(Items(float_rows(50).inputs), 50), ORDER, 16))
    input_shape(make_rows(Items(float_rows(50).inputs), 50))
    assert random_states() == before


class Jittered(Items):
    """A dataset that augments its items with torch's random numbers, as most do."""

    def __getitem__(self, i):
        return super().__getitem__(i) + torch.rand(())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_augments_draws_anew_in_another_epoch(workers):
    rows = make_rows(Jittered(float_rows(20).inputs), 20)
    epochs = []
    with torch.random.fork_rng(devices=[]):
        for seed in (1, 2):
            torch.manual_seed(seed)
            epochs.append(torch.cat([x for _, x in batches(rows, np.arange(20), 8, workers=workers, seed=seed)]))
    assert not torch.equal(*epochs)


@pytest.mark.parametrize(("count", "sizes"), [(33, [16, 17]), (34, [16, 16, 2]), (17, [17]), (1, [1]), (16, [16])])
def test_one_left_over_row_joins_the_batch_before_it(count, sizes):
    """Batch norm has nothing to average over in a batch of one."""
    for inputs in (float_rows(count).inputs, Items(float_rows(count).inputs)):
        parts = list(batches(make_rows(inputs), np.arange(count), 16))
        assert [len(position) for position, _ in parts] == [len(x) for _, x in parts] == sizes
        np.testing.assert_array_equal(np.concatenate([position for position, _ in parts]), np.arange(count))


def test_the_shape_of_one_input():
    assert input_shape(float_rows(5, 7)) == (7,)
    assert input_shape(image_rows(5, 1)) == (1, 8, 8)
    assert input_shape(make_rows(Items(float_rows(5, 7).inputs, "tuple"))) == (7,)


def test_which_rows_are_images():
    assert is_images(image_rows())
    assert not is_images(float_rows())
    assert not is_images(make_rows(Items(image_rows().inputs)))


class _Batched:
    """A dataset that reads a batch in a go, and says which ones it was asked for."""

    def __init__(self):
        self.asked = []

    def __len__(self):
        return 10

    def __getitem__(self, i):
        return np.full(2, i, dtype=np.float32), -1

    def __getitems__(self, index):
        self.asked.append(index)
        return [self[i] for i in index]


def test_a_dataset_that_reads_a_batch_in_a_go_is_asked_for_batches():
    dataset = _Batched()
    rows = replace(make_rows(np.zeros((10, 2), dtype=np.float32)), inputs=dataset)
    order = np.array([7, 1, 4, 9, 0])
    parts = list(batches(rows, order, 3))
    assert dataset.asked == [[7, 1, 4], [9, 0]]
    for position, x in parts:
        assert x.dtype == torch.float32
        np.testing.assert_array_equal(x.numpy(), np.repeat(position, 2).reshape(-1, 2))
