"""Texts as numbers without a pretrained encoder: TF-IDF of words and pairs of words, reduced by a singular value
decomposition (latent semantic analysis). No label takes part, so nothing about a row's label can leak into its columns.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.large_arrays import row_chunks
from labelloop.types import Floats

WIDTH = 32  # numbers per text, at most
ROWS_A_NUMBER = 4  # rows for every one of them, at least
MOST_WORDS = 5000
MOST_TEXTS = 50_000  # texts to fit on: more change little
NGRAMS = (1, 2)  # words, and pairs of neighbours
LONGEST = 20_000  # characters of a text that count


@dataclass(frozen=True)
class Words:
    """The words of a column of texts.

    Attributes:
        terms: Words and pairs of words that occur in several texts, sorted.
        weights: The inverse document frequency of each, and its share in every number of a text [V, 1 + K].
    """

    terms: tuple[str, ...]
    weights: Floats

    @property
    def width(self) -> int:
        return self.weights.shape[1] - 1


def fit_words(texts: NDArray, width: int = WIDTH) -> Words | None:
    """Finds the words of texts (None where missing) and the directions in which texts differ most.

    Args:
        texts: The texts to fit on.
        width: The most numbers per text.

    Returns:
        None if the texts share no words.
    """
    from scipy.sparse.linalg import norm
    from sklearn.utils.extmath import randomized_svd  # faster to import than sklearn.decomposition

    known = [text[:LONGEST] for text in texts if text is not None]
    known = known[:: max(1, -(-len(known) // MOST_TEXTS))]
    try:
        counter = _counter(min_df=2, max_df=len(known) - 1, max_features=MOST_WORDS).fit(known)
    except ValueError:  # nothing occurs twice, or all of it in every text
        return None
    terms = tuple(sorted(counter.vocabulary_))
    found = _counter(vocabulary=terms).transform(known)
    seen = np.asarray((found > 0).sum(axis=0)).ravel()
    frequency = np.log((1 + len(known)) / (1 + seen)) + 1  # as scikit-learn smooths it
    weighted = _weighted(found, frequency)
    width = min(width, len(terms) - 1, int((norm(weighted, axis=1) > 0).sum()) // ROWS_A_NUMBER)
    if width < 1:
        return None
    directions = randomized_svd(weighted, width, n_iter=7, random_state=0)[2]  # [K, V]
    return Words(terms, np.column_stack([frequency, directions.T]).astype(np.float32))


def words_as_numbers(words: Words, texts: NDArray) -> Floats:
    """The numbers of texts [n, K]; zeros where one is missing or has no known word."""
    counter = _counter(vocabulary=words.terms)
    frequency, directions = words.weights[:, 0].astype(np.float64), words.weights[:, 1:].astype(np.float64)
    values = np.zeros((len(texts), words.width), np.float32)
    for rows in row_chunks(len(texts), words.width):
        part = counter.transform([(text or "")[:LONGEST] for text in texts[rows]])
        values[rows] = _weighted(part, frequency) @ directions
    return values


def _counter(**options: Any) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(ngram_range=NGRAMS, strip_accents="unicode", token_pattern=r"(?u)\b\w+\b", **options)


def _weighted(counts: Any, frequency: NDArray) -> Any:
    """TF-IDF: log counts times frequencies, every row of length 1."""
    from sklearn.preprocessing import normalize

    weighted = counts.astype(np.float64)
    weighted.data = 1 + np.log(weighted.data)
    return normalize(weighted.multiply(frequency).tocsr())


def to_text(weights: Floats) -> dict[str, Any]:
    """An array for model.json, exact to the bit: its shape, and its float32 numbers in base64."""
    little = np.ascontiguousarray(weights, dtype="<f4")
    return {"shape": list(weights.shape), "float32": base64.b64encode(little.tobytes()).decode("ascii")}


def from_text(stored: Any, rows: int) -> Floats:
    """The reverse of `to_text`; `rows` is how many there must be.

    Raises:
        ValueError: It is not such an array.
    """
    try:
        shape, content = tuple(stored["shape"]), base64.b64decode(stored["float32"], validate=True)
    except (TypeError, KeyError, binascii.Error) as error:
        raise ValueError(f"weights that are no array ({error})") from None
    if len(shape) != 2 or not all(isinstance(side, int) for side in shape) or shape[0] != rows or shape[1] < 2:
        raise ValueError(f"weights of shape {shape} for {rows} words")
    if len(content) != 4 * shape[0] * shape[1]:
        raise ValueError(f"{len(content)} bytes of weights for shape {shape}")
    weights = np.frombuffer(content, "<f4").reshape(shape).astype(np.float32)
    if not np.isfinite(weights).all():
        raise ValueError("weights that are not finite")
    return weights
