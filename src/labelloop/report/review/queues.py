"""Which rows come next: the queues of a review, and filters by class, confidence, text and file name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelloop.errors import UsageError
from labelloop.report.facts import RowFacts
from labelloop.runs.survey import Survey

LONGEST_WORDS = 200
KEPT = 32  # filters whose rows are remembered


@dataclass(frozen=True)
class Filter:
    """Which rows are wanted; the default wants all.

    Attributes:
        given: The number of the given class, or None for any.
        corrected: The same for the proposed class.
        least: The least confidence.
        most: The most confidence.
        words: What the id, the text or the values must contain, in small letters.
    """

    given: int | None = None
    corrected: int | None = None
    least: float = 0.0
    most: float = 1.0
    words: str = ""


ALL = Filter()


def read_filter(query: Mapping[str, str], classes: Sequence[str]) -> Filter:
    """The filter that a request names.

    Raises:
        UsageError: A class is unknown, or a confidence is no number between 0 and 1.
    """

    def code(name: str) -> int | None:
        text = query.get(name, "")
        if text and text not in classes:
            raise UsageError(f"{text!r:.80} is not a class of the run")
        return classes.index(text) if text else None

    def bound(name: str, default: float) -> float:
        try:
            value = float(query.get(name) or default)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            raise UsageError(f"a confidence is a number between 0 and 1, not {query.get(name)!r:.40}")
        return value

    words = query.get("words", "").strip().lower()[:LONGEST_WORDS]
    return Filter(code("given"), code("corrected"), bound("least", 0.0), bound("most", 1.0), words)


class Queues:
    """The queues of a review by name and filter.

    Args:
        run: The run.
        rows: Its labels.
        orders: The rows of each queue, in order.
    """

    def __init__(self, run: Survey, rows: RowFacts, orders: Mapping[str, NDArray[np.int64]]) -> None:
        self._run, self._rows, self._orders = run, rows, dict(orders)
        self._sure = np.nan_to_num(rows.confidence)
        self._ranks = {name: np.full(len(rows.given), -1) for name in orders}  # the place of every row [n], -1 if none
        for name, order in orders.items():
            self._ranks[name][order] = np.arange(len(order))
        self.named, self.mask = lru_cache(KEPT)(self._named), lru_cache(KEPT)(self._mask)

    def _named(self, name: str, wanted: Filter) -> NDArray[np.int64]:
        """The rows of a queue that pass a filter, in order."""
        if wanted == ALL:
            return self._orders[name]
        passing = np.flatnonzero(self.mask(wanted) & (self._ranks[name] >= 0))
        return passing[np.argsort(self._ranks[name][passing])]

    def _mask(self, wanted: Filter) -> NDArray[np.bool_]:
        """Which rows a filter lets pass [n]; not to be changed."""
        rows, sure = self._rows, self._sure
        found = np.ones(len(sure), bool)
        if (wanted.least, wanted.most) != (ALL.least, ALL.most):
            found = (sure >= wanted.least) & (sure <= wanted.most)
        if wanted.given is not None:
            found &= rows.given == wanted.given
        if wanted.corrected is not None:
            found &= rows.corrected == wanted.corrected
        return found & self._with_words(wanted.words) if wanted.words else found

    def _with_words(self, words: str) -> NDArray[np.bool_]:
        """The rows whose id, text or values contain the words."""
        ids, texts, places = self._searched
        found = containing(ids, words)
        found[places[containing(texts, words)]] = True
        return found

    @cached_property
    def _searched(self) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
        """All ids, and the texts or values that the run keeps with their rows, in small letters."""
        run, preview = self._run, self._run.preview
        assert run.labels is not None
        ids = run.labels["id"].to_pylist()
        kept: list[tuple[int, Any]] = []
        if preview is not None and preview.kind != "image":
            kept = [(row, look) for row, look in zip(preview.rows, preview.shown, strict=True) if 0 <= row < len(ids)]
        texts = [look if isinstance(look, str) else " ".join(look or ()) for _, look in kept]
        return in_small_letters(ids), in_small_letters(texts), np.array([row for row, _ in kept], np.int64)


def in_small_letters(texts: Sequence[str | None]) -> pa.Array:
    """Texts to search in."""
    return pc.utf8_lower(pa.array(texts, pa.string()).fill_null(""))


def containing(texts: pa.Array, words: str) -> NDArray[np.bool_]:
    """Which texts contain the words."""
    return pc.match_substring(texts, words).to_numpy(zero_copy_only=False).copy()
