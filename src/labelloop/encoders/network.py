"""Pretrained encoders as networks for fine-tuning, and rows as their inputs: tokens of equal length, or images."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from labelloop.data.pillow import name_of, why_unreadable
from labelloop.encoders.encoder import TEXT, Encoder, opened, to_numbers
from labelloop.errors import DataError, UsageError
from labelloop.seeds import stream
from labelloop.types import Floats, RawInputs

NOT_TRAINED = (
    "cannot be fine-tuned; leave train_encoder out, or use a model of a library, or a module with `preprocess`"
)
NO_TOKEN = -1  # pads a short text

AREA = (0.5, 1.0)  # the share of an image in a random view: a pretrained network knows things at their usual size


def to_rows(tokens: Sequence[Sequence[int]], length: int) -> Floats:
    """Tokens [n, L] as floats, which are exact for whole numbers up to 2**24; longer texts are cut."""
    rows = np.full((len(tokens), length), NO_TOKEN, np.float32)
    for row, found in zip(rows, tokens, strict=True):
        cut = found[:length] or [0]  # attention over no token at all would be NaN
        row[: len(cut)] = cut
    return rows


def from_rows(rows: Tensor) -> dict[str, Tensor]:
    """The inputs of a text network, `input_ids` and `attention_mask`, as long as the longest text of the batch."""
    mask = rows > NO_TOKEN  # [B, L]
    length = max(1, int(mask.sum(dim=1).max()))
    return {"input_ids": rows[:, :length].clamp(min=0).long(), "attention_mask": mask[:, :length].long()}


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
        raise UsageError(f"encoder {encoder.name!r} {NOT_TRAINED}")
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


class SentenceNetwork(nn.Module):
    """A sentence-transformers model that takes rows of tokens [B, L]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Tensor) -> Tensor:
        return self.model({**from_rows(rows), "modality": "text"})["sentence_embedding"]


class TextNetwork(nn.Module):
    """A transformers model that takes rows of tokens [B, L]; its features are the last layer's mean over tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model

    def forward(self, rows: Tensor) -> Tensor:
        batch = from_rows(rows)
        return self.features(batch["input_ids"], batch["attention_mask"])

    def features(self, ids: Tensor, mask: Tensor) -> Tensor:
        if hasattr(self.model, "get_text_features"):  # a model of both texts and images has its own features for each
            return _pooled(self.model.get_text_features(input_ids=ids, attention_mask=mask))
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state  # [B, L, D]
        weight = mask.unsqueeze(2).to(hidden.dtype)
        return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


class ImageNetwork(nn.Module):
    """A transformers model that takes images [B, 3, H, W]; its features are pooled, or the mean over positions.

    Args:
        model: The model.
        has_pooler: Whether its pooling layer has trained weights; without saved ones they would be random.
    """

    def __init__(self, model: Any, has_pooler: bool) -> None:
        super().__init__()
        self.model, self.has_pooler = model, has_pooler

    def forward(self, pixels: Tensor) -> Tensor:
        if hasattr(self.model, "get_image_features"):
            return _pooled(self.model.get_image_features(pixel_values=pixels))
        out = self.model(pixel_values=pixels)
        pooled = getattr(out, "pooler_output", None)
        if self.has_pooler and pooled is not None:
            return pooled.flatten(1)
        hidden = out.last_hidden_state  # [B, L, D] or [B, D, H, W]
        return hidden.mean(dim=1) if hidden.ndim == 3 else hidden.flatten(2).mean(dim=2)


def _pooled(found: Any) -> Tensor:
    return found if isinstance(found, Tensor) else found.pooler_output


def pretrained(encoder: str, kind: str, with_weights: bool = True) -> nn.Module:
    """Builds an encoder with its pretrained weights as a network; a factory that the setting `network` can name.

    Args:
        encoder: A name for `open_encoder`.
        kind: "text" or "image".
        with_weights: Whether to load the weights; not needed if they are replaced by trained ones.
    """
    from labelloop.encoders.inputs import open_encoder

    module = open_encoder(encoder, kind, "cpu", with_weights).load().module
    if module is None:
        raise UsageError(f"encoder {encoder!r} {NOT_TRAINED}")
    for weight in module.parameters():
        weight.requires_grad_(True)
    return module
