"""The records that every adapter returns: how to compute features, and what is known about the encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEXT, IMAGE = "text", "image"  # the kinds of raw inputs
BATCH = 32  # rows per call of a network


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
