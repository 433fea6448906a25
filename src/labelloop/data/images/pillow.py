"""Pillow, imported only when images are decoded, and warnings about images that are unusual."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError

FORMATS = ("PNG", "WEBP", "JPEG")  # trying every plugin of Pillow takes longer than decoding

WORDS = {
    "deep": "images have more than 8 bits; in 16 bits, 0 to 65535 is read as black to white; the largest value is",
    "transparent": "images are partly transparent, and are placed on white",
    "frames": "images have several frames or pages; only the first is used",
}


def need_pillow(what: str) -> None:
    """Fails early, rather than at the first image, if Pillow is not installed."""
    try:
        import_module("PIL.Image")
    except ImportError as error:
        raise UsageError(f"{what} needs Pillow: install it with pip install 'labelloop[images]'") from error


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
        scale = (
            255.0 if image.mode == "F" and largest <= 1 else 1.0 if largest <= 255 and image.mode != "I;16" else None
        )
        if scale is None:
            scale = 255 / 65535 if largest <= 65535 else 255 / largest
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


class Peculiarities:
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
        ends = [
            f"{height} x {width}" for height, width in sorted(self._sizes, key=lambda size: (size[0] * size[1], size))
        ]
        sizes = (
            f"of {len(ends)} sizes, from {ends[0]} to {ends[-1]} pixels," if len(ends) > 1 else f"of {ends[0]} pixels"
        )
        return (f"images {sizes} are resized to {self.form[0]} x {self.form[1]}",)
