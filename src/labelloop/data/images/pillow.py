"""Pillow, imported only when images are decoded: arrays and tables do not need it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError

FORMATS = ("PNG", "WEBP", "JPEG")  # trying every plugin of Pillow takes longer than decoding


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
