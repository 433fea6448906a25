"""From raw rows to what a classifier takes: features of a frozen encoder, or rows for one that is trained further."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labelloop.encoders.encode import encode_rows
from labelloop.encoders.encoder import Encoder
from labelloop.encoders.open_encoder import LIBRARIES, open_encoder
from labelloop.encoders.prepared import prepare_rows
from labelloop.types import EncoderForm, RawInputs


@dataclass(frozen=True)
class EncodedInputs:
    """Inputs of a table.

    Attributes:
        values: Features [n, D]; or, for an encoder that is trained, tokens [n, L] or a dataset of images.
        form: How they came about.
        unreadable: The row, the name and the reason of every image that cannot be opened.
        from_cache: Rows whose features were in the cache.
        encoded: Rows that the encoder was called for.
        seconds: All of it.
    """

    values: Any
    form: EncoderForm
    unreadable: tuple[tuple[int, str, str], ...]
    from_cache: int
    encoded: int
    seconds: float

    @property
    def summary(self) -> dict[str, Any]:
        """For run.json."""
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
    """Makes inputs of raw rows.

    Args:
        raw: The rows.
        form: The encoder; with version and width where a model was trained with it, which are then compared.
        source: Where the rows come from, for messages.
        place: Where the encoder is now, instead of what `form.name` says.
        shape: Of one input of a trained model.
        device: "auto", "cpu", "cuda", ... to encode on.
        progress: Whether to draw a progress bar; None draws one only in a terminal.
    """
    start = time.perf_counter()
    encoder = open_encoder(place or form.name, raw.kind, device)
    if form.version and form.version != encoder.version and not form.trained:
        warnings.warn(
            f"encoder {form.name!r} is not quite that which the model was trained with (then: {form.version}; now:"
            f" {encoder.version}), so predictions may be worse; take the one of then, or train again",
            stacklevel=3,
        )
    if form.trained:
        values, unreadable = prepare_rows(raw, encoder, shape)
        about = _filled(form, encoder, None, encoder.load().preprocessing)
        return EncodedInputs(values, about, unreadable, 0, 0, time.perf_counter() - start)
    found = encode_rows(raw, encoder, source, width=form.width, progress=progress)
    about = _filled(form, encoder, found.features.shape[1], found.preprocessing)
    seconds = time.perf_counter() - start
    return EncodedInputs(found.features, about, found.unreadable, found.from_cache, found.encoded, seconds)


def save_trained(form: EncoderForm, place: str | None, weights: Any, folder: Path) -> None:
    """Writes an encoder that was trained, with its preprocessing, where its library has a format for it.

    Args:
        form: The encoder.
        place: Where it is now, instead of what `form.name` says.
        weights: The state of its network.
        folder: Made if there is something to write.
    """
    loaded = open_encoder(place or form.name, form.kind, "cpu").load()
    if loaded.save is not None:
        loaded.module.load_state_dict(weights)
        folder.mkdir(parents=True, exist_ok=True)
        loaded.save(folder)


def trained_place(form: EncoderForm, folder: Path) -> str | None:
    """The name of the encoder of a saved model, if it was trained and saved in this folder."""
    library = form.name.partition(":")[0]
    return f"{library}:{folder.absolute()}" if form.trained and library in LIBRARIES and folder.is_dir() else None


def _filled(form: EncoderForm, encoder: Encoder, width: int | None, preprocessing: Mapping[str, Any]) -> EncoderForm:
    if form.version:  # of a trained model: it stays what it was
        return form
    return replace(form, version=encoder.version, width=width, preprocessing=dict(preprocessing))
