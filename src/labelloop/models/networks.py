"""The built-in networks: a multi-layer perceptron and a small convolutional one for a CPU, residual networks for a GPU.

Parameters of the latter are named as in the public ImageNet checkpoints, without the final layer `fc`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from labelloop.errors import UsageError

STEMS = ("cifar", "imagenet")


class MLP(nn.Module):
    """Linear layers, each followed by ReLU. The features are the output of the last one, after its ReLU.

    Args:
        input_dim: The number of values in a row.
        hidden: The width of each layer; with an empty list the inputs are the features.
        dropout: The share of values set to zero after each ReLU in training mode.
    """

    def __init__(self, input_dim: int, hidden: Sequence[int], dropout: float) -> None:
        super().__init__()
        widths = [input_dim, *hidden]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.dropout = dropout
        self.feature_dim = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)  # [B, D]
        for layer in self.hidden:
            x = F.dropout(F.relu(layer(x)), self.dropout, self.training)
        return x


def _are_widths(widths: object) -> bool:
    return isinstance(widths, list | tuple) and all(isinstance(width, int) and width > 0 for width in widths)


def mlp(input_shape: tuple[int, ...], hidden: Sequence[int] = (256, 256), dropout: float = 0.0) -> MLP:
    """The `mlp` network for inputs of this shape."""
    if not _are_widths(hidden):
        raise UsageError(f"mlp: hidden must be a list of positive whole numbers, not {hidden!r}")
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise UsageError(f"mlp: dropout must be at least 0 and below 1, not {dropout!r}")
    return MLP(math.prod(input_shape), hidden, dropout)


class ConvBlock(nn.Module):
    """A 3x3 convolution, batch normalisation and ReLU."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(out_channels)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class SmallCNN(nn.Module):
    """Convolution blocks with a 2x2 max-pool between them. The features are the global average of the last one.

    Args:
        in_channels: The channels of the images.
        widths: The channels of each block.
        stride: The stride of the first block; 2 halves the height and width of every map, which makes a step about
            four times cheaper.
    """

    def __init__(self, in_channels: int, widths: Sequence[int], stride: int) -> None:
        super().__init__()
        channels = [in_channels, *widths]
        self.blocks = nn.ModuleList(
            ConvBlock(a, b, 1 if number else stride) for number, (a, b) in enumerate(pairwise(channels))
        )
        self.feature_dim = channels[-1]

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            # Halving early keeps the wide layers on small maps, where they are cheap.
            x = block(x if number == 0 else F.max_pool2d(x, 2))  # [B, width, H / 2^number, W / 2^number] / stride
        return x.mean((2, 3))  # [B, D]


def small_cnn(input_shape: tuple[int, ...], widths: Sequence[int] = (32, 64, 96, 128), stride: int = 1) -> SmallCNN:
    """The `small-cnn` network for images of this shape, at least 8 pixels high and wide (16 with stride 2)."""
    if not _are_widths(widths) or not widths:
        raise UsageError(f"small-cnn: widths must be a list of one or more positive whole numbers, not {widths!r}")
    if stride not in (1, 2):
        raise UsageError(f"small-cnn: stride must be 1 or 2, not {stride!r}")
    channels, height, width = input_shape
    smallest = stride * 2 ** (len(widths) - 1)
    if min(height, width) < smallest:
        raise UsageError(
            f"small-cnn halves the image {len(widths) - 2 + stride} times and needs at least {smallest}x{smallest} "
            f"pixels, but the inputs have shape {input_shape}; use 'mlp', or fewer widths"
        )
    return SmallCNN(channels, widths, stride)


def _conv(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the resolution, apart from its stride. No bias, as batch normalisation follows."""
    return nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False)


def _shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    """The projection of a block's input to the shape of its output, or None if the shapes are equal."""
    if stride == 1 and in_channels == out_channels:
        return None
    return nn.Sequential(_conv(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; the stride is on the first."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(in_channels, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(in_channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        return F.relu(x + shortcut)


class Bottleneck(nn.Module):
    """Convolutions 1x1, 3x3, 1x1; the stride is on the 3x3, as in the public checkpoints."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.conv1 = _conv(in_channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample = _shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return F.relu(x + shortcut)


Block = type[BasicBlock] | type[Bottleneck]


def _stage(block: Block, in_channels: int, width: int, depth: int, stride: int) -> nn.Sequential:
    """Blocks of one width; the first has the stride."""
    later = (block(width * block.expansion, width, 1) for _ in range(depth - 1))
    return nn.Sequential(block(in_channels, width, stride), *later)


class ResNet(nn.Module):
    """Four stages of residual blocks of width 64, 128, 256, 512. The features are the global average of the last one.

    Args:
        in_channels: The channels of the images.
        block: BasicBlock or Bottleneck.
        depths: The number of blocks in each stage.
        stem: "cifar" (3x3, stride 1) for small images, "imagenet" (7x7, stride 2, then a max-pool) for large ones.
    """

    def __init__(self, in_channels: int, block: Block, depths: tuple[int, int, int, int], stem: str) -> None:
        super().__init__()
        if stem not in STEMS:
            raise UsageError(f"resnet: stem must be one of {', '.join(STEMS)}, not {stem!r}")
        self.large_stem = stem == "imagenet"
        self.conv1 = _conv(in_channels, 64, 7, 2) if self.large_stem else _conv(in_channels, 64, 3)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(block, 64, 64, depths[0], stride=1)
        self.layer2 = _stage(block, 64 * block.expansion, 128, depths[1], stride=2)
        self.layer3 = _stage(block, 128 * block.expansion, 256, depths[2], stride=2)
        self.layer4 = _stage(block, 256 * block.expansion, 512, depths[3], stride=2)
        self.feature_dim = 512 * block.expansion
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        if self.large_stem:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))  # [B, D, H', W']
        return x.mean((2, 3))  # [B, D]


def resnet18(input_shape: tuple[int, ...], stem: str = "cifar") -> ResNet:
    """ResNet-18 for images of this shape."""
    return ResNet(input_shape[0], BasicBlock, (2, 2, 2, 2), stem)


def resnet34(input_shape: tuple[int, ...], stem: str = "cifar") -> ResNet:
    """ResNet-34 for images of this shape."""
    return ResNet(input_shape[0], BasicBlock, (3, 4, 6, 3), stem)


def resnet50(input_shape: tuple[int, ...], stem: str = "imagenet") -> ResNet:
    """ResNet-50 for images of this shape."""
    return ResNet(input_shape[0], Bottleneck, (3, 4, 6, 3), stem)
