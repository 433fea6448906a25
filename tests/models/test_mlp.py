"""The multi-layer perceptron: size, what its features are, and its options."""

from __future__ import annotations

import pytest
import torch

from labelloop.errors import UsageError
from labelloop.models import build_encoder


def test_default_size_by_hand():
    encoder = build_encoder("mlp", (512,))
    assert encoder.feature_dim == 256
    assert sum(p.numel() for p in encoder.parameters()) == (512 * 256 + 256) + (256 * 256 + 256)


def test_features_are_the_last_hidden_layer_after_relu():
    encoder = build_encoder("mlp", (3,), {"hidden": [4, 2]})
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    one, two = encoder.hidden
    expected = ((x @ one.weight.T + one.bias).clamp(min=0) @ two.weight.T + two.bias).clamp(min=0)
    torch.testing.assert_close(encoder(x), expected)
    assert list(encoder.state_dict()) == ["hidden.0.weight", "hidden.0.bias", "hidden.1.weight", "hidden.1.bias"]


def test_images_are_flattened_whatever_their_memory_format():
    encoder = build_encoder("mlp", (3, 4, 5), {"hidden": (7,)})
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    assert encoder(x).shape == (2, 7)
    assert torch.equal(encoder(x), encoder(x.to(memory_format=torch.channels_last)))


def test_no_hidden_layer_makes_the_inputs_the_features():
    encoder = build_encoder("mlp", (3,), {"hidden": []})
    x = torch.arange(6.0).view(2, 3) - 3
    assert encoder.feature_dim == 3
    assert torch.equal(encoder(x), x)


def test_dropout_acts_in_training_mode_only():
    x = torch.ones(8, 20)
    encoder = build_encoder("mlp", (20,), {"hidden": (200,), "dropout": 0.5})
    kept = encoder.eval()(x)
    assert torch.equal(kept, encoder(x))
    dropped = encoder.train()(x)
    share = (dropped[kept > 0] == 0).float().mean()
    assert 0.3 < share < 0.7
    survivors = (kept > 0) & (dropped != 0)
    torch.testing.assert_close(dropped[survivors], kept[survivors] * 2)


def test_without_dropout_training_draws_no_random_number():
    encoder = build_encoder("mlp", (5,)).train()
    before = torch.get_rng_state()
    encoder(torch.ones(4, 5))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("hidden", [256, [0], [4, -1], ["4"], "44", [2.5]])
def test_widths_that_do_not_exist(hidden):
    with pytest.raises(UsageError, match="hidden must be a list of positive whole numbers"):
        build_encoder("mlp", (5,), {"hidden": hidden})


@pytest.mark.parametrize("dropout", [1, -0.1, 1.5, "0.1"])
def test_dropout_out_of_range(dropout):
    with pytest.raises(UsageError, match="dropout must be at least 0 and below 1"):
        build_encoder("mlp", (5,), {"dropout": dropout})
