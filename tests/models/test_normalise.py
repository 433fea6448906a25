"""Normalisation against numbers worked out by hand or by numpy on a float copy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labelloop import models
from labelloop.errors import DataError
from labelloop.models import Normalise, mean_and_std


def test_pixels_by_hand():
    layer = Normalise([0.5, 0.0], [0.25, 2.0])
    x = torch.tensor([[[[0, 255]], [[51, 102]]]], dtype=torch.uint8)  # [1, 2, 1, 2]
    out = layer(x)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, torch.tensor([[[[-2.0, 2.0]], [[0.1, 0.2]]]]))


def test_columns_by_hand_and_a_zero_deviation_becomes_one():
    layer = Normalise([1.0, 10.0], [0.5, 0.0])
    assert layer(torch.tensor([[2.0, 13.0], [0.0, 10.0]])).tolist() == [[2.0, 3.0], [-2.0, 0.0]]
    assert layer.std.tolist() == [0.5, 1.0]


def test_float_images_are_not_divided_by_255():
    layer = Normalise([1.0, 0.0, 0.0], [1.0, 1.0, 4.0])
    out = layer(torch.full((1, 3, 2, 2), 8.0))
    assert out[0, :, 1, 1].tolist() == [7.0, 8.0, 2.0]


def test_double_and_integer_features_become_float32():
    layer = Normalise([1.0], [2.0])
    for dtype in (torch.float64, torch.int64):
        out = layer(torch.tensor([[5], [1]], dtype=dtype))
        assert out.dtype == torch.float32
        assert out.tolist() == [[2.0], [0.0]]


def test_identity_changes_no_bit():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Normalise.identity()(x), x)
    assert torch.equal(Normalise.identity(4)(x), x)
    pixels = torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8)
    assert torch.equal(Normalise.identity()(pixels), pixels.float() / 255)


def test_the_buffers_travel_in_the_state_dict_and_take_no_gradient():
    layer, other = Normalise([1.0, 2.0], [3.0, 4.0]), Normalise.identity(2)
    other.load_state_dict(layer.state_dict())
    assert other.mean.tolist() == [1.0, 2.0]
    assert other.std.tolist() == [3.0, 4.0]
    assert list(layer.parameters()) == []


def test_channels_last_stays_channels_last():
    x = torch.zeros(2, 3, 4, 5, dtype=torch.uint8).to(memory_format=torch.channels_last)
    out = Normalise([0.1, 0.2, 0.3], [1.0, 2.0, 3.0])(x)
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert not out.is_contiguous()


def test_statistics_of_pixels_by_hand_use_only_the_indexed_rows():
    images = np.zeros((3, 1, 2, 2), np.uint8)  # [n, H, W, C]
    images[0, 0, :, 0] = [0, 255]
    images[1, 0, :, 0] = 77  # not indexed
    images[2, 0, :, 0] = [255, 255]
    images[..., 1] = 51
    mean, std = mean_and_std(images, np.array([0, 2]))
    np.testing.assert_allclose(mean, [0.75, 0.2], rtol=1e-15)
    np.testing.assert_allclose(std, [np.sqrt(3) / 4, 0.0], rtol=1e-15)


@pytest.mark.parametrize("chunk", [1, 100, 2**20])
@pytest.mark.parametrize("kind", ["pixels", "pixel matrix", "features", "float images"])
def test_statistics_equal_those_of_a_float_copy_whatever_the_chunk(kind, chunk, monkeypatch):
    monkeypatch.setattr(models, "_CHUNK_VALUES", chunk)
    rng = np.random.default_rng(0)
    inputs = {
        "pixels": lambda: rng.integers(0, 256, (23, 4, 5, 3), dtype=np.uint8),
        "pixel matrix": lambda: rng.integers(0, 256, (23, 7), dtype=np.uint8),
        "features": lambda: rng.normal(3, 2, (23, 7)).astype(np.float32),
        "float images": lambda: rng.normal(3, 2, (23, 4, 5, 3)).astype(np.float32),
    }[kind]()
    index = rng.permutation(23)[:17]
    copy = inputs[index].astype(np.float64).reshape(-1, inputs.shape[-1])
    if inputs.dtype == np.uint8:
        copy /= 255
    mean, std = mean_and_std(inputs, index)
    np.testing.assert_allclose(mean, copy.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(std, copy.std(axis=0), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_normalised_training_rows_have_mean_zero_and_deviation_one(dtype):
    rng = np.random.default_rng(1)
    shape = (50, 6, 6, 3) if dtype == np.uint8 else (50, 3)
    inputs = rng.integers(0, 200, shape).astype(dtype)
    layer = Normalise(*mean_and_std(inputs, np.arange(50)))
    x = torch.from_numpy(inputs)
    x = x.permute(0, 3, 1, 2) if x.ndim == 4 else x
    values = layer(x).transpose(0, 1).flatten(1)  # [C, values]
    torch.testing.assert_close(values.mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(values.std(1, correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_a_small_deviation_beside_a_large_mean_is_not_lost():
    column = np.array([[1e4], [1e4 + 1], [1e4 + 2]] * 1000, np.float32)
    _, std = mean_and_std(column, np.arange(3000))
    np.testing.assert_allclose(std, [np.sqrt(2 / 3)], rtol=1e-9)


def test_a_constant_column_is_constant_despite_rounding():
    inputs = np.full((1001, 2), 0.1)
    inputs[:, 1] = np.arange(1001)
    mean, std = mean_and_std(inputs, np.arange(1001))
    assert std[0] == 0
    assert std[1] > 0
    # A new value in that column stays in bounds.
    assert abs(Normalise(mean, std)(torch.tensor([[0.6, 500.0]]))[0, 0] - 0.5) < 1e-6


def test_no_rows_is_an_error():
    with pytest.raises(DataError, match="at least one training row"):
        mean_and_std(np.zeros((3, 2), np.float32), np.array([], np.int64))
