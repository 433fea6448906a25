"""What a reviewer sees of a row: picture, text or values, its nearest clean rows, and what tells two classes apart."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.report.facts import RowFacts
from labelloop.runs.labels import label_counts, noise_matrix
from labelloop.runs.survey import Survey
from labelloop.types import MISSING, Labels

NEAREST = 6
LIKELIEST = 9  # classes with a key of their own
SAMPLE = 5_000  # rows whose values and words are compared
NUMBERS = 0.9  # of the values of a column that are numbers, for a column of numbers
APART = 0.5  # standard deviations by which two numbers differ visibly
TWICE, RARE = 2.0, 3  # a word speaks for a class if it changes the odds so much, and stands in so many texts at least
FITTED_FIRST = 20  # classes whose words are known before the first row is asked for
LEAST = np.log(0.01)  # a smaller probability counts as this one
WORD = re.compile(r"[^\W\d_]{3,}")
MOST_CELLS = 50_000_000  # rows times classes for the noise matrix


@dataclass(frozen=True)
class Learners:
    """What each learner predicts for rows that it has not seen.

    Attributes:
        names: Of the learners [K].
        scores: Logarithms of probabilities, learner by learner [n, K * C].
    """

    names: Sequence[str]
    scores: NDArray

    def log_proba(self, rows: Any) -> NDArray[np.float64]:
        """The logarithms of the probabilities of some rows [rows, K, C]."""
        found = np.asarray(self.scores[rows], np.float64).reshape(-1, len(self.names), self.classes)
        return found - np.logaddexp.reduce(found, axis=2, keepdims=True)

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.scores.shape[1] // len(self.names))

    def votes(self, row: int) -> list[tuple[str, int, float]]:
        """Of a row: learner, class and its probability."""
        chances = np.exp(self.log_proba([row])[0])
        return [(name, int(p.argmax()), float(p.max())) for name, p in zip(self.names, chances, strict=True)]


class Looks:
    """What the rows of a run look like.

    Args:
        run: The run.
        rows: Its labels.
        learners: What they predict, or None.
    """

    def __init__(self, run: Survey, rows: RowFacts, learners: Learners | None = None) -> None:
        self._run, self._rows = run, rows
        self.kind = "none" if run.preview is None else run.preview.kind
        self._shown = {} if run.preview is None else run.preview.by_row()
        known = [row for row, look in self._shown.items() if look is not None and 0 <= row < len(rows.corrected)]
        sample = known if len(known) <= SAMPLE else known[:: len(known) // SAMPLE + 1]
        self._columns = Columns(self._values(sample), rows.corrected[sample]) if self.kind == "values" else None
        predicted = None
        if learners is not None and self.kind == "text" and learners.classes == len(run.classes):
            predicted = learners.log_proba(sample).mean(axis=1)
        texts = [str(self._shown[row]) for row in sample] if self.kind == "text" else []
        self._words = Words(texts, rows.corrected[sample], predicted) if self.kind == "text" else None
        self.words_by = "counts" if predicted is None else "learners"
        self._true_of_given = _true_of_given(run, rows)

    def look(self, row: int) -> dict[str, Any] | None:
        """A row as the page shows it; None if nothing of it is kept."""
        found, preview = self._shown.get(row), self._run.preview
        if found is None or preview is None:
            return None
        if self.kind == "image":
            return {"kind": "image", "jpeg": base64.b64encode(found).decode()}
        if self.kind == "values":
            return {"kind": "values", "values": [list(pair) for pair in zip(preview.columns, found, strict=False)]}
        return {"kind": "text", "text": found}

    def order(self, classes: tuple[int, int]) -> list[int]:
        """The columns of a table, those first that tell two classes apart."""
        return [] if self._columns is None else self._columns.telling(*classes)

    def differing(self, row: int, other: int) -> list[bool]:
        """Which values of two rows differ; for numbers, by more than half a standard deviation."""
        a, b = self._shown.get(row), self._shown.get(other)
        return [] if self._columns is None or a is None or b is None else self._columns.differing(a, b)

    def words(self, row: int, classes: tuple[int, int]) -> dict[str, int]:
        """The words of a text that speak for one of two classes."""
        text = self._shown.get(row)
        return {} if self._words is None or text is None else self._words.speaking(str(text), *classes)

    def of_given(self, given: int, corrected: int) -> dict[str, float] | None:
        """Of the rows with a given label: the shares that are truly of that class, and of the proposed one."""
        if self._true_of_given is None or given == MISSING or corrected == MISSING:
            return None
        shares = self._true_of_given[given]
        return None if np.isnan(shares).any() else {"right": float(shares[given]), "proposed": float(shares[corrected])}

    def likely(self, row: int) -> list[tuple[int, float | None]]:
        """The likeliest classes of a row with their probabilities, where the run keeps them."""
        targets = self._run.targets
        if targets is None or targets.shape[1] != len(self._run.classes):
            return [(k, None) for k in range(min(len(self._run.classes), LIKELIEST))]
        chances = np.nan_to_num(np.asarray(targets[row], np.float64))
        best = np.argpartition(-chances, min(LIKELIEST, len(chances) - 1))[:LIKELIEST]
        return [(int(k), round(float(chances[k]), 4)) for k in best[np.argsort(-chances[best], kind="stable")]]

    def rivals(self, row: int) -> tuple[int, int]:
        """The two classes between which a row is to be decided."""
        given, corrected = int(self._rows.given[row]), int(self._rows.corrected[row])
        if given not in (corrected, MISSING):
            return given, corrected
        return corrected, next((k for k, _ in self.likely(row) if k != corrected), corrected)

    def _values(self, rows: Sequence[int]) -> list[Sequence[str]]:
        assert self._run.preview is not None
        width = len(self._run.preview.columns)
        return [[*self._shown[row], *[""] * width][:width] for row in rows]


def _true_of_given(run: Survey, rows: RowFacts) -> NDArray[np.float64] | None:
    """P(true class | given label) by the corrected labels [given, true]."""
    if run.targets is None or run.targets.shape != (len(rows.given), len(run.classes)):
        return None
    step = max(1, run.targets.size // MOST_CELLS)
    return noise_matrix(label_counts(rows.given[::step], run.targets[::step], len(run.classes)).T)


class Neighbours:
    """Finds the nearest clean rows by the angle between features.

    Args:
        features: The correction's inputs for every row [n, D].
        clean: Clean labels [n], -1 where missing.
    """

    def __init__(self, features: NDArray, clean: Labels) -> None:
        self.rows = np.flatnonzero(clean != MISSING)
        self._features = features
        self._clean = _unit(features[self.rows])  # [M, D]

    def nearest(self, row: int, count: int = NEAREST) -> list[int]:
        """The clean rows nearest to a row, nearest first, without the row itself."""
        likeness = self._clean @ _unit(self._features[row : row + 1])[0]
        likeness[self.rows == row] = -np.inf
        count = min(count, int((self.rows != row).sum()))
        best = np.argsort(-likeness, kind="stable")[:count]
        return [int(k) for k in self.rows[best]]


def _unit(values: NDArray) -> NDArray[np.float32]:
    wide = np.nan_to_num(np.asarray(values, dtype=np.float32))
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


class Columns:
    """Which columns of a table tell classes apart.

    Args:
        values: The values of some rows, as text [n][K].
        labels: Their classes [n].
    """

    def __init__(self, values: Sequence[Sequence[str]], labels: NDArray[np.int64]) -> None:
        self._texts = np.array(values, dtype=object).reshape(len(values), -1 if len(values) else 0)  # [n, K]
        numbers = np.array([[_number(value) for value in line] for line in values]).reshape(self._texts.shape)
        filled = (self._texts != "").sum(axis=0)
        self._numeric = (~np.isnan(numbers)).sum(axis=0) >= np.maximum(NUMBERS * filled, 1)
        self._numbers = numbers
        self._spread = np.ma.masked_invalid(numbers).std(axis=0).filled(0.0)  # [K]
        distinct = np.array([len(set(column)) for column in self._texts.T])
        self._free = ~self._numeric & (distinct > 0.5 * filled)  # texts, names and ids
        places = {label: np.flatnonzero(labels == label) for label in np.unique(labels).tolist()}
        self._told = {label: [self._of_class(k, rows) for k in range(len(filled))] for label, rows in places.items()}

    def telling(self, a: int, b: int) -> list[int]:
        """The columns, those first in which rows of two classes differ most; otherwise in the order of the table."""
        if a not in self._told or b not in self._told:
            return list(range(len(self._free)))
        return sorted(range(len(self._free)), key=lambda k: -self._apart(k, self._told[a][k], self._told[b][k]))

    def _of_class(self, k: int, rows: NDArray[np.int64]) -> dict[str, float]:
        """Of the rows of a class: the mean of a number, else the share of each value, or of each word of a text."""
        if self._numeric[k]:
            known = self._numbers[rows, k][~np.isnan(self._numbers[rows, k])]
            return {"mean": float(known.mean())} if len(known) else {}
        texts = self._texts[rows, k].tolist()
        found = Counter(part for text in texts for part in (_words_of(text) if self._free[k] else (text,)))
        least = RARE if self._free[k] else 1  # names and ids have no word that often
        return {part: count / len(rows) for part, count in found.items() if count >= least}

    def _apart(self, k: int, a: dict[str, float], b: dict[str, float]) -> float:
        """Numbers: the distance of the means in standard deviations. Categories: twice the total variation distance.

        Texts: twice the difference of the word that tells most.
        """
        if self._numeric[k]:
            return abs(a["mean"] - b["mean"]) / float(self._spread[k]) if a and b and self._spread[k] else 0.0
        apart = [abs(a.get(part, 0.0) - b.get(part, 0.0)) for part in a | b]
        return 2 * max(apart, default=0.0) if self._free[k] else sum(apart)

    def differing(self, a: Sequence[str], b: Sequence[str]) -> list[bool]:
        """Which values differ."""
        found = []
        for k, (x, y) in enumerate(zip(a, b, strict=False)):
            u, v = _number(x), _number(y)
            close = k < len(self._numeric) and self._numeric[k] and abs(u - v) <= APART * self._spread[k]
            found.append(x != y and not close and not (k < len(self._free) and self._free[k]))
        return found


class Words:
    """Which words speak for one class against another.

    Where predictions are known, those that change the odds of the learners at least twofold, by a linear model (ridge
    regression) of these from the words of the texts; else those that are at least twice as common in the class.

    Args:
        texts: Some texts.
        labels: Their classes [n].
        predicted: The mean logarithms of the probabilities by the learners [n, C], or None.
    """

    def __init__(
        self, texts: Sequence[str], labels: NDArray[np.int64], predicted: NDArray[np.float64] | None = None
    ) -> None:
        self._by_class: dict[int, Counter[str]] = {}
        self._texts = Counter(labels.tolist())
        words = [_words_of(text) for text in texts]
        for each, label in zip(words, labels.tolist(), strict=True):
            self._by_class.setdefault(label, Counter()).update(each)
        self._predicted = None if predicted is None else np.maximum(predicted, LEAST)
        total = sum(self._by_class.values(), Counter())
        self._place = {word: k for k, word in enumerate(word for word, count in total.items() if count >= RARE)}
        found = [[self._place[word] for word in each if word in self._place] for each in words]
        self._there = None if predicted is None else _sparse(found, len(self._place))  # [n, V]
        self._weights = cache(self._fitted)
        for label, _ in self._texts.most_common(FITTED_FIRST if predicted is not None else 0):
            self._weights(label)

    def speaking(self, text: str, a: int, b: int) -> dict[str, int]:
        """The words of a text that speak for a class, each with that class."""
        if a == b or not self._texts[a] or not self._texts[b]:
            return {}
        odds = {word: self._odds(word, a, b) for word in _words_of(text) if word in self._place}
        return {word: a if change > 0 else b for word, change in odds.items() if abs(change) >= np.log(TWICE)}

    def _odds(self, word: str, a: int, b: int) -> float:
        """By how much a word changes the logarithm of the odds of two classes."""
        if self._predicted is not None:
            return float((self._weights(a) - self._weights(b))[self._place[word]])
        first, second = self._by_class[a][word], self._by_class[b][word]
        if first + second < RARE:
            return 0.0
        return float(np.log((first + 0.5) / (self._texts[a] + 1) / ((second + 0.5) / (self._texts[b] + 1))))

    def _fitted(self, label: int) -> NDArray[np.float64]:
        """What each word adds to the predicted logarithm of a class [V]."""
        from scipy.sparse.linalg import lsqr

        assert self._predicted is not None
        wanted = self._predicted[:, label]
        return np.asarray(lsqr(self._there, wanted - wanted.mean(), damp=1.0, atol=1e-3, btol=1e-3, iter_lim=100)[0])


def _sparse(found: Sequence[Sequence[int]], width: int) -> Any:
    """Ones at some places of every row."""
    from scipy.sparse import csr_array

    index = np.array([place for each in found for place in each], np.int64)
    return csr_array((np.ones(len(index)), index, np.cumsum([0, *map(len, found)])), shape=(len(found), width))


def _words_of(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")
