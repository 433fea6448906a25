"""Rows as inputs for fine-tuning a network: tokens of equal length, or images that are opened when needed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.encoders.content import name_of, opened, why_unreadable
from labelloop.encoders.encoder import TEXT, Encoder
from labelloop.encoders.numbers import to_numbers
from labelloop.encoders.tokens import to_rows
from labelloop.errors import DataError, UsageError
from labelloop.seeds import stream
from labelloop.types import Floats, RawInputs

AREA = (0.5, 1.0)  # the share of an image in a random view: a pretrained network knows things at their usual size


def prepare_rows(
    raw: RawInputs, encoder: Encoder, shape: Sequence[int] | None = None
) -> tuple[Any, tuple[tuple[int, str, str], ...]]:
    """Inputs for the training loop.

    Args:
        raw: The rows.
        encoder: The encoder whose preprocessing is used.
        shape: The shape of one input of a trained model; by default, all texts are as long as the longest.

    Returns:
        Tokens or numbers [n, ...], or a dataset of images; and the row, name and error of every unreadable image.
    """
    loaded = encoder.load()
    if loaded.module is None or loaded.prepare is None:
        raise UsageError(
            f"encoder {encoder.name!r} cannot be fine-tuned; leave train_encoder out, or use a network:"
            " sentence-transformers:NAME, transformers:NAME, timm:NAME, or a factory of a torch module with"
            " `preprocess`"
        )
    if raw.kind == TEXT:
        found = loaded.prepare(list(raw.items))
        if not isinstance(found, list):
            return to_numbers(found).astype(np.float32), ()
        length = shape[0] if shape else max(1, max(map(len, found)))
        return to_rows(found, length), ()
    bad = []
    for row, item in enumerate(raw.items):
        try:
            opened(item)
        except Exception as error:  # a damaged image can fail in any way
            bad.append((row, name_of(item, row), why_unreadable(item, error)))
    return PreparedImages(raw.items, loaded.prepare), tuple(bad)


class PreparedImages:
    """A map-style dataset: image i after the encoder's preprocessing [3, H, W].

    Args:
        items: Paths, bytes, Pillow images or arrays.
        prepare: The preprocessing of a list of images.
    """

    def __init__(self, items: Sequence[Any], prepare: Callable[[list[Any]], Any]) -> None:
        self._items, self._prepare = items, prepare
        self._seed: int | None = None
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._items)

    def augmented(self, seed: int, epoch: int = 0) -> PreparedImages:
        """The same images as random crops, half of them mirrored, as a new object."""
        view = copy.copy(self)
        view._seed, view._epoch = seed, epoch
        return view

    def __getitem__(self, index: int) -> Floats:
        index = range(len(self))[index]  # supports negative indices; raises IndexError outside, which ends a loop
        try:
            image = opened(self._items[index])
        except Exception as error:  # a damaged image can fail in any way
            name = name_of(self._items[index], index)
            raise DataError(f"{name}: {why_unreadable(self._items[index], error)}") from error
        if self._seed is not None:
            image = _view(image, stream(self._seed, "image-augmentation", self._epoch, index))
        return to_numbers(self._prepare([image]))[0].astype(np.float32, copy=False)

    def read_into(self, indices: Sequence[int], batch: NDArray) -> None:
        """Writes images straight into the first rows of a batch [B, 3, H, W]."""
        for position, index in enumerate(indices):
            batch[position] = self[index]


def _view(image: Any, rng: np.random.Generator) -> Any:
    from PIL.Image import Transpose

    side = np.sqrt(rng.uniform(*AREA))
    width, height = (max(1, round(side * length)) for length in image.size)
    left, top = (int(rng.integers(whole - part + 1)) for whole, part in zip(image.size, (width, height), strict=True))
    image = image.crop((left, top, left + width, top + height))
    return image.transpose(Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else image
