"""Arrays whose columns have units of their own are scaled column by column; embeddings and pixels are not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

from labelloop.config.base import TrainingConfig
from labelloop.training.setup import has_own_scales, resolve
from labelloop.types import NARROW, Problem, Rows


def rows(inputs: np.ndarray) -> Rows:
    index, labels = np.arange(len(inputs)), np.zeros(len(inputs), np.int64)
    return Rows(inputs.astype(np.float32), index, labels, labels - 1)


@pytest.mark.parametrize(("load", "normalise"), [(load_wine, "columns"), (load_digits, "whole")])
def test_a_table_in_an_array_is_told_from_pixels(load, normalise):
    train = rows(load().data)
    problem = Problem(train, rows(load().data[:0]), ("a", "b"))
    assert resolve(TrainingConfig(), problem).normalise == normalise


def test_one_column_in_another_unit_is_enough_and_constant_columns_do_not_count():
    alike = np.random.default_rng(0).normal(size=(50, 6))
    alike[:, 0] = 7.0
    assert not has_own_scales(rows(alike))
    alike[:, 1] *= 100
    assert has_own_scales(rows(alike))


def test_wide_arrays_are_embeddings_whatever_their_scales():
    wide = np.random.default_rng(0).normal(size=(20, NARROW))
    wide[:, 0] *= 100
    assert not has_own_scales(rows(wide))
    assert has_own_scales(rows(wide[:, :-1]))
