"""Finds an encoder by its name."""

from __future__ import annotations

from collections.abc import Callable

from labelloop.encoders.encoder import IMAGE, TEXT, Encoder
from labelloop.encoders.hugging_face import open_transformers
from labelloop.encoders.own import open_own
from labelloop.encoders.sentences import open_sentence_transformer
from labelloop.encoders.timm_model import open_timm
from labelloop.encoders.words import WORDS, open_words
from labelloop.errors import UsageError, nearest

LIBRARIES: dict[str, Callable[..., Encoder]] = {
    "sentence-transformers": open_sentence_transformer,
    "transformers": open_transformers,
    "timm": open_timm,
}
FORMS = "sentence-transformers:NAME, transformers:NAME, timm:NAME (a name or a folder), or module:factory of your own"


def open_encoder(name: str, kind: str, device: str = "auto", with_weights: bool = True) -> Encoder:
    """Finds an encoder by its name.

    Args:
        name: `library:NAME`, where NAME is a name that the library knows, or a folder; `module:factory`; or "words".
        kind: What to encode: "text" or "image".
        device: "auto" (a GPU if there is one), "cpu", "cuda", ...
        with_weights: Whether to load the pretrained weights; not needed if they are replaced by others.

    Raises:
        UsageError: There is no such encoder, its library is not installed, or it encodes the other kind.
    """
    if kind not in (TEXT, IMAGE):
        raise UsageError(f"encoder {name!r}: cannot encode {kind!r}; only texts and images can be encoded")
    if name == WORDS:
        return open_words(name, kind)
    library, colon, place = name.partition(":")
    if not colon or not library or not place:
        hint = f"{nearest(library, LIBRARIES)} " if library else ""
        raise UsageError(f"encoder {name!r} is not of the form {FORMS}; {hint}".rstrip("; "))
    if library in LIBRARIES:
        return LIBRARIES[library](name, place, kind, device, with_weights)
    return open_own(name, kind, device)
