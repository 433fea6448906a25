"""Finds an encoder by its name, and turns raw rows into inputs of a classifier with it.

Encoders without a library are here: hashed words, and `module:factory`, the user's own.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.encoders import library_encoders
from labelloop.encoders.encode import Encoded, encode_rows
from labelloop.encoders.encoder import IMAGE, TEXT, Encoder, Loaded, to_numbers
from labelloop.encoders.library_encoders import FORMAT, device_of, of_module, state_version
from labelloop.errors import UsageError, nearest
from labelloop.trust import WORDS
from labelloop.types import EncoderForm, RawInputs

LIBRARIES = {
    "sentence-transformers": library_encoders.open_sentence_transformer,
    "transformers": library_encoders.open_transformers,
    "timm": library_encoders.open_timm,
}
FORMS = "sentence-transformers:NAME, transformers:NAME, timm:NAME (a name or a folder), or module:factory of your own"
SIZE = 512  # numbers per text
PAIRS = (1, 2)  # words, and pairs of adjacent words
ROWS = 256  # texts per call
IMAGES = 32
_WHAT = {TEXT: "texts", IMAGE: "images"}


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
        found = Encoded(values, unreadable, 0, 0, encoder.load().preprocessing)
    else:
        found = encode_rows(raw, encoder, source, width=form.width, progress=progress)
    if not form.version:  # a trained model keeps the form it was trained with
        width, about = None if form.trained else found.features.shape[1], dict(found.preprocessing)
        form = replace(form, version=encoder.version, width=width, preprocessing=about)
    seconds = time.perf_counter() - start
    return EncodedInputs(found.features, form, found.unreadable, found.from_cache, found.encoded, seconds)


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


def open_words(name: str, kind: str) -> Encoder:
    if kind != TEXT:
        raise UsageError(f"encoder {name!r} counts the words of texts; for images, use transformers:NAME or timm:NAME")

    @cache
    def load() -> Loaded:
        from sklearn.feature_extraction.text import HashingVectorizer

        vectorizer = HashingVectorizer(
            n_features=SIZE, ngram_range=PAIRS, alternate_sign=False, strip_accents="unicode"
        )

        about = {"hashed": "words and pairs of neighbours", "size": SIZE}
        return Loaded(vectorizer.transform, ROWS, preprocessing=about)

    return Encoder(name, kind, f"words {SIZE} {PAIRS}", load)


def open_own(name: str, kind: str, device: str) -> Encoder:
    """Loads it at once: its output for a few samples is part of its version, since its weights may be anywhere."""
    made, source = _make(name, kind)
    found = _loaded(made, kind, device, name)
    digest = hashlib.blake2b(digest_size=16)
    if source is not None and source.is_file():
        digest.update(source.read_bytes())
    digest.update(_signature(found, kind))
    version = f"{name}, source {digest.hexdigest()}, format {FORMAT}"
    if found.module is not None:
        version += ", " + state_version(found.module.state_dict(), "torch")
    return Encoder(name, kind, version, cache(lambda: found))


def _loaded(made: Any, kind: str, device: str, name: str) -> Loaded:
    rows = ROWS if kind == TEXT else IMAGES
    preprocess = getattr(made, "preprocess", None)
    if not hasattr(made, "state_dict"):
        return Loaded(made, rows, preprocessing={"factory": name})
    if not callable(preprocess):
        raise UsageError(
            f"encoder {name!r} is a torch module without `preprocess`, which turns {_WHAT[kind]} into a batch; add it"
        )
    place = device_of(device)
    module, about = made.to(place).eval(), {"factory": name}
    return Loaded(of_module(module, preprocess, place), IMAGES, None, about, module, preprocess)


def _signature(found: Loaded, kind: str) -> bytes:
    """Its output for two samples, rounded: the last digits may differ between machines and numbers of threads."""
    samples: list[Any] = ["a sample", "Another one, which is longer."]
    try:
        if kind == IMAGE:
            from PIL import Image

            samples = [Image.linear_gradient("L").convert("RGB"), Image.radial_gradient("L").convert("RGB")]
        values = np.asarray(to_numbers(found.encode(samples)), dtype=np.float64).ravel()
    except Exception:  # whatever is wrong is reported when real rows are encoded
        return b""
    waves = np.cos(np.outer(np.arange(1, 5), np.arange(len(values))))  # [4, n]: four sums stand for all values
    scale = np.abs(values).sum() or 1.0
    return np.round(waves @ values / scale, 3).tobytes()


def _make(name: str, kind: str) -> tuple[Callable[..., Any], Path | None]:
    """What the factory returns, and its source file. Modules are also looked for in the current folder."""
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # last, so that no file there hides an installed module; kept for later imports
    importlib.invalidate_caches()
    try:
        module: Any = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise UsageError(
            f"encoder {name!r}: cannot import {module_name!r} ({type(error).__name__}: {error}); its file must be in"
            f" the current folder ({os.getcwd()}), installed, or on PYTHONPATH; other encoders are {FORMS}"
        ) from error
    factory, place = module, getattr(module, "__file__", None)
    for part in attribute.split("."):
        if not hasattr(factory, part):
            own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise UsageError(
                f"encoder {name!r}: {place or module_name} has no {attribute!r}; {nearest(attribute, own)}"
            )
        factory = getattr(factory, part)
    if not callable(factory):
        raise UsageError(f"encoder {name!r}: {attribute!r} is a {type(factory).__name__}, not a function")
    must = f"return a function that turns a list of {_WHAT[kind]} into an array [N, D]"
    try:
        function = factory()
    except Exception as error:  # the user's code may raise anything
        raise UsageError(
            f"encoder {name!r}: {attribute}() failed ({type(error).__name__}: {error}); it takes no arguments and must"
            f" {must}"
        ) from error
    if not callable(function):
        raise UsageError(f"encoder {name!r}: {attribute}() returned a {type(function).__name__}; it must {must}")
    return function, None if place is None else Path(place)
