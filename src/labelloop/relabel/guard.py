"""When a given label is changed: only where the clean rows show that changing it does more good than harm.

Four rules, all based on counts of clean rows; with enough clean rows none of them has an effect:

1. *Do changes fix more than they break?* Of the clean rows whose label would change with a margin p_k - p_g above t, W
   become right and L become wrong, each seen by a correction fitted without the row. With a prior of half a broken
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
   count by class with the probability that labels are broken unnoticed, and by row otherwise. Where no clean row is of
   the class, there may be no such class, as with a spelling error among the given labels; e_g is then multiplied by the
   probability (1 - π_g)^M that M clean rows miss a class of this size. A label g is kept unless p_k w_k > p_g w_g. Here
   p is the mean of the soft labels and of the noise model's own: a combination fitted to clean rows that are nearly all
   of other classes ranks the rows of this class badly.

Where the guard keeps a label that the correction would change, both labels get the same probability, because nothing
shows which is right. Laplace's rule bounds every confidence: what never failed in M rows is right the next time with
probability (M + 1) / (M + 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from labelloop.large_arrays import by_chunks, put
from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.noise_posterior import Noise
from labelloop.relabel.stacking import Combined
from labelloop.types import MISSING, Floats, Labels

BROKEN_BEFORE = 0.5  # prior count of broken labels
KEEP_ALL = 1.0  # a margin that no class reaches
Z = 1.28  # one-sided 90%
RARE = 0.5  # a class is rare below this fraction of an even share
TIE = 1.001  # a label that the guard keeps gets the probability of the likeliest class, and wins the tie

DRAWS = 20  # simulated labels of a clean row under each noise model
SIMULATED = 0.5  # weight of a clean row whose given label is simulated, since the estimated noise may be wrong


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
        lost = self.moves(posterior, given) & ((given == MISSING) | (margins(posterior, given) > self.margin))
        if self.worth is None or not (self.worth > 1).any():
            return lost
        rare = np.flatnonzero(lost & (given != MISSING) & (self.worth[given] > 1))
        ours, best = given[rare], posterior[rare].argmax(axis=1)
        p = posterior[rare] if noise_only is None else (posterior[rare] + noise_only[rare]) / 2
        at = np.arange(len(rare))
        lost[rare] = p[at, best] * self.worth[best] > p[at, ours] * self.worth[ours]
        return lost

    def apply(self, posterior: Floats, given: Labels, noise_only: Floats | None = None) -> Floats:
        """Soft labels to return [n, C]: `posterior`, except where the guard keeps the given label."""
        return by_chunks(
            lambda rows: self._applied(posterior[rows], given[rows], None if noise_only is None else noise_only[rows]),
            posterior.shape,
        )

    def _applied(self, posterior: Floats, given: Labels, noise_only: Floats | None) -> Floats:
        best = posterior.argmax(axis=1)
        held = np.flatnonzero((given != MISSING) & (best != given) & ~self.changes(posterior, given, noise_only))
        return self._bounded(_keep(posterior.astype(np.float64), held, given))

    def give_back(self, out: Floats, posterior: Floats, given: Labels, erased: Array) -> Floats:
        """The third rule, on what `apply` returns for all rows [n, C].

        Args:
            out: What it returned [n, C].
            posterior: The soft labels it was called with [n, C].
            given: Given labels [n], -1 where missing.
            erased: The estimated share of good labels of each class that is broken [C].
        """
        best, back = out.argmax(axis=1), []
        for g in range(out.shape[1]):
            mine = np.flatnonzero(given == g)
            gone = mine[best[mine] != g]
            odds = self.bounds[g] * posterior[mine, g].astype(np.float64)
            missing = (odds / (odds + 1 - posterior[mine, g])).sum() - (len(mine) - len(gone))
            count = min(int(np.ceil(erased[g] * max(missing, 0.0) - 1e-9)), len(gone))
            back.append(gone[np.argsort(-posterior[gone, g], kind="stable")[:count]])
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


def margins(posterior: Floats, given: Labels) -> Array:
    """By how much the likeliest class leads the given label [n]."""
    return (posterior.max(axis=1) - posterior[np.arange(len(posterior)), given]).astype(np.float64)


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


@dataclass(frozen=True)
class Changes:
    """The guard, and how the labels that it returns do on the validation rows.

    Attributes:
        guard: Set by all validation rows.
        erased: The estimated share of good labels of every class that changes break [C].
        cross_fitted: Soft labels returned for them, learnt without them; only the guard has seen them [M, C].
        expected_right: For those without a given label, the probability that the returned label is right, under each
            noise model [M, K]; NaN for the others, or if there are enough pairs.
        rows: How many validation rows count.
        given_right: The share of their given labels that are right.
        corrected_right: The share of their returned labels that are right.
    """

    guard: Guard
    erased: Array
    cross_fitted: Floats
    expected_right: Floats
    rows: int
    given_right: float
    corrected_right: float

    def record(self, posterior: Floats, targets: Floats, given: Labels, clean: Labels) -> dict[str, Any]:
        """The entry "guard" of run.json: how many labels were changed and kept, and the evidence for it.

        Args:
            posterior: Soft labels before the guard [n, C].
            targets: The soft labels returned [n, C].
            given: Given labels [n], -1 where missing.
            clean: Clean labels [n], -1 where missing.
        """
        noisy = (given != MISSING) & (clean == MISSING)
        changed = int((targets.argmax(axis=1) != given)[noisy].sum())
        held = int((posterior.argmax(axis=1) != given)[noisy].sum()) - changed
        simulated = bool(np.isfinite(self.expected_right).any())
        found = {
            "rows": int(noisy.sum()),
            "changed": changed,
            "held_back": held,
            "clean_rows": self.rows,
            "given_right": self.given_right,
            "corrected_right": self.corrected_right,
            "fixed": round(self.guard.fixed, 2),
            "broken": round(self.guard.broken, 2),
            "sure": self.guard.sure if changed else None,
            "labels_simulated": simulated,
        }
        return {"line": guard_line(found), **found}


def guard_line(found: dict[str, Any]) -> str:
    """The guard's decision in one line."""
    how = "clean rows with simulated given labels" if found["labels_simulated"] else "clean rows with a given label"
    changes = "change" if found["held_back"] == 1 else "changes"
    held = f"; {found['held_back']} {changes} held back for lack of evidence" if found["held_back"] else ""
    if not found["changed"]:
        return f"all {found['rows']} given labels kept: {found['clean_rows']} {how} do not show that changes help{held}"
    if not found["clean_rows"]:
        return f"{found['changed']} of {found['rows']} given labels changed{held}; no clean row shows the effect"
    return (
        f"{found['changed']} of {found['rows']} given labels changed{held}; on {found['clean_rows']} {how},"
        f" {100 * found['corrected_right']:.1f}% are right after correction and {100 * found['given_right']:.1f}% as"
        f" given; the probability that changes fix more than they break is {100 * found['sure']:.1f}%"
    )


