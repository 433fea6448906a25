"""Residual networks. Parameters are named as in the public ImageNet checkpoints, without the final layer `fc`."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from labelloop.errors import UsageError

STEMS = ("cifar", "imagenet")


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
