"""The residual networks against the public ones: parameter counts, key names, and a forward pass written from keys."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from labelloop.errors import UsageError
from labelloop.models import TwoHeadClassifier, build_encoder

pytestmark = pytest.mark.slow

DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}
CONVOLUTIONS = {"resnet18": 2, "resnet34": 2, "resnet50": 3}  # in a block
FEATURES = {"resnet18": 512, "resnet34": 512, "resnet50": 2048}
PUBLIC = {"resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032}  # with 1000 classes
LARGE_STEM, SMALL_STEM = 3 * 64 * 7 * 7, 3 * 64 * 3 * 3


def _size(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _batch_norm_keys(name: str) -> list[str]:
    return [f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]


def _public_keys(name: str) -> list[str]:
    """The keys of the public checkpoint in its order, without fc."""
    keys = ["conv1.weight", *_batch_norm_keys("bn1")]
    for layer, depth in enumerate(DEPTHS[name], start=1):
        for place in range(depth):
            block = f"layer{layer}.{place}"
            for number in range(1, CONVOLUTIONS[name] + 1):
                keys += [f"{block}.conv{number}.weight", *_batch_norm_keys(f"{block}.bn{number}")]
            # Stage 1 keeps 64 channels in basic blocks, but has four times as many in bottlenecks.
            if place == 0 and (layer > 1 or name == "resnet50"):
                keys += [f"{block}.downsample.0.weight", *_batch_norm_keys(f"{block}.downsample.1")]
    return keys


@pytest.mark.parametrize("name", DEPTHS)
def test_imagenet_form_has_the_public_size(name):
    encoder = build_encoder(name, (3, 64, 64), {"stem": "imagenet"})
    assert encoder.feature_dim == FEATURES[name]
    assert _size(encoder) + 1000 * FEATURES[name] + 1000 == PUBLIC[name]


@pytest.mark.parametrize("name", ["resnet18", "resnet34"])
def test_cifar_form_is_the_default_and_differs_in_the_stem_alone(name):
    size = _size(build_encoder(name, (3, 32, 32)))
    assert size == PUBLIC[name] - (1000 * 512 + 1000) - LARGE_STEM + SMALL_STEM
    assert size == {"resnet18": 11_168_832, "resnet34": 21_276_992}[name]


def test_resnet50_has_the_imagenet_stem_by_default():
    encoder = build_encoder("resnet50", (3, 224, 224))
    assert _size(encoder) == 23_508_032
    assert encoder.conv1.weight.shape == (64, 3, 7, 7)


@pytest.mark.parametrize("name", DEPTHS)
def test_keys_are_those_of_the_public_checkpoint(name):
    keys = list(build_encoder(name, (3, 32, 32)).state_dict())
    assert keys == _public_keys(name)
    assert len(keys) == {"resnet18": 120, "resnet34": 216, "resnet50": 318}[name]


@pytest.mark.parametrize("name", DEPTHS)
@pytest.mark.parametrize("input_shape", [(3, 32, 32), (1, 20, 12)])
def test_features_of_images(name, input_shape):
    encoder = build_encoder(name, input_shape).eval()
    with torch.no_grad():
        out = encoder(torch.zeros(2, *input_shape))
    assert out.shape == (2, encoder.feature_dim)


def _from_keys(state: dict[str, torch.Tensor], x: torch.Tensor, strided: str, large_stem: bool) -> torch.Tensor:
    """A residual network in evaluation mode, led by the keys of its state dict alone."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        mean, variance, scale, shift = (
            state[f"{name}.{part}"].view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / torch.sqrt(variance + 1e-5) * scale + shift

    def conv(x: torch.Tensor, name: str, stride: int) -> torch.Tensor:
        weight = state[f"{name}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    x = norm(conv(x, "conv1", 2 if large_stem else 1), "bn1").clamp(min=0)
    if large_stem:
        x = F.max_pool2d(x, 3, 2, 1)
    blocks = sorted({tuple(int(n) for n in key[5:].split(".")[:2]) for key in state if key.startswith("layer")})
    for layer, place in blocks:
        name = f"layer{layer}.{place}"
        stride = 2 if layer > 1 and place == 0 else 1
        convolutions = [n for n in "123" if f"{name}.conv{n}.weight" in state]
        inside = x
        for n in convolutions:
            inside = norm(conv(inside, f"{name}.conv{n}", stride if n == strided else 1), f"{name}.bn{n}")
            inside = inside if n == convolutions[-1] else inside.clamp(min=0)
        if f"{name}.downsample.0.weight" in state:
            x = norm(conv(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
        x = (x + inside).clamp(min=0)
    return x.flatten(2).mean(2)


@pytest.mark.parametrize(
    ("name", "stem", "strided"),
    [("resnet18", "cifar", "1"), ("resnet18", "imagenet", "1"), ("resnet50", "imagenet", "2")],
)
def test_forward_pass_equals_one_written_from_the_keys(name, stem, strided):
    torch.manual_seed(0)
    encoder = build_encoder(name, (3, 33, 33), {"stem": stem}).eval()
    for part in encoder.modules():
        if isinstance(part, torch.nn.BatchNorm2d):  # statistics that show when two layers are exchanged
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            torch.nn.init.uniform_(part.weight, 0.3, 0.7)
            torch.nn.init.normal_(part.bias, 0, 0.1)
    x = torch.randn(2, 3, 33, 33)  # an odd size shows on which convolution the stride is
    with torch.no_grad():
        expected = _from_keys(encoder.state_dict(), x, strided, stem == "imagenet")
        torch.testing.assert_close(encoder(x), expected, rtol=1e-3, atol=1e-4)
    assert expected.std() > 0.01


def test_convolutions_start_with_the_kaiming_deviation_of_their_outputs():
    encoder = build_encoder("resnet18", (3, 32, 32))
    convolutions = [part for part in encoder.modules() if isinstance(part, torch.nn.Conv2d)]
    assert len(convolutions) == 20
    for part in convolutions:
        expected = math.sqrt(2 / (part.out_channels * part.kernel_size[0] ** 2))
        assert abs(part.weight.std().item() / expected - 1) < 0.1


def test_a_few_steps_on_two_images_lower_the_loss():
    torch.manual_seed(0)
    model = TwoHeadClassifier(build_encoder("resnet34", (3, 16, 16)), 2)
    x, labels = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8), torch.tensor([0, 1])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        out = model(x)
        loss = F.cross_entropy(out.logits, labels) + F.cross_entropy(out.noisy_logits, 1 - labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_channels_last_gives_the_same_features():
    torch.manual_seed(0)
    encoder = build_encoder("resnet18", (3, 16, 16)).eval()
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        contiguous = encoder(x)
        encoder = encoder.to(memory_format=torch.channels_last)
        last = encoder(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, contiguous, rtol=1e-3, atol=1e-4)


def test_an_unknown_stem_is_refused():
    with pytest.raises(UsageError, match="stem must be one of cifar, imagenet, not 'small'"):
        build_encoder("resnet18", (3, 32, 32), {"stem": "small"})
