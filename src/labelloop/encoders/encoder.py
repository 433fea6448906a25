"""What every encoder takes and returns: raw rows with the key of their content, and checked features."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.data.pillow import open_image, to_rgb
from labelloop.errors import DataError, UsageError, some
from labelloop.types import Floats, RawInputs

TEXT, IMAGE = "text", "image"  # the kinds of raw inputs
BATCH = 32  # rows per call of a network

KEY = 16  # bytes of a key


@dataclass(frozen=True)
class Loaded:
    """An encoder in memory.

    Attributes:
        encode: Turns a list of texts, or of Pillow images in RGB, into numbers [B, D].
        rows: How many rows to pass to `encode` at a time.
        limit: How many tokens of a text are read; None if unknown.
        preprocessing: How a text or an image is prepared for the network, as values that JSON can hold.
        module: The network, which turns a batch from `prepare` into features [B, D]; None if there is none to train.
        prepare: Turns a list of texts into lists of tokens or an array [B, ...], and a list of images into an array.
        save: Writes the encoder, in its present state, to a folder in the format of its library.
    """

    encode: Callable[[list[Any]], Any]
    rows: int = BATCH
    limit: int | None = None
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    module: Any = None
    prepare: Callable[[list[Any]], Any] | None = None
    save: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Encoder:
    """An encoder by name. Unless its version cannot be known otherwise, nothing heavy is imported until `load`.

    Attributes:
        name: As the user wrote it: `transformers:folder`, `module:factory`.
        kind: "text" or "image".
        version: Changes with anything that could change the features of a row: weights, settings or library.
        load: Returns the encoder in memory, the same one at every call.
    """

    name: str
    kind: str
    version: str
    load: Callable[[], Loaded]


def raw_inputs(items: Any, encoder: str = "", kind: str | None = None) -> RawInputs:
    """Texts or images from the caller. Strings are texts (for timm, image files); everything else is an image.

    Args:
        items: A list of strings, paths, bytes, Pillow images or arrays; an array of strings; or an array of images
            [n, H, W, C] in uint8.
        encoder: The name of the encoder, which may determine what a string means.
        kind: What the model was trained on: if it was images, strings are files.
    """
    if isinstance(items, RawInputs):
        return items
    rows = list(items)
    if not rows:
        raise DataError("there are no rows to encode")
    files = kind == IMAGE or encoder.startswith("timm:")
    if all(isinstance(row, str) for row in rows):
        return RawInputs(IMAGE, [Path(row) for row in rows]) if files else RawInputs(TEXT, [str(row) for row in rows])
    for number, row in enumerate(rows):
        is_array = isinstance(row, np.ndarray) and row.dtype == np.uint8 and row.ndim in (2, 3)
        if not (isinstance(row, Path | bytes) or is_array or hasattr(row, "convert")):
            is_other = isinstance(row, np.ndarray)
            what = f"an array of {row.dtype}, shape {row.shape}" if is_other else f"of type {type(row).__name__}"
            raise UsageError(
                f"the given rows: row {number} is {what}; an encoder takes texts (str), or images as paths, bytes,"
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
        if not item.is_file():  # a pipe would be waited for
            raise FileNotFoundError(item)
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
    with open_image(item) as image:
        image.load()
        return to_rgb(image)


def sorted_by_length(raw: RawInputs, rows: Iterable[int]) -> Sequence[int]:
    """Texts from long to short, so that batches need little padding; images in their own order."""
    return sorted(rows, key=lambda row: -len(raw.items[row])) if raw.kind == TEXT else list(rows)


def to_numbers(found: Any) -> NDArray:
    """An array from an array, a sparse matrix, a tensor or lists."""
    if hasattr(found, "toarray"):  # a sparse matrix
        found = found.toarray()
    elif hasattr(found, "detach"):  # a tensor, perhaps on another device
        found = found.detach().cpu().float()
    return np.asarray(found)


def checked(found: Any, rows: Sequence[int], width: int | None, where: str) -> Floats:
    """Refuses anything but finite numbers [N, D] with the same D as before.

    Args:
        found: What the encoder returned.
        rows: The rows it was given, for messages.
        width: The numbers per row so far, or None.
        where: The start of every message.
    """
    found = to_numbers(found)
    if found.dtype.kind not in "biuf":
        raise DataError(f"{where}: returned {found.dtype}, not numbers; return an array [N, D] of numbers")
    count = len(rows)
    if found.ndim != 2 or len(found) != count or not found.shape[1]:
        raise DataError(f"{where}: returned an array of shape {found.shape} for {count} rows; expected ({count}, D)")
    if width is not None and found.shape[1] != width:
        raise DataError(f"{where}: returned {found.shape[1]} numbers per row, but {width} before; use the same encoder")
    with np.errstate(over="ignore"):  # reported below
        values = found.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise DataError(
            f"{where}: returned NaN, infinite or too large numbers, in row"
            f" {some(sorted(rows[k] for k in bad.tolist()))} (the first row is 0)"
        )
    return values
