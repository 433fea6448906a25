"""Hashed words: the text encoder for users without one. It needs no download and knows nothing about meaning."""

from __future__ import annotations

from functools import cache
from typing import Any

from labelloop.encoders.encoder import TEXT, Encoder, Loaded
from labelloop.errors import UsageError

WORDS = "words"
SIZE = 512  # numbers per text
PAIRS = (1, 2)  # words, and pairs of adjacent words
TEXTS_AT_ONCE = 256


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
