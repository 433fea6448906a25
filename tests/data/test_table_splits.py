"""The splits: sizes, strata and randomness, for any labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelloop.data.datasets.digits import digits
from labelloop.errors import UsageError
from labelloop.splits import clean_split, stratified_split

LABELS = st.lists(st.integers(0, 6), max_size=60)


@settings(deadline=None, max_examples=150)
@given(labels=LABELS, fraction=st.floats(0.01, 0.99), seed=st.integers(0, 1000))
def test_stratified_split_parts_the_rows_and_keeps_every_class_on_both_sides(labels, fraction, seed):
    first, second = stratified_split(np.array(labels, dtype=np.int64), fraction, np.random.default_rng(seed))
    assert sorted([*first, *second]) == list(range(len(labels)))
    assert list(first) == sorted(first)
    assert list(second) == sorted(second)
    counts = np.bincount(labels, minlength=7) if labels else np.zeros(7, dtype=int)
    on_first = np.bincount(np.array(labels, dtype=int)[first], minlength=7)
    only_singles = (counts <= 1).all()
    for k in range(7):
        if counts[k] >= 2:
            assert 1 <= on_first[k] <= counts[k] - 1
            # Within one row of the exact share, unless a side would have been left empty.
            assert abs(on_first[k] - np.clip(counts[k] * fraction, 1, counts[k] - 1)) <= 1.0
        elif counts[k] == 1 and not only_singles:
            assert on_first[k] == 1
    assert (len(second) > 0) == (len(labels) >= 2)
    assert (len(first) > 0) == (len(labels) >= 1)


@settings(deadline=None, max_examples=150)
@given(
    labels=st.lists(st.integers(-1, 6), min_size=3, max_size=80),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_clean_split_draws_the_number_asked_for_in_proportion(labels, share, seed):
    labels = np.array(labels, dtype=np.int64)
    known = int((labels != -1).sum())
    if known < 2:
        with pytest.raises(UsageError, match=f"{known} labelled rows"):
            clean_split(labels, 1, np.random.default_rng(seed))
        return
    num_clean = 1 + int(share * (known - 2))
    noisy, clean = clean_split(labels, num_clean, np.random.default_rng(seed))
    assert sorted([*noisy, *clean]) == list(range(len(labels)))
    assert len(clean) == num_clean
    assert (labels[clean] != -1).all()
    exact = np.bincount(labels[labels != -1], minlength=7) * num_clean / known
    assert (np.abs(np.bincount(labels[clean], minlength=7) - exact) < 1).all()


def test_clean_split_gives_equal_shares_to_equal_classes():
    labels = np.repeat(np.arange(10), 100)
    _, clean = clean_split(labels, 50, np.random.default_rng(0))
    assert np.bincount(labels[clean]).tolist() == [5] * 10


@pytest.mark.parametrize("num_clean", [0, -1, 20, 21])
def test_clean_split_names_the_numbers_when_it_cannot(num_clean):
    with pytest.raises(UsageError, match=f"num_clean is {num_clean}, but there are 20 labelled rows"):
        clean_split(np.arange(20) % 2, num_clean, np.random.default_rng(0))


@pytest.mark.parametrize("fraction", [0, 1, 1.5])
def test_stratified_split_refuses_a_fraction_outside_0_and_1(fraction):
    with pytest.raises(UsageError, match=f"fraction is {fraction}"):
        stratified_split([0, 1], fraction, np.random.default_rng(0))


def test_the_same_stream_gives_the_same_split_and_another_gives_another():
    labels = np.arange(300) % 3
    for split, size in ((clean_split, 60), (stratified_split, 0.8)):
        once, again, other = (split(labels, size, np.random.default_rng(seed))[1] for seed in (1, 1, 2))
        assert np.array_equal(once, again)
        assert not np.array_equal(once, other)


def test_stratified_split_works_on_text():
    first, second = stratified_split(np.array(["a", "b", "a", "b"]), 0.5, np.random.default_rng(0))
    assert len(first) == len(second) == 2


def test_digits_are_the_same_every_time_and_stratified():
    x_train, y_train, x_test, y_test = digits()
    assert x_train.shape == (1200, 64)
    assert x_test.shape == (597, 64)
    assert x_train.dtype == np.float32
    assert y_train.dtype == np.int64
    assert x_train.min() == 0
    assert x_train.max() == 1
    share = np.bincount(y_test) / (np.bincount(y_train) + np.bincount(y_test))
    assert np.abs(share - 597 / 1797).max() < 0.01
    # Another split would move every published number on the digits.
    assert y_test[:12].tolist() == [1, 2, 4, 2, 8, 8, 4, 7, 7, 3, 2, 2]
    assert x_test.sum(dtype=np.float64) == 11603.5625
    again = digits()
    assert all(np.array_equal(a, b) for a, b in zip((x_train, y_train, x_test, y_test), again, strict=True))
