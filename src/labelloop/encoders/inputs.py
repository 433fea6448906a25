"""Finds an encoder by its name, and turns raw rows into inputs of a classifier with it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labelloop.encoders.encode import encode_rows
from labelloop.encoders.encoder import IMAGE, TEXT, Encoder
from labelloop.encoders.own import open_own, open_words
from labelloop.errors import UsageError, nearest
from labelloop.trust import WORDS
from labelloop.types import EncoderForm, RawInputs

LIBRARIES = {  # functions of library_encoders.py, which needs torch
    "sentence-transformers": "open_sentence_transformer",
    "transformers": "open_transformers",
    "timm": "open_timm",
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
        from labelloop.encoders import library_encoders

        return getattr(library_encoders, LIBRARIES[library])(name, place, kind, device, with_weights)
    return open_own(name, kind, device)


@dataclass(frozen=True)
class EncodedInputs:
    """The inputs of a table.

    Attributes:
        values: Features [n, D]; or, for an encoder that is fine-tuned, tokens [n, L] or a dataset of images.
        form: How they were made.
        unreadable: The row and name of every image that cannot be opened, and the reason.
        from_cache: The number of rows whose features were in the cache.
        encoded: The number of rows that were not.
        seconds: The total time.
    """

    values: Any
    form: EncoderForm
    unreadable: tuple[tuple[int, str, str], ...]
    from_cache: int
    encoded: int
    seconds: float

    @property
    def summary(self) -> dict[str, Any]:
        """The entry in run.json."""
        counts = {"from_cache": self.from_cache, "encoded": self.encoded, "seconds": round(self.seconds, 3)}
        return {"name": self.form.name, "version": self.form.version, "trained": self.form.trained, **counts}


def encoded_inputs(
    raw: RawInputs,
    form: EncoderForm,
    source: str,
    *,
    place: str | None = None,
    shape: Sequence[int] | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> EncodedInputs:
    """Makes the inputs of raw rows.

    Args:
        raw: The rows.
        form: The encoder. If a model was trained with it, its version and width are compared.
        source: Where the rows come from, for messages.
        place: Where the encoder is now, if not where `form.name` says.
        shape: The shape of one input of a trained model.
        device: The device to encode on: "auto", "cpu", "cuda", ...
        progress: Whether to show a progress bar; None shows one only in a terminal.
    """
    start = time.perf_counter()
    encoder = open_encoder(place or form.name, raw.kind, device)
    if form.version and form.version != encoder.version and not form.trained:
        warnings.warn(
            f"encoder {form.name!r} is not exactly the one that the model was trained with (then: {form.version}; now:"
            f" {encoder.version}), so predictions may be worse; use the original one, or train again",
            stacklevel=3,
        )
    if form.trained:
        from labelloop.encoders.network import prepare_rows

        values, unreadable = prepare_rows(raw, encoder, shape)
        about = _filled(form, encoder, None, encoder.load().preprocessing)
        return EncodedInputs(values, about, unreadable, 0, 0, time.perf_counter() - start)
    found = encode_rows(raw, encoder, source, width=form.width, progress=progress)
    about = _filled(form, encoder, found.features.shape[1], found.preprocessing)
    seconds = time.perf_counter() - start
    return EncodedInputs(found.features, about, found.unreadable, found.from_cache, found.encoded, seconds)


def save_trained(form: EncoderForm, place: str | None, weights: Any, folder: Path) -> None:
    """Saves a fine-tuned encoder with its preprocessing, if its library has a format for that.

    Args:
        form: The encoder.
        place: Where it is now, if not where `form.name` says.
        weights: The state of its network.
        folder: Created if there is anything to write.
    """
    loaded = open_encoder(place or form.name, form.kind, "cpu").load()
    if loaded.save is not None:
        loaded.module.load_state_dict(weights)
        folder.mkdir(parents=True, exist_ok=True)
        loaded.save(folder)


def trained_place(form: EncoderForm, folder: Path) -> str | None:
    """The name of a saved model's encoder, if it was fine-tuned and saved in this folder."""
    library = form.name.partition(":")[0]
    return f"{library}:{folder.absolute()}" if form.trained and library in LIBRARIES and folder.is_dir() else None


def _filled(form: EncoderForm, encoder: Encoder, width: int | None, preprocessing: Mapping[str, Any]) -> EncoderForm:
    if form.version:  # a trained model keeps the form it was trained with
        return form
    return replace(form, version=encoder.version, width=width, preprocessing=dict(preprocessing))
