"""The small convolutional network: size, the images it takes, and its options."""

from __future__ import annotations

import pytest
import torch

from labelloop.errors import UsageError
from labelloop.models import build_encoder


def test_size_by_hand():
    encoder = build_encoder("small-cnn", (3, 32, 32))
    convolutions = 9 * (3 * 32 + 32 * 64 + 64 * 96 + 96 * 128)
    scales_and_shifts = 2 * (32 + 64 + 96 + 128)
    assert sum(p.numel() for p in encoder.parameters()) == convolutions + scales_and_shifts == 185_824
    assert encoder.feature_dim == 128


@pytest.mark.parametrize("input_shape", [(1, 8, 8), (3, 8, 8), (3, 32, 32), (1, 28, 28), (3, 9, 17)])
def test_any_image_from_8_pixels(input_shape):
    encoder = build_encoder("small-cnn", input_shape)
    out = encoder(torch.zeros(2, *input_shape))
    assert out.shape == (2, 128)
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("input_shape", [(3, 7, 32), (3, 32, 7), (1, 4, 4)])
def test_smaller_images_are_refused_by_shape(input_shape):
    with pytest.raises(UsageError, match="at least 8x8 pixels") as caught:
        build_encoder("small-cnn", input_shape)
    assert str(input_shape) in str(caught.value)


def test_fewer_widths_take_smaller_images():
    encoder = build_encoder("small-cnn", (1, 4, 4), {"widths": [8, 16]})
    assert encoder(torch.zeros(2, 1, 4, 4)).shape == (2, 16)


@pytest.mark.parametrize("widths", [[], 32, [0], ["8"]])
def test_widths_that_do_not_exist(widths):
    with pytest.raises(UsageError, match="widths must be a list of one or more positive whole numbers"):
        build_encoder("small-cnn", (3, 32, 32), {"widths": widths})


@pytest.mark.parametrize("training", [False, True])
def test_channels_last_gives_the_same_features(training):
    encoder = build_encoder("small-cnn", (3, 16, 16)).train(training)
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    contiguous = encoder(x)
    encoder = encoder.to(memory_format=torch.channels_last)
    torch.testing.assert_close(encoder(x.to(memory_format=torch.channels_last)), contiguous, atol=1e-5, rtol=1e-4)


def test_a_first_stride_of_2_halves_every_map():
    encoder = build_encoder("small-cnn", (3, 16, 16), {"stride": 2})
    sizes = []
    for block in encoder.blocks:
        block.register_forward_hook(lambda _, inputs, out: sizes.append(tuple(out.shape[2:])))
    assert encoder(torch.zeros(2, 3, 16, 16)).shape == (2, 128)
    assert sizes == [(8, 8), (4, 4), (2, 2), (1, 1)]
    with pytest.raises(UsageError, match="halves the image 4 times and needs at least 16x16"):
        build_encoder("small-cnn", (3, 15, 16), {"stride": 2})
    with pytest.raises(UsageError, match="stride must be 1 or 2, not 3"):
        build_encoder("small-cnn", (3, 32, 32), {"stride": 3})
