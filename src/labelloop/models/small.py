"""Networks that a CPU trains in seconds: a multi-layer perceptron, and a small convolutional network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from labelloop.errors import UsageError


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


def mlp(input_shape: tuple[int, ...], hidden: Sequence[int] = (256, 256), dropout: float = 0.0) -> MLP:
    """The `mlp` network for inputs of this shape."""
    if not isinstance(hidden, list | tuple) or not all(isinstance(width, int) and width > 0 for width in hidden):
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
    if (
        not isinstance(widths, list | tuple)
        or not widths
        or not all(isinstance(width, int) and width > 0 for width in widths)
    ):
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
