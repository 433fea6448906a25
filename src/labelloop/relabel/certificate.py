"""Certified labels: the largest set of rows of whose labels, with a stated certainty, at most a given share is wrong.

Rows are ranked by a score. A set holds all rows above a threshold; for each, the hypothesis is that more of its labels
are wrong than allowed. Hypotheses are tested in orders fixed without a look at the clean labels, each at its share
of the error probability, until one is not rejected (learn then test, with fixed sequences): the largest set whose
hypothesis was rejected is certified. So the same clean rows may choose and test the threshold. Tests are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelloop.errors import UsageError
from labelloop.relabel.bounds import at_most
from labelloop.types import MISSING, Floats, Labels

CERTAINTY = 0.95
SETS = 100  # thresholds that are tried
FIRST_SHARE = 0.7  # of the error probability for the order that trusts the scores as probabilities
FEW_WRONG = (0, 1, 2)  # labels among the clean rows of the first set, in three orders that trust only ranks
PRIOR_ROWS = 5.0  # of the scores' own error rate, in a forecast
LUCK = 0.84  # standard errors: a forecast comes true in four of five cases
MORE = (50, 100, 200, 500, 1000, 2000, 5000, 10000)  # further clean rows of a forecast
BETS = 20  # of the e-value of weighted rows

# What a run keeps of every row, to certify its labels.
COLUMNS = ("label", "support", "alone", "alone_confidence", "counts")


@dataclass(frozen=True)
class HeldOut:
    """Noisy rows with returned labels, and clean rows that their labels are tested on.

    Attributes:
        labels: Returned labels of the noisy rows [N].
        score: How likely each is right [N]; -inf for one that cannot be certified.
        clean_labels: Labels of the clean rows, learnt without them [M].
        clean_score: How likely each is right [M].
        wrong: Whether it is wrong [M].
        paired: Whether clean rows are like noisy ones. If not, labels are predictions from the inputs alone, and every
            wrong one among all rows may be one of the noisy rows in a set.
        weight: 1 / the probability that a row was chosen to be verified, in any unit [M]; None for a random sample.
        share: Of all noisy rows: these, and with them as many of the clean rows that are drawn next.
    """

    labels: Labels
    score: Floats
    clean_labels: Labels
    clean_score: Floats
    wrong: NDArray[np.bool_]
    paired: bool = True
    weight: NDArray[np.float64] | None = None
    share: float = 1.0

    @classmethod
    def of(
        cls,
        kept: Floats,
        given: Labels,
        clean: Labels,
        validation: NDArray[np.bool_],
        pairs: int,
        weight: NDArray[np.float64] | None = None,
    ) -> HeldOut:
        """The rows of a run.

        Args:
            kept: What the run kept of every row, as COLUMNS names it [n, 5].
            given: Given labels [n], -1 where missing.
            clean: Clean labels [n], -1 where missing.
            validation: The clean rows that are a random sample [n].
            pairs: How many pairs it takes to test on pairs alone.
            weight: Of the clean rows [n]; None for a random sample.
        """
        noisy, validation = np.flatnonzero((given != MISSING) & (clean == MISSING)), validation & (kept[:, 4] > 0)
        paired = int((validation & (given != MISSING)).sum()) >= pairs
        rows, column = np.flatnonzero(validation & ((given != MISSING) | (not paired))), 0 if paired else 2
        returned, label, score = kept[noisy, 0].astype(np.int64), kept[:, column].astype(np.int64), kept[:, column + 1]
        of_noisy = np.where(returned == label[noisy], score[noisy], -np.inf)
        weight = None if weight is None else weight[rows]
        return cls(returned, of_noisy, label[rows], score[rows], label[rows] != clean[rows], paired, weight)

    def of_class(self, k: int) -> HeldOut:
        """Only the labels of one class."""
        noisy, clean = self.labels == k, self.clean_labels == k
        if self.paired:
            weight = None if self.weight is None else self.weight[clean]
            return HeldOut(
                self.labels[noisy], self.score[noisy], self.clean_labels[clean], self.clean_score[clean],
                self.wrong[clean], True, weight, float(noisy.mean()),
            )  # fmt: skip
        # Without pairs a share of all rows is tested, so other rows stay, and are never in a set.
        clean_score = np.where(clean, self.clean_score, -np.inf)
        return replace(self, score=np.where(noisy, self.score, -np.inf), clean_score=clean_score)


@dataclass(frozen=True)
class Certificate:
    """What is certified.

    Attributes:
        max_error: The largest share of wrong labels.
        certainty: That the share of wrong labels among the certified rows is not larger.
        rows: Which of the noisy rows are certified [N].
        clean_rows: The clean rows that were looked at for them.
        wrong: How many of these had a wrong label.
        reason: Why nothing is certified; empty otherwise.
        forecast: "more" random clean rows that would probably certify "rows" noisy rows.
    """

    max_error: float
    certainty: float
    rows: NDArray[np.bool_]
    clean_rows: int
    wrong: int
    reason: str
    forecast: tuple[dict[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        """All but the rows themselves, which are counted."""
        return {**vars(self), "rows": int(self.rows.sum()), "forecast": list(self.forecast)}


def spent(certainty: float, look: int) -> float:
    """The error probability of a look. Without looks (0), all of it; else 1 / (k (k + 1)) of it at the k-th look.

    The shares of all looks add up to 1, so clean rows may be added and looked at again any number of times.
    """
    return (1 - certainty) / (look * (look + 1) if look else 1)


def certify_rows(
    held_out: HeldOut, max_error: float, certainty: float = CERTAINTY, look: int = 0, *, forecast: bool = True
) -> Certificate:
    """The largest set of noisy rows that can be certified.

    Args:
        held_out: Noisy rows and clean rows.
        max_error: The largest share of wrong labels, between 0 and 1.
        certainty: The probability that the certificate holds, between 0 and 1.
        look: The number of the look, counted from 1, if clean rows are added and looked at again; 0 for a single look.
        forecast: Whether to say what further clean rows would certify.
    """
    if not 0 < max_error < 1 or not 0 < certainty < 1:
        raise UsageError(f"max_error and certainty lie between 0 and 1, but are {max_error:g} and {certainty:g}")
    if look < 0 or look != int(look):
        raise UsageError(f"look is {look}; number the looks 1, 2, 3, or give 0 for a single look")
    level, sets = spent(certainty, look), _Sets.of(held_out, max_error)
    best, p_values = -1, sets.p_values()
    rest = (1 - FIRST_SHARE) / len(FEW_WRONG)
    orders = [(sets.likeliest(), FIRST_SHARE), *((sets.first_with(few, rest * level), rest) for few in FEW_WRONG)]
    for first, part in orders:
        passed = np.logical_and.accumulate(p_values[first:] <= part * level).sum()
        best = max(best, first + int(passed) - 1) if passed else best
    rows = np.zeros(len(held_out.score), bool) if best < 0 else held_out.score >= sets.threshold[best]
    seen, wrong = (sets.clean[best], sets.wrong[best]) if best >= 0 else (len(held_out.wrong), held_out.wrong.sum())
    ahead = tuple(sets.forecast(level, int(rows.sum()))) if forecast else ()
    reason = "" if best >= 0 else sets.reason(level)
    return Certificate(max_error, certainty, rows, int(seen), int(wrong), reason, ahead)


def certify_classes(
    held_out: HeldOut,
    classes: int,
    max_error: float,
    certainty: float = CERTAINTY,
    look: int = 0,
    *,
    forecast: bool = True,
) -> list[Certificate]:
    """A certificate for the labels of every class; each holds with the stated certainty by itself."""
    found = []
    for k in range(classes):
        one = certify_rows(held_out.of_class(k), max_error, certainty, look, forecast=forecast)
        rows = one.rows
        if held_out.paired:
            rows = np.zeros(len(held_out.labels), bool)
            rows[held_out.labels == k] = one.rows
        found.append(replace(one, rows=rows))
    return found


@dataclass(frozen=True)
class _Sets:
    """Nested sets of rows, the smallest first.

    Attributes:
        held_out: The rows.
        max_error: The largest share of wrong labels.
        threshold: The least score in each set [J].
        noisy: Noisy rows in it [J].
        doubt: The expected share of wrong labels among them, by their scores [J].
        clean: Clean rows in it [J].
        wrong: How many of them have a wrong label [J].
    """

    held_out: HeldOut
    max_error: float
    threshold: NDArray[np.float64]
    noisy: Labels
    doubt: NDArray[np.float64]
    clean: Labels
    wrong: Labels

    @classmethod
    def of(cls, held_out: HeldOut, max_error: float) -> _Sets:
        """Sets that hold about equally many more rows each."""
        score = np.sort(held_out.score[held_out.score > -np.inf])[::-1].astype(np.float64)
        places = np.unique(np.linspace(0, len(score), SETS + 1).round().astype(np.int64))[1:] - 1
        threshold = np.unique(score[places])[::-1] if len(score) else np.zeros(0)
        noisy = np.searchsorted(-score, -threshold, "right")  # rows of equal score stand together
        doubt = np.append(0.0, (1 - score).cumsum())[noisy] / np.maximum(noisy, 1)
        order = np.argsort(-held_out.clean_score, kind="stable")
        clean = np.searchsorted(-held_out.clean_score[order].astype(np.float64), -threshold, "right")
        wrong = np.append(0, held_out.wrong[order].cumsum())[clean]
        return cls(held_out, max_error, threshold, noisy, doubt, clean, wrong)

    def p_values(self) -> NDArray[np.float64]:
        """Of the hypotheses that more labels of a set are wrong than allowed [J]."""
        if self.held_out.weight is not None:
            return np.array([self._weighted(at) for at in self.threshold])
        return self._p(self.wrong, self.clean, len(self.held_out.wrong))

    def _p(self, wrong: ArrayLike, clean: Labels, all_clean: int) -> NDArray[np.float64]:
        """P(at most `wrong` of the clean rows) if one label more is wrong than allowed, without replacement [J]."""
        too_many = np.floor(self.max_error * self.noisy + 1e-9) + 1
        rows, others = clean, self.noisy
        if not self.held_out.paired:  # wrong predictions among all rows, wherever they are
            rows, others = np.full(len(clean), all_clean), np.full(len(clean), len(self.held_out.score))
        return at_most(wrong, rows, np.minimum(wrong + too_many, rows + others), rows + others)

    def _weighted(self, threshold: float) -> float:
        """1 / E, where E is the wealth of bets against the hypothesis, one for every clean row (an e-value).

        A row pays weight · (wrong - max_error) if it is in the set, which is not below 0 on average if more labels are
        wrong than allowed. The noisy rows are taken as very many.
        """
        held_out = self.held_out
        assert held_out.weight is not None
        inside = held_out.clean_score >= threshold
        weight = held_out.weight / held_out.weight.max()
        paid = weight * inside * (held_out.wrong - self.max_error)  # [M]
        bets = np.arange(1, BETS + 1) / (BETS + 1) / (1 - self.max_error)
        wealth = np.log1p(-np.outer(bets, paid)).sum(axis=1)
        return float(min(1.0, np.exp(-(np.logaddexp.reduce(wealth) - np.log(BETS)))))

    def likeliest(self) -> int:
        """The set that is likeliest to pass if scores are probabilities: where the first order begins.

        All orders go on with ever larger sets. Where they begin is decided by scores and counts of rows alone.
        """
        total = len(self.held_out.wrong)
        rows = self.clean if self.held_out.paired else total * self.noisy / max(len(self.held_out.score), 1)
        expected = np.minimum(np.ceil(self.doubt * rows), self.clean)
        likely = np.where(self.clean > 0, self._p(expected, self.clean, total), 1.0)
        return int(np.argmin(likely)) if len(likely) else 0

    def first_with(self, few: int, level: float) -> int:
        """The smallest set that passes with a few wrong labels: where an order begins that trusts ranks alone."""
        p_values = self._p(np.full(len(self.clean), few), self.clean, len(self.held_out.wrong))
        passed = np.flatnonzero((self.clean > few) & (p_values <= level))
        return int(passed[0]) if len(passed) else len(self.threshold)

    def forecast(self, level: float, now: int) -> Iterator[dict[str, int]]:
        """How many other noisy rows further clean rows would probably certify, where that is more than before."""
        total, share = len(self.held_out.wrong), self.held_out.share
        if not total or not len(self.threshold):
            return
        rate = (self.wrong + PRIOR_ROWS * self.doubt) / (self.clean + PRIOR_ROWS)
        for more in (more for more in MORE if more * share < len(self.held_out.score)):
            left, drawn = 1 - more * share / len(self.held_out.score), total + more * share
            later = replace(self, noisy=np.floor(self.noisy * left).astype(np.int64))
            clean = np.floor(self.clean * drawn / total).astype(np.int64)
            wrong = np.ceil(rate * clean + LUCK * np.sqrt(rate * (1 - rate) * clean)).astype(np.int64)
            passed = np.flatnonzero((wrong < clean) & (later._p(wrong, clean, round(drawn)) <= level))
            if len(passed) and later.noisy[passed[-1]] > now:
                now = int(later.noisy[passed[-1]])
                yield {"more": more, "rows": now}

    def reason(self, level: float) -> str:
        """Why no set passed."""
        percent = f"{100 * self.max_error:g}%"
        needed = int(np.ceil(np.log(level) / np.log(1 - self.max_error)))
        if not len(self.threshold):
            return "there are no labels that could be certified"
        most = len(self.held_out.wrong) if not self.held_out.paired else int(self.clean[-1])
        kind = "clean rows with a given label" if self.held_out.paired else "clean rows"
        if most < needed:
            return f"at most {percent} wrong takes {needed} {kind} or more, even if none is wrong; there are {most}"
        wrong = f"{int(self.wrong[-1])} of {int(self.clean[-1])} labels of {kind} are wrong"
        return f"no set of rows is shown to be at most {percent} wrong: {wrong}, some of them among the most certain"
