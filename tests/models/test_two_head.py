"""The classifier with two heads: shapes, initial weights, and use as a function of its parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp

from labelloop.models import Normalise, TwoHeadClassifier, build_encoder


def _classifier(seed: int = 0, network: str = "small-cnn", input_shape: tuple[int, ...] = (3, 8, 8)):
    torch.manual_seed(seed)
    return TwoHeadClassifier(build_encoder(network, input_shape), num_classes=5)


def _pixels(rows: int = 4) -> torch.Tensor:
    return torch.randint(0, 256, (rows, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_outputs_are_named_and_follow_from_the_features():
    model = _classifier().eval()
    out = model(_pixels())
    assert out._fields == ("features", "logits", "noisy_logits")
    assert [tuple(part.shape) for part in out] == [(4, 128), (4, 5), (4, 5)]
    torch.testing.assert_close(out.features, model.encoder(_pixels().float() / 255))
    torch.testing.assert_close(out.logits, out.features @ model.head.weight.T + model.head.bias)
    torch.testing.assert_close(out.noisy_logits, out.features @ model.noisy_head.weight.T + model.noisy_head.bias)
    assert not torch.equal(out.logits, out.noisy_logits)


def test_a_one_head_network_from_the_same_seed_has_the_same_encoder_and_head():
    model = _classifier(seed=3)
    torch.manual_seed(3)
    encoder = build_encoder("small-cnn", (3, 8, 8))
    head = nn.Linear(encoder.feature_dim, 5)
    expected, found = encoder.state_dict(), model.encoder.state_dict()
    assert list(expected) == list(found)
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert torch.equal(head.weight, model.head.weight)
    assert torch.equal(head.bias, model.head.bias)
    assert model.noisy_head.weight.shape == head.weight.shape
    assert not torch.equal(model.noisy_head.weight, head.weight)


def test_the_normalisation_is_applied_and_saved():
    encoder = build_encoder("mlp", (2,), {"hidden": []})
    model = TwoHeadClassifier(encoder, 3, Normalise([1.0, 2.0], [2.0, 4.0]))
    out = model(torch.tensor([[3.0, 2.0]]))
    assert out.features.tolist() == [[1.0, 0.0]]
    assert model.state_dict()["normalise.mean"].tolist() == [1.0, 2.0]


def test_an_encoder_without_feature_dim_is_refused():
    with pytest.raises(AttributeError, match="feature_dim"):
        TwoHeadClassifier(nn.Flatten(), 3)


@pytest.mark.parametrize("training", [False, True])
def test_gradient_as_a_function_of_the_parameters(training):
    model, x = _classifier().train(training), _pixels()
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    before = {key: value.clone() for key, value in buffers.items()}

    def loss(parameters):
        # In training mode batch normalisation writes into its buffers, so a transform must own them.
        own = {key: value.clone() for key, value in buffers.items()}
        out = functional_call(model, (parameters, own), (x,))
        return out.logits.square().mean() + out.noisy_logits.square().mean()

    functional = grad(loss)(parameters)
    loss(parameters).backward()
    assert len(parameters) == 16
    for key, value in parameters.items():
        torch.testing.assert_close(functional[key], value.grad)
    assert all(torch.equal(before[key], buffers[key]) for key in before)


# torch scripts its own forward-mode rules at their first use, and warns of that itself.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("network", ["mlp", "small-cnn"])
@pytest.mark.parametrize("training", [False, True])
def test_directional_derivative_equals_gradient_times_direction(network, training):
    model, x = _classifier(network=network).train(training).double(), _pixels()
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    generator = torch.Generator().manual_seed(2)
    direction = {
        key: torch.randn(value.shape, generator=generator, dtype=value.dtype) for key, value in parameters.items()
    }

    def loss(parameters):
        own = {key: value.clone() for key, value in buffers.items()}
        return functional_call(model, (parameters, own), (x,)).logits.square().mean()

    _, derivative = jvp(loss, (parameters,), (direction,))
    gradient = grad(loss)(parameters)
    expected = sum((gradient[key] * direction[key]).sum() for key in parameters)
    assert abs(expected) > 1e-3
    torch.testing.assert_close(derivative, expected)


def test_bfloat16_is_close_and_leaves_weights_and_outputs_in_float32():
    torch.manual_seed(0)
    encoder = build_encoder("mlp", (8,), {"hidden": [32]})
    plain, half = TwoHeadClassifier(encoder, 3), TwoHeadClassifier(encoder, 3, bfloat16=True)
    half.load_state_dict(plain.state_dict())
    x = torch.randn(16, 8)
    out = half(x)
    out.logits.sum().backward()
    assert {part.dtype for part in out} == {torch.float32}
    assert {weight.grad.dtype for weight in half.encoder.parameters()} == {torch.float32}
    assert not torch.equal(out.features, plain(x).features)
    torch.testing.assert_close(out.features, plain(x).features, atol=0.05, rtol=0.05)
