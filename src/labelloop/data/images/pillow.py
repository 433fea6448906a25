"""Pillow, imported only when images are decoded: rows in memory and tables need none."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError

FORMATS = ("PNG", "WEBP", "JPEG")  # asking every plugin of Pillow takes longer than decoding


def need_pillow(what: str) -> None:
    """Refuses at once, rather than at the first image, where Pillow is not installed."""
    try:
        import_module("PIL.Image")
    except ImportError as error:
        raise UsageError(f"{what} needs Pillow: install it with pip install 'labelloop[images]'") from error


def decode_all(encoded: Sequence[Any], size: tuple[int, int], source: str, first_row: int = 0) -> NDArray[np.uint8]:
    """Decodes small colour images of one size.

    In one thread: images this small are decoded under Python's lock, so that more threads gain nothing.

    Args:
        encoded: The bytes of every image.
        size: Height and width.
        source: Where they come from, for messages.
        first_row: The row of the first one, for messages.

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
