"""Texts as rows of tokens of equal length, for the training loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from labelloop.types import Floats

if TYPE_CHECKING:
    from torch import Tensor

NO_TOKEN = -1  # pads a short text


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
