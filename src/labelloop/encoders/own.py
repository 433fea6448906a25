"""Encoders without a library: hashed words, and `module:factory`, the user's own."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.encoders.encoder import IMAGE, TEXT, Encoder, Loaded, to_numbers
from labelloop.encoders.libraries import FORMAT, device_of, state_version
from labelloop.errors import UsageError, nearest

SIZE = 512  # numbers per text
PAIRS = (1, 2)  # words, and pairs of adjacent words
TEXTS_AT_ONCE = 256

ROWS = 256  # texts per call
IMAGES = 32
_WHAT = {TEXT: "texts", IMAGE: "images"}


def open_words(name: str, kind: str) -> Encoder:
    if kind != TEXT:
        raise UsageError(f"encoder {name!r} counts the words of texts; for images, use transformers:NAME or timm:NAME")

    @cache
    def load() -> Loaded:
        from sklearn.feature_extraction.text import HashingVectorizer

        vectorizer = HashingVectorizer(
            n_features=SIZE, ngram_range=PAIRS, alternate_sign=False, strip_accents="unicode"
        )

        def encode(texts: list[Any]) -> Any:
            return vectorizer.transform(texts)

        about = {"hashed": "words and pairs of neighbours", "size": SIZE}
        return Loaded(encode, TEXTS_AT_ONCE, preprocessing=about)

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
            f"encoder {name!r} is a torch module without `preprocess`; give it a method or attribute of that name"
            f" that turns a list of {_WHAT[kind]} into a batch for the module"
        )
    import torch

    place = device_of(device)
    module = made.to(place).eval()

    def encode(items: list[Any]) -> Any:
        with torch.inference_mode():
            return module(torch.as_tensor(preprocess(items)).to(place))

    return Loaded(encode, IMAGES, preprocessing={"factory": name}, module=module, prepare=preprocess)


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
            f" the current folder ({os.getcwd()}), installed, or on PYTHONPATH; encoders of libraries are"
            " sentence-transformers:NAME, transformers:NAME and timm:NAME"
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
