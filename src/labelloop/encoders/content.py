"""Raw inputs: the content of a row, the key under which its features are cached, and how an image is opened."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.data.images.pillow import to_rgb
from labelloop.encoders.encoder import IMAGE, TEXT
from labelloop.errors import DataError, UsageError
from labelloop.types import RawInputs

KEY = 16  # bytes of a key


def raw_inputs(items: Any, encoder: str = "", source: str = "the given rows", kind: str | None = None) -> RawInputs:
    """Texts or images from the caller. Strings are texts (for timm, image files); everything else is an image.

    Args:
        items: A list of strings, paths, bytes, Pillow images or arrays; an array of strings; or an array of images
            [n, H, W, C] in uint8.
        encoder: The name of the encoder, which may determine what a string means.
        source: The start of every message.
        kind: What the model was trained on: if it was images, strings are files.
    """
    if isinstance(items, RawInputs):
        return items
    rows = list(items)
    if not rows:
        raise DataError(f"{source}: there are no rows to encode")
    files = kind == IMAGE or encoder.startswith("timm:")
    if all(isinstance(row, str) for row in rows):
        return RawInputs(IMAGE, [Path(row) for row in rows]) if files else RawInputs(TEXT, [str(row) for row in rows])
    for number, row in enumerate(rows):
        is_array = isinstance(row, np.ndarray) and row.dtype == np.uint8 and row.ndim in (2, 3)
        if not (isinstance(row, Path | bytes) or is_array or hasattr(row, "convert")):
            is_other = isinstance(row, np.ndarray)
            what = f"an array of {row.dtype}, shape {row.shape}" if is_other else f"of type {type(row).__name__}"
            raise UsageError(
                f"{source}: row {number} is {what}; an encoder takes texts (str), or images as paths, bytes,"
                " Pillow images or uint8 arrays [H, W, C]; for numbers, leave encoder out"
            )
    return RawInputs(IMAGE, rows)


def key_of(item: Any) -> bytes:
    """A key that depends only on the content, not on its name or location.

    Raises:
        OSError: The file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=KEY)
    if isinstance(item, str):
        digest.update(b"t" + item.encode("utf-8", "surrogatepass"))
    elif isinstance(item, Path):
        with item.open("rb") as file:
            digest.update(b"f" + file.read())
    elif isinstance(item, bytes):
        digest.update(b"f" + item)
    elif isinstance(item, np.ndarray):
        digest.update(f"a{item.shape}".encode() + np.ascontiguousarray(item).tobytes())
    else:
        digest.update(f"p{item.mode}{item.size}".encode() + item.tobytes())
    return digest.digest()


def opened(item: Any) -> Any:
    """A text unchanged, or an image in RGB, converted as everywhere else in the package."""
    if isinstance(item, str):
        return item
    from PIL import Image

    if isinstance(item, np.ndarray):
        item = Image.fromarray(item[..., 0] if item.ndim == 3 and item.shape[2] == 1 else item)
    if not isinstance(item, Path | bytes):
        return to_rgb(item)
    with Image.open(io.BytesIO(item) if isinstance(item, bytes) else item) as image:
        image.load()
        return to_rgb(image)


def why_unreadable(item: Any, error: Exception) -> str:
    if isinstance(item, Path) and not item.is_file():
        return "no such file"
    return "no image" if item == b"" else "cannot be decoded: " + " ".join(str(error).split())


def name_of(item: Any, row: int) -> str:
    return str(item) if isinstance(item, Path) else f"row {row}"


def sorted_by_length(raw: RawInputs, rows: Iterable[int]) -> Sequence[int]:
    """Texts from long to short, so that batches need little padding; images in their own order."""
    return sorted(rows, key=lambda row: -len(raw.items[row])) if raw.kind == TEXT else list(rows)