@dataclass(frozen=True)
class _Trial:
    """The validation rows with one given label each, real or drawn: soft labels [M, C] and given labels [M]."""

    posterior: Floats
    given: Labels
    noise_only: Floats  # from the noise model alone
    model: int  # the noise model that it was drawn from


def _set(trials: Sequence[_Trial], labels: Labels, given: Labels, counts: Labels) -> Guard:
    """The guard that follows from the trials."""
    worth = np.where(given == MISSING, SIMULATED, 1.0) / len(trials)  # [M]
    lead, fixed, broken = [], [], []
    for trial in trials:
        moved = Guard(counts).moves(trial.posterior, trial.given) & (trial.given != MISSING)
        right, wrong = trial.posterior.argmax(axis=1) == labels, trial.given == labels
        told = moved & (right | wrong)
        lead.append(margins(trial.posterior, trial.given)[told])
        fixed.append((worth * right)[told])
        broken.append((worth * wrong)[told])
    return set_guard(np.concatenate(lead), np.concatenate(fixed), np.concatenate(broken), counts)


def _erased(trials: Sequence[_Trial], guard: Guard, labels: Labels, given: Labels) -> Array:
    """The estimated share of good labels of every class that changes break [C]."""
    worth = np.where(given == MISSING, SIMULATED, 1.0) / len(trials)  # [M]
    good, broken = np.zeros(len(guard.counts)), np.zeros(len(guard.counts))
    for trial in trials:
        was_right = trial.given == labels
        good += np.bincount(labels, worth * was_right, len(good))
        broken += np.bincount(labels, worth * (was_right & guard.changes(trial.posterior, trial.given)), len(good))
    return (broken + 0.5) / (good + 1)


def look_at_changes(
    noise: Noise,
    answer: Combined,
    noise_only: Combined,
    posterior_given: Callable[[Labels], Floats],
    *,
    simulate: bool,
    rng: np.random.Generator,
) -> Changes:
    """Counts what changes would do to the validation rows.

    Args:
        noise: The estimated noise.
        answer: What would be returned without a guard.
        noise_only: The answer of the noise model alone.
        posterior_given: Soft labels of the validation rows, learnt without them, if these were their given labels.
        simulate: Whether validation rows without a given label get simulated ones; if not, only paired ones count.
        rng: Draws the simulated labels.
    """
    validation = noise.validation
    labels, given = validation.labels, validation.given
    trials = [_Trial(answer.oof, given, noise_only.oof, 0)]
    if simulate:
        trials = []
        for _ in range(DRAWS if (given == MISSING).any() else 1):
            drawn = noise.draw(rng)
            for k, g in enumerate(drawn):
                posterior = posterior_given(g)
                trials.append(_Trial(posterior, g, posterior, k))
    counts = np.bincount(labels, minlength=validation.observed.num_classes)
    guard = _set(trials, labels, given, counts)
    erased = _erased(trials, guard, labels, given)
    guard = guard.for_rare_classes(answer.final.sum(axis=0, dtype=np.float64), erased)
    cross_fitted = guard.apply(answer.oof, given, noise_only.oof)
    models = 1 + max(trial.model for trial in trials)
    open_rows = (given == MISSING) & simulate
    expected = np.where(open_rows[:, None], np.zeros(models), np.nan).astype(np.float32)
    own = np.flatnonzero(open_rows)
    for trial in trials if len(own) else ():
        handed = guard.apply(trial.posterior[own], trial.given[own], trial.noise_only[own]).argmax(axis=1)
        expected[own, trial.model] += (handed == labels[own]) * models / len(trials)
    right = np.mean([trial.given == labels for trial in trials], axis=0)
    counted = (given != MISSING) | simulate
    hits = np.where(open_rows, np.nan_to_num(expected).mean(axis=1), cross_fitted.argmax(axis=1) == labels)
    shares = (float(values[counted].mean()) if counted.any() else 0.0 for values in (right, hits))
    return Changes(guard, erased, cross_fitted, expected, int(counted.sum()), *shares)
