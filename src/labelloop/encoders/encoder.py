"""What every adapter returns: how to make features, and what else is known of the encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEXT, IMAGE = "text", "image"  # the kinds of raw inputs
BATCH = 32  # rows a call of a network


@dataclass(frozen=True)
class Loaded:
    """An encoder in memory.

    Attributes:
        encode: From a list of texts, or of Pillow images in RGB, to numbers [B, D].
        rows: How many rows to hand to `encode` at a time.
        limit: The tokens that are read of a text; None where that is not known.
        preprocessing: What is done to a text or an image before the network, in words that JSON can hold.
        module: The network, from a batch of what `prepare` makes to features [B, D]; None where there is none to train.
        prepare: From a list of texts to lists of tokens, or to an array [B, ...]; from a list of images to an array.
        save: Writes the encoder as it is now into a folder, in the format of its library.
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
    """An encoder by name. Nothing heavy is imported before `load` is called, where the version is known without.

    Attributes:
        name: As the user wrote it: `transformers:folder`, `module:factory`.
        kind: "text" or "image".
        version: Differs where the same row could get other features: other weights, settings or library.
        load: Gives the encoder in memory; the second call gives the same one.
    """

    name: str
    kind: str
    version: str
    load: Callable[[], Loaded]
