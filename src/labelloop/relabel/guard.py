"""When a given label is changed: only where the clean rows show that changing it does more good than harm.

The rules, all based on counts of clean rows; with enough clean rows none of them has an effect:

1. *Do changes fix more than they break?* A label is changed only with a margin p_k - p_g above t, and only if the clean
   rows show that such changes do good; evidence.py chooses t and tests it, each clean row with a t chosen without it.
2. *Is the class known at all?* Of M clean rows, n_g are of class g. The log-odds of a class counted this way have the
   standard error s_g = sqrt(1 / (n_g + ½) + 1 / (M - n_g + ½)), so g must lose to k even at the upper bound of its
   odds: p_k > p_g exp(Z s_g). If no clean row is of class g, k must be six times as likely.
3. *Is a class erased?* The soft labels imply how many of the given labels g are right: Σ p_g over the rows that have
   them, at the upper bound of the odds of g. If fewer are kept, some good ones are broken. Of e_g good labels g among
   the clean rows, b_g were broken, so the estimated share is (b_g + ½) / (e_g + 1). That share of the missing labels is
   given back, the likeliest first: next to none of them if the class is well known.
4. *Is the class rare?* Nearly every label of a rare class may be broken while overall accuracy rises. If the estimated
   share π_g of a class is below half of an even share, breaking one of its labels counts (1 - e_g) + e_g / (C π_g)
   times as much as breaking another, its worth w_g. Here e_g is the share of rule 3, counted before this rule: errors
   count by class with the probability that labels are broken unnoticed, and by row otherwise. Where no clean row is of
   the class, there may be no such class, as with a spelling error among the given labels; e_g is then multiplied by the
   probability (1 - π_g)^M that M clean rows miss a class of this size. A label g is kept unless p_k w_k > p_g w_g. Here
   p is the mean of the soft labels and of the noise model's own: a combination fitted to clean rows that are nearly all
   of other classes ranks the rows of this class badly.
5. *Was the class hardly checked?* A class without a clean row keeps its labels. A rare one, or one with few clean rows,
   that is not shown to lose less than a fifth of its good labels loses none on balance: as many are given back as it
   takes, the likeliest first. A rare class must show it by itself; one that only has few clean rows borrows from all
   classes. Two things may show that there are fewer such rows than labels, and then as many labels as there may be
   rows are kept: clean rows, by an upper bound of the share of rows of this class, at 90%, or at 95% if none is of it;
   or, if none is, the given labels alone, where learners of the given labels cannot tell rows with this label from
   those with the next likeliest one: a spelling variant.
6. *Does a class lose?* If changes broke more labels of a class than they fixed, by more than one in twenty of its clean
   rows, its labels are changed only with a larger margin, with which they would not have.

Where the guard keeps a label that the correction would change, both labels get the same probability, because nothing
shows which is right. Laplace's rule bounds every confidence: what never failed in M rows is right the next time with
probability (M + 1) / (M + 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.sample import largest_share
from labelloop.types import MISSING, Floats, Labels

KEEP_ALL = 1.0  # a margin that no class reaches
Z = 1.28  # one-sided 90%
RARE = 0.5  # a class is rare below this fraction of an even share
TIE = 1.001  # a label that the guard keeps gets the probability of the likeliest class, and wins the tie
FEWEST_VARIANTS = 10  # labels that may show by themselves that they are a spelling variant
MOST_RANK = 0.6  # the upper bound of the mean rank of such labels
TOP = 0.1  # a tenth of their ranks is among the highest; the upper bound is twice that

LogP = Callable[[Labels], Array]


@dataclass(frozen=True)
class Guard:
    """The rules for changing labels, set by the clean rows.

    Attributes:
        counts: Clean rows of every class [C].
        margin: The margin by which another class must lead.
        fixed: W at this margin; not a whole number where given labels are simulated.
        broken: L at this margin.
        worth: The weight of breaking a label of each class [C]; above 1 for rare classes with few clean rows.
        own_margin: The margin by which another class must lead a label of each class [C], where it is larger.
        protected: Classes that lose no labels on balance [C]; None for those without a clean row.
        alone_above: Where the inputs alone are more confident than this, the label is what they say.
        how: What shows that changes help: "measured" on pairs, "bounded" whatever the noise, or "assumed" (simulated).
        sure: 1 - the p-value of the test that changes passed. It is the least probability that they fix more than they
            break, but if the noise is assumed it only decides, and is not shown.
    """

    counts: Labels
    margin: float = KEEP_ALL
    fixed: float = 0.0
    broken: float = 0.0
    worth: Array | None = None
    own_margin: Array | None = None
    protected: NDArray[np.bool_] | None = None
    alone_above: float = KEEP_ALL
    how: str = "measured"
    sure: float = 0.0

    @property
    def bounds(self) -> Array:
        """exp(Z s_g): how many times as likely as class g another class has to be [C]."""
        total = self.counts.sum()
        return np.exp(Z * np.sqrt(1 / (self.counts + 0.5) + 1 / (total - self.counts + 0.5)))

    @property
    def ceiling(self) -> float:
        """The highest confidence that M clean rows can support."""
        return float((self.counts.sum() + 1) / (self.counts.sum() + 2))

    def moves(self, posterior: Floats, given: Labels) -> NDArray[np.bool_]:
        """Rows whose given label loses even at the upper bound of its class: the second rule alone [n]."""
        rows, best = np.arange(len(posterior)), posterior.argmax(axis=1)
        bounded = posterior[rows, best] > posterior[rows, given] * self.bounds[given]
        return (best != given) & ((given == MISSING) | bounded)

    def for_rare_classes(self, sizes: Array, erased: Array) -> Guard:
        """The guard with the rule for rare classes.

        Args:
            sizes: The estimated number of rows of each class [C].
            erased: The estimated share of good labels of each class that is broken [C].
        """
        share = sizes / sizes.sum()  # π
        even = len(sizes) * share
        oof = np.where(self.counts == 0, erased * (1 - share) ** self.counts.sum(), erased)
        return replace(self, worth=np.where(even < RARE, 1 - oof + oof / np.maximum(even, 1e-9), 1.0))

    def changes(self, posterior: Floats, given: Labels, noise_only: Floats | None = None) -> NDArray[np.bool_]:
        """Rows that lose their given label to the likeliest class: all rules but the third [n].

        Args:
            posterior: Soft labels [n, C].
            given: Given labels [n], -1 where missing.
            noise_only: Soft labels of the noise model alone [n, C]; None if they are `posterior`.
        """
        least = self.margin if self.own_margin is None else np.maximum(self.margin, self.own_margin[given])
        lost = self.moves(posterior, given) & ((given == MISSING) | (margins(posterior, given) > least))
        if self.worth is None or not (self.worth > 1).any():
            return lost
        rare = np.flatnonzero(lost & (given != MISSING) & (self.worth[given] > 1))
        ours, best = given[rare], posterior[rare].argmax(axis=1)
        p = posterior[rare] if noise_only is None else (posterior[rare] + noise_only[rare]) / 2
        at = np.arange(len(rare))
        lost[rare] = p[at, best] * self.worth[best] > p[at, ours] * self.worth[ours]
        return lost

    def apply(
        self, posterior: Floats, given: Labels, noise_only: Floats | None = None, alone: Floats | None = None
    ) -> Floats:
        """Soft labels to return [n, C]: `posterior`, except where the guard keeps the given label.

        Args:
            posterior: Soft labels [n, C].
            given: Given labels [n], -1 where missing.
            noise_only: Soft labels of the noise model alone [n, C]; None if they are `posterior`.
            alone: P(y | x), which is returned where it is confident enough [n, C].
        """
        kept = (given != MISSING) & (posterior.argmax(axis=1) != given) & ~self.changes(posterior, given, noise_only)
        found = _keep(posterior.astype(np.float64), np.flatnonzero(kept), given)
        if alone is not None and self.alone_above < KEEP_ALL:
            certain = (given != MISSING) & (alone.max(axis=1) > self.alone_above)
            found[certain] = alone[certain]
        return self._bounded(found)

    def given_back(
        self, out: Floats, posterior: Floats, given: Labels, erased: Array, log_p: LogP | None = None
    ) -> tuple[Labels, Array]:
        """The third and the fifth rule: which rows get back their given label, of what `apply` returns for all rows.

        Args:
            out: What it returned [n, C].
            posterior: The soft labels it was called with [n, C].
            given: Given labels [n], -1 where missing.
            erased: The estimated share of good labels of each class that is broken [C].
            log_p: Log-probabilities of the given label for some rows [m, C]; without it, no class is a variant.

        Returns:
            Positions of the rows, and the least probability of each class with which its label is given back [C].
        """
        best, back, least = out.argmax(axis=1), [], np.full(out.shape[1], np.inf)
        protected = self.counts == 0 if self.protected is None else self.protected
        for g in range(out.shape[1]):
            mine = np.flatnonzero(given == g)
            gone = mine[best[mine] != g]
            odds = self.bounds[g] * posterior[mine, g].astype(np.float64)
            missing = (odds / (odds + 1 - posterior[mine, g])).sum() - (len(mine) - len(gone))
            count = int(np.ceil(erased[g] * max(missing, 0.0) - 1e-9))
            variant = not self.counts[g] and log_p is not None and _is_variant(g, posterior[mine], mine, given, log_p)
            if protected[g] and not variant:
                now = int((best == g).sum()) if self.counts[g] else len(mine) - len(gone)
                count = max(count, self._owed(g, len(mine), now, len(out)))
            gone = gone[np.argsort(-posterior[gone, g], kind="stable")[: min(count, len(gone))]]
            best[gone] = g  # another class that is protected is owed what this one takes back
            least[g] = posterior[gone, g].min(initial=np.inf)
            back.append(gone)
        return np.sort(np.concatenate(back)), least

    def _owed(self, g: int, before: int, after: int, rows: int) -> int:
        """How many labels a protected class gets back, if it had `before` labels and now has `after`."""
        most = largest_share(int(self.counts[g]), int(self.counts.sum()))
        return max(min(before, int(np.ceil(most * rows))) - after, 0)

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


def is_kept(posterior: Floats, given: Labels, kept: Array) -> NDArray[np.bool_]:
    """Which rows keep their given label, by the probabilities of `kept_without` [m]; False where it is missing."""
    rows = np.arange(len(given))
    return (given != MISSING) & (posterior[rows, given] >= kept[rows, given])


def keep_given(out: Floats, rows: Labels, given: Labels) -> Floats:
    """Soft labels [n, C] with the given label of some rows as likely as the likeliest class."""
    return _keep(out.astype(np.float64), rows, given).astype(np.float32)


def _keep(out: Array, rows: Labels, given: Labels) -> Array:
    """Makes the given label of some rows as likely as the likeliest class."""
    out[rows, given[rows]] = TIE * out[rows].max(axis=1, initial=0.0)
    out[rows] /= out[rows].sum(axis=1, keepdims=True)
    return out


def _is_variant(g: int, posterior: Floats, mine: Labels, given: Labels, log_p: LogP) -> bool:
    """Whether given labels alone show that g is another name of other labels.

    If so, a learner of given labels finds g no likelier in the rows with this label than in rows with the other one,
    the likeliest but g: the rank of each among them is uniform. Of a class of its own that learners hardly know, the
    mean rank is above ½; of a few rows of their own among many wrong labels, more than a tenth of the ranks are above
    0.9. So both must be shown to be close to what a variant has.
    """
    if len(mine) < FEWEST_VARIANTS:
        return False
    other = np.where(np.arange(posterior.shape[1]) == g, -1.0, posterior).argmax(axis=1)  # [m]
    ranks = []
    for k in np.unique(other):
        others = np.flatnonzero(given == k)
        theirs = np.sort(log_p(others)[:, g]) if len(others) else np.zeros(0)
        ours = log_p(mine[other == k])[:, g]
        middle = np.searchsorted(theirs, ours, "left") + np.searchsorted(theirs, ours, "right")
        ranks.append((middle + 1) / (2 * len(theirs) + 2))
    rank, error = np.concatenate(ranks), Z / np.sqrt(len(mine))
    high = float((rank > 1 - TOP).mean())
    return float(rank.mean()) + np.sqrt(1 / 12) * error < MOST_RANK and high + np.sqrt(TOP - TOP**2) * error < 2 * TOP


def margins(posterior: Floats, given: Labels) -> Array:
    """By how much the likeliest class leads the given label [n]."""
    return (posterior.max(axis=1) - posterior[np.arange(len(posterior)), given]).astype(np.float64)
