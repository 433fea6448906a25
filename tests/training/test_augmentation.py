"""Random crop and flip of a whole batch, against a loop over its images with the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.training.augmentation import crop_and_flip


def crop_and_flip_one_by_one(images: np.ndarray, rng: np.random.Generator, padding: int = 4) -> np.ndarray:
    count, height, width, _ = images.shape
    tops = rng.integers(0, 2 * padding + 1, count)
    lefts = rng.integers(0, 2 * padding + 1, count)
    flips = rng.random(count) < 0.5
    results = []
    for image, top, left, flip in zip(images, tops, lefts, flips, strict=True):
        padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
        cropped = padded[top : top + height, left : left + width]
        results.append(cropped[:, ::-1] if flip else cropped)
    return np.stack(results)


def pictures(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("shape", [(64, 32, 32, 3), (30, 8, 8, 1), (10, 5, 9, 4), (1, 8, 8, 3)])
@pytest.mark.parametrize("padding", [1, 2, 4])
def test_it_agrees_with_a_loop_over_the_images(shape, padding):
    images = pictures(*shape)
    for seed in range(3):
        batch = crop_and_flip(images, np.random.default_rng(seed), padding)
        np.testing.assert_array_equal(batch, crop_and_flip_one_by_one(images, np.random.default_rng(seed), padding))
        assert batch.dtype == np.uint8
        assert batch.shape == images.shape


def test_the_default_padding_is_four_pixels():
    images = pictures(64, 16, 16, 3)
    expected = crop_and_flip_one_by_one(images, np.random.default_rng(1), 4)
    np.testing.assert_array_equal(crop_and_flip(images, np.random.default_rng(1)), expected)


def test_zeros_move_in_and_nothing_else_is_invented():
    images = np.full((500, 8, 8, 1), 200, np.uint8)
    batch = crop_and_flip(images, np.random.default_rng(0), 4)
    assert set(np.unique(batch)) == {0, 200}
    kept = (batch > 0).sum(axis=(1, 2, 3))
    assert kept.min() == 16  # a shift by four both ways
    assert kept.max() == 64


def test_about_half_the_images_are_mirrored_and_every_shift_occurs():
    images = np.zeros((4000, 9, 9, 1), np.uint8)
    images[:, 4, 4], images[:, 4, 5] = 1, 2  # a pair of pixels that tells the direction
    batch = crop_and_flip(images, np.random.default_rng(0), 3)
    row, column = np.nonzero((batch[..., 0] == 1).any(axis=2))[1], np.nonzero((batch[..., 0] == 1).any(axis=1))[1]
    assert len(row) == len(column) == 4000
    right = batch[np.arange(4000), row, column + 1, 0] == 2
    assert right.mean() == pytest.approx(0.5, abs=0.04)
    assert set(row) == set(range(1, 8))
    assert set(column) == set(range(1, 8))


def test_the_images_are_not_changed_and_a_seed_fixes_the_result():
    images = pictures(20, 8, 8, 3)
    copy = images.copy()
    first = crop_and_flip(images, np.random.default_rng(3))
    np.testing.assert_array_equal(images, copy)
    np.testing.assert_array_equal(first, crop_and_flip(images, np.random.default_rng(3)))
    assert not np.array_equal(first, crop_and_flip(images, np.random.default_rng(4)))
