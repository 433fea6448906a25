"""Turns a large image into the input of a network: a random view for training, the centre for evaluation.

The paper names the random steps for Clothing1M but not their strengths: these are the usual ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from labelloop.seeds import stream
from labelloop.types import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

# Those of ImageNet, on which the networks were pretrained.
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)
CIRCLE = range(256)  # the hues


class Transform(Protocol):
    """Epoch and index determine the random view."""

    def __call__(self, image: Image, epoch: int, index: int) -> Floats: ...


@dataclass(frozen=True)
class EvalTransform:
    """The centre of the image; nothing random.

    Attributes:
        resize: The length of the shorter side after resizing.
        size: The side of the square crop.
    """

    resize: int = 256
    size: int = 224

    def __call__(self, image: Image, epoch: int = 0, index: int = 0) -> Floats:
        from PIL.Image import Resampling

        scale = self.resize / min(image.size)
        width, height = (max(self.resize, round(side * scale)) for side in image.size)
        left, top = (width - self.size) // 2, (height - self.size) // 2
        image = image.resize((width, height), Resampling.BILINEAR)
        return to_floats(image.crop((left, top, left + self.size, top + self.size)))


@dataclass(frozen=True)
class TrainTransform:
    """Random resized crop, flip, colour jitter, grey: the same for the same (seed, epoch, index), in any process.

    Attributes:
        seed: The seed of the run.
        size: The side of the result.
        area: The range of the share of the image that is cropped.
        ratio: The range of the crop's width by its height.
        flip: The probability of a horizontal flip.
        brightness: The largest change, each way. Likewise `contrast` and `saturation`.
        hue: The largest shift of the hue, each way; 0.5 is half the colour circle.
        grey: The probability of a grey image.
    """

    seed: int
    size: int = 224
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    grey: float = 0.2

    def __call__(self, image: Image, epoch: int, index: int) -> Floats:
        from PIL.Image import Resampling, Transpose

        rng = stream(self.seed, "image-augmentation", epoch, index)
        image = image.resize((self.size, self.size), Resampling.BILINEAR, box=self._box(image.size, rng))
        if rng.random() < self.flip:
            image = image.transpose(Transpose.FLIP_LEFT_RIGHT)
        image = self._jitter(image, rng)
        if rng.random() < self.grey:
            image = image.convert("L").convert("RGB")
        return to_floats(image)

    def _box(self, size: tuple[int, int], rng: np.random.Generator) -> tuple[int, int, int, int]:
        """Left, top, right and bottom of the crop."""
        width, height = size
        for _ in range(10):  # most draws fit; a very long image may need several
            area = rng.uniform(*self.area) * width * height
            ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
                return left, top, left + w, top + h
        side = min(size)
        left, top = (width - side) // 2, (height - side) // 2
        return left, top, left + side, top + side

    def _jitter(self, image: Image, rng: np.random.Generator) -> Image:
        from PIL import ImageEnhance

        # All numbers are drawn before any is used, so that a strength of zero does not change the other draws.
        strengths = np.array([self.brightness, self.contrast, self.saturation])
        factors = rng.uniform(1 - strengths, 1 + strengths)
        turn = rng.uniform(-self.hue, self.hue)
        enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
        for step in rng.permutation(len(enhancers) + 1):
            if step < len(enhancers):
                image = enhancers[step](image).enhance(float(factors[step]))
            else:
                image = _turned(image, turn)
        return image


def planes(image: Image) -> NDArray[np.uint8]:
    """The pixels of a colour image as [3, H, W]: Pillow separates the channels faster than numpy."""
    lines = np.frombuffer(image.tobytes("raw", "RGB;L"), np.uint8)
    return lines.reshape(image.height, 3, image.width).transpose(1, 0, 2)


def to_floats(image: Image) -> Floats:
    """A colour image as [3, H, W], scaled like ImageNet."""
    scaled = planes(image).astype(np.float32, order="C")  # long rows: fast for numpy
    scaled /= 255
    scaled -= MEAN[:, None, None]
    scaled /= STD[:, None, None]
    return scaled


def _turned(image: Image, turn: float) -> Image:
    shift = round(turn * 256)
    if shift == 0:
        return image  # the round trip would lose some colour
    shift %= 256
    table = [*CIRCLE[shift:], *CIRCLE[:shift], *CIRCLE, *CIRCLE]  # shifts the hue; saturation and value stay
    return image.convert("HSV").point(table).convert("RGB")
