"""Pillow, imported only when images are decoded: decoding, warnings about unusual images, views for a network.

A view is random for training and the centre for evaluation.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError
from labelloop.seeds import stream
from labelloop.types import Floats

FORMATS = ("PNG", "WEBP", "JPEG")  # trying every plugin of Pillow takes longer than decoding

WORDS = {
    "deep": "images have more than 8 bits; in 16 bits, 0 to 65535 is read as black to white; the largest value is",
    "transparent": "images are partly transparent, and are placed on white",
    "frames": "images have several frames or pages; only the first is used",
}

if TYPE_CHECKING:
    from PIL.Image import Image

# Those of ImageNet, on which the networks were pretrained.
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)
CIRCLE = range(256)  # the hues


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Says what to install where a library is imported that not everybody has."""
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{what} needs more ({error}): pip install 'labelloop[{extra}]'") from error


def need_pillow(what: str) -> None:
    """Fails early, rather than at the first image, if Pillow is not installed."""
    with needing("images", what):
        import_module("PIL.Image")


def open_image(place: Path | bytes | io.BytesIO) -> Image:
    """Opens an image in any format but EPS, for which Pillow starts Ghostscript, whatever the name of the file says."""
    from PIL import Image

    if isinstance(place, Path) and not place.is_file():  # a pipe would be waited for
        raise FileNotFoundError(place)
    Image.init()
    known = [name for name in Image.ID if name != "EPS"]
    return Image.open(io.BytesIO(place) if isinstance(place, bytes) else place, formats=known)


def why_unreadable(item: Any, error: Exception) -> str:
    """Why the image in a file, or in bytes, cannot be used."""
    if isinstance(item, Path) and not item.is_file():
        return "no such file"
    return "no image" if item == b"" else "cannot be decoded: " + " ".join(str(error).split())


def name_of(item: Any, row: int) -> str:
    return str(item) if isinstance(item, Path) else f"row {row}"


def to_rgb(image: Any) -> Any:
    """A colour image as people see it: upright, with its full range of brightness, and on white where transparent.

    Pillow's own conversion clips everything above 255, so that 16-bit images become white, and drops transparency, so
    that a drawing which is black everywhere and transparent around its lines becomes black.
    """
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if is_transparent(image):
        image = image.convert("RGBA")  # what is below transparent pixels was never meant to be seen
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    if image.mode == "RGB":
        return image
    if is_deep(image):
        values = np.asarray(image, dtype=np.float64)
        largest = float(values.max(initial=0.0))
        if image.mode == "F" and largest <= 1:
            scale = 255.0
        elif largest <= 255 and image.mode != "I;16":
            scale = 1.0
        else:
            scale = 255 / max(largest, 65535)
        image = Image.fromarray(np.clip(values * scale + 0.5, 0, 255).astype(np.uint8))
    return image.convert("RGB")


def is_transparent(image: Any) -> bool:
    """Whether some pixels of an image are transparent."""
    if image.mode in ("RGBA", "LA", "PA"):
        return bool(image.getchannel("A").getextrema()[0] < 255)
    if image.info.get("transparency") is None or image.mode not in ("1", "L", "P", "RGB"):
        return False
    return bool(image.convert("RGBA").getchannel("A").getextrema()[0] < 255)


def is_deep(image: Any) -> bool:
    """Whether an image has more than 8 bits per channel."""
    return bool(image.mode.startswith(("I", "F")))


def decode_all(encoded: Sequence[Any], size: tuple[int, int], source: str, first_row: int = 0) -> NDArray[np.uint8]:
    """Decodes small colour images of one size.

    In one thread: images this small are decoded under Python's global lock, so more threads do not help.

    Args:
        encoded: The bytes of every image.
        size: Height and width.
        source: Where they come from, for messages.
        first_row: The row number of the first image, for messages.

    Returns:
        [n, H, W, 3].
    """
    from PIL import Image

    images = np.empty((len(encoded), *size, 3), dtype=np.uint8)  # [n, H, W, 3]
    for i, content in enumerate(encoded):
        try:
            image = Image.open(io.BytesIO(content), formats=FORMATS)
            pixels = np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
        except Exception as error:  # a damaged image can fail in any way
            raise DataError(
                f"{source}: the image of row {first_row + i} cannot be decoded ({error}): download the file again"
            ) from error
        if pixels.shape != images.shape[1:]:
            raise DataError(
                f"{source}: the image of row {first_row + i} has shape {pixels.shape}, not {images.shape[1:]}"
            )
        images[i] = pixels
    return images


class ImageWarnings:
    """Counts the unusual images among those that it sees."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._largest = 0.0
        self._sizes: set[tuple[int, int]] = set()  # height and width
        self.form: tuple[int, int] | None = None  # what they are resized to
        self._lock = Lock()

    def see(self, image: Any, size: tuple[int, int]) -> None:
        """Looks at a decoded image, and its height and width once upright; from several threads, if need be."""
        found = {"transparent": is_transparent(image), "frames": getattr(image, "n_frames", 1) > 1}
        found["deep"] = is_deep(image)
        largest = float(np.asarray(image).max(initial=0)) if found["deep"] else 0.0
        with self._lock:
            self._counts.update({kind: 1 for kind, is_so in found.items() if is_so})
            self._largest = max(self._largest, largest)
            self._sizes.add(size)

    @property
    def remarks(self) -> tuple[str, ...]:
        """One line for each kind that occurred."""
        lines = {kind: f"{self._counts[kind]} {words}" for kind, words in WORDS.items() if self._counts[kind]}
        if "deep" in lines:
            lines["deep"] += f" {self._largest:g}"
        return (*self._resized(), *lines.values())

    def _resized(self) -> tuple[str, ...]:
        if self.form is None or self._sizes <= {self.form}:
            return ()
        sizes = sorted(self._sizes, key=lambda size: (size[0] * size[1], size))
        first, last, form = (f"{height} x {width}" for height, width in (sizes[0], sizes[-1], self.form))
        several = f"{len(sizes)} sizes, from {first} to {last} pixels," if len(sizes) > 1 else f"{first} pixels"
        return (f"images of {several} are resized to {form}",)


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
