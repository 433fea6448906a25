"""When a given label is changed: only where the clean rows show that changing it does more good than harm.

Four rules, all based on counts of clean rows; with enough clean rows none of them has an effect:

1. *Do changes fix more than they break?* Of the clean rows whose label would change with a margin p_k - p_g above t, W
   become right and L become wrong, each judged by a correction fitted without the row. With a prior of half a broken
   label, the net number of labels fixed is at least W - (L + ½) - sqrt(W + L + ½), one standard error below the count.
   The guard takes the smallest margin t where this bound is positive and within one label of its maximum; if there is
   none, every given label is kept.
2. *Is the class known at all?* Of M clean rows, n_g are of class g. The log-odds of a class counted this way have the
   standard error s_g = sqrt(1 / (n_g + ½) + 1 / (M - n_g + ½)), so g must lose to k even at the upper bound of its
   odds: p_k > p_g exp(Z s_g). If no clean row is of class g, k must be six times as likely.
3. *Is a class erased?* The soft labels imply how many of the given labels g are right: Σ p_g over the rows that have
   them, at the upper bound of the odds of g. If fewer are kept, some good ones are broken. Of e_g good labels g among
   the clean rows, b_g were broken, so the estimated share is (b_g + ½) / (e_g + 1). That share of the missing labels is
   given back, the likeliest first: next to none of them if the class is well known, half of them if no clean row is of
   that class.
4. *Is the class rare?* Nearly every label of a rare class may be broken while overall accuracy rises. If the estimated
   share π_g of a class is below half of an even share, breaking one of its labels counts (1 - e_g) + e_g / (C π_g)
   times as much as breaking another, its worth w_g. Here e_g is the share of rule 3, counted before this rule: errors
   count by class with the probability that labels are broken unseen, and by row otherwise. Where no clean row is of the
   class, there may be no such class, as with a spelling error among the given labels; e_g is then multiplied by the
   probability (1 - π_g)^M that M clean rows miss a class of this size. A label g is kept unless p_k w_k > p_g w_g. Here
   p is the mean of the soft labels and of the noise model's own: a combination fitted to clean rows that are nearly all
   of other classes ranks the rows of this class badly.

Where the guard keeps a label that the correction would change, both labels get the same probability, because nothing
shows which is right. Laplace's rule bounds every confidence: what never failed in M rows is right the next time with
probability (M + 1) / (M + 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from labelloop.large_arrays import by_chunks, put
from labelloop.methods.closed_loop.learners.logistic import Array
from labelloop.types import MISSING, Floats, Labels

BROKEN_BEFORE = 0.5  # prior count of broken labels
KEEP_ALL = 1.0  # a margin that no class reaches
Z = 1.28  # one-sided 90%
RARE = 0.5  # a class is rare below this fraction of an even share
TIE = 1.001  # a label that the guard keeps gets the probability of the likeliest class, and wins the tie


@dataclass(frozen=True)
class Guard:
    """The rules for changing labels, set by the clean rows.

    Attributes:
        counts: Clean rows of every class [C].
        margin: The margin by which another class must lead.
        fixed: W at this margin; not a whole number where given labels are simulated.
        broken: L at this margin.
        worth: The weight of breaking a label of each class [C]; above 1 for rare classes with few clean rows.
    """

    counts: Labels
    margin: float = KEEP_ALL
    fixed: float = 0.0
    broken: float = 0.0
    worth: Array | None = None

    @property
    def sure(self) -> float:
        """The probability that changes fix more than they break: P(share fixed > ½) with Beta(W + 1, L + ½ + 1)."""
        return float(betainc(self.broken + BROKEN_BEFORE + 1, self.fixed + 1, 0.5))

    @property
    def bounds(self) -> Array:
        """exp(Z s_g): how many times as likely as class g another class has to be [C]."""
        total = self.counts.sum()
        return np.exp(Z * np.sqrt(1 / (self.counts + 0.5) + 1 / (total - self.counts + 0.5)))

    @property
    def ceiling(self) -> float:
        """The highest confidence that M clean rows can support."""
        return float((self.counts.sum() + 1) / (self.counts.sum() + 2))

    def moves(self, said: Floats, given: Labels) -> NDArray[np.bool_]:
        """Rows whose given label loses even at the upper bound of its class: the second rule alone [n]."""
        rows, best = np.arange(len(said)), said.argmax(axis=1)
        bounded = said[rows, best] > said[rows, given] * self.bounds[given]
        return (best != given) & ((given == MISSING) | bounded)

    def minding(self, sizes: Array, erased: Array) -> Guard:
        """The guard with the rule for rare classes.

        Args:
            sizes: The estimated number of rows of each class [C].
            erased: The estimated share of good labels of each class that is broken [C].
        """
        share = sizes / sizes.sum()  # π
        even = len(sizes) * share
        unseen = np.where(self.counts == 0, erased * (1 - share) ** self.counts.sum(), erased)
        return replace(self, worth=np.where(even < RARE, 1 - unseen + unseen / np.maximum(even, 1e-9), 1.0))

    def changes(self, said: Floats, given: Labels, alone: Floats | None = None) -> NDArray[np.bool_]:
        """Rows that lose their given label to the likeliest class: all rules but the third [n].

        Args:
            said: Soft labels [n, C].
            given: Given labels [n], -1 where missing.
            alone: Soft labels of the noise model alone [n, C]; None if they are `said`.
        """
        lost = self.moves(said, given) & ((given == MISSING) | (margins(said, given) > self.margin))
        if self.worth is None or not (self.worth > 1).any():
            return lost
        rare = np.flatnonzero(lost & (given != MISSING) & (self.worth[given] > 1))
        ours, best = given[rare], said[rare].argmax(axis=1)
        p = said[rare] if alone is None else (said[rare] + alone[rare]) / 2
        at = np.arange(len(rare))
        lost[rare] = p[at, best] * self.worth[best] > p[at, ours] * self.worth[ours]
        return lost

    def apply(self, said: Floats, given: Labels, alone: Floats | None = None) -> Floats:
        """Soft labels to return [n, C]: `said`, except where the guard keeps the given label."""
        return by_chunks(
            lambda rows: self._applied(said[rows], given[rows], None if alone is None else alone[rows]), said.shape
        )

    def _applied(self, said: Floats, given: Labels, alone: Floats | None) -> Floats:
        best = said.argmax(axis=1)
        held = np.flatnonzero((given != MISSING) & (best != given) & ~self.changes(said, given, alone))
        return self._bounded(_keep(said.astype(np.float64), held, given))

    def give_back(self, out: Floats, said: Floats, given: Labels, erased: Array) -> Floats:
        """The third rule, on what `apply` returns for all rows [n, C].

        Args:
            out: What it returned [n, C].
            said: The soft labels it was called with [n, C].
            given: Given labels [n], -1 where missing.
            erased: The estimated share of good labels of each class that is broken [C].
        """
        best, back = out.argmax(axis=1), []
        for g in range(out.shape[1]):
            mine = np.flatnonzero(given == g)
            gone = mine[best[mine] != g]
            odds = self.bounds[g] * said[mine, g].astype(np.float64)
            missing = (odds / (odds + 1 - said[mine, g])).sum() - (len(mine) - len(gone))
            count = min(int(np.ceil(erased[g] * max(missing, 0.0) - 1e-9)), len(gone))
            back.append(gone[np.argsort(-said[gone, g], kind="stable")[:count]])
        rows = np.sort(np.concatenate(back))
        kept = _keep(out[rows].astype(np.float64), np.arange(len(rows)), given[rows])
        changed = by_chunks(lambda some: out[some], out.shape)
        put(changed, rows, kept)
        return changed

    def _bounded(self, out: Array) -> Floats:
        """Caps confidences at the ceiling; the rest goes to the other classes in proportion."""
        rows, best = np.arange(len(out)), out.argmax(axis=1)
        top = out[rows, best]
        over = top > self.ceiling
        others = 1 - np.eye(out.shape[1])[best]  # [n, C]
        rest = out * others
        spread = np.where(rest.sum(axis=1, keepdims=True) > 1e-12, rest, others)
        spread *= (1 - self.ceiling) / spread.sum(axis=1, keepdims=True)
        spread[rows, best] = self.ceiling
        return np.where(over[:, None], spread, out).astype(np.float32)


def _keep(out: Array, rows: Labels, given: Labels) -> Array:
    """Makes the given label of some rows as likely as the likeliest class."""
    out[rows, given[rows]] = TIE * out[rows].max(axis=1, initial=0.0)
    out[rows] /= out[rows].sum(axis=1, keepdims=True)
    return out


def margins(said: Floats, given: Labels) -> Array:
    """By how much the likeliest class leads the given label [n]."""
    return (said.max(axis=1) - said[np.arange(len(said)), given]).astype(np.float64)


def set_guard(lead: Array, fixed: Array, broken: Array, counts: Labels) -> Guard:
    """The guard whose margin follows from the lower bound of rule 1.

    Args:
        lead: Margins of the changes to clean rows [K].
        fixed: The weight of each as a label that becomes right [K].
        broken: Its weight as a label that becomes wrong [K].
        counts: Clean rows of every class [C].
    """
    order = np.argsort(-lead, kind="stable")
    lead, wins, losses = lead[order], fixed[order].cumsum(), broken[order].cumsum() + BROKEN_BEFORE
    if not len(lead):
        return Guard(counts)
    last = np.append(lead[1:] < lead[:-1], True)  # of changes with equal margins
    bound = np.where(last, wins - losses - np.sqrt(wins + losses), -np.inf)
    good = np.flatnonzero((bound > 0) & (bound >= bound.max() - 1))
    if not len(good):
        return Guard(counts)
    at = good[-1]
    below = lead[at + 1] if at + 1 < len(lead) else 0.0
    return Guard(counts, float(below), float(wins[at]), float(losses[at] - BROKEN_BEFORE))
