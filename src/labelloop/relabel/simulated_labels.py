"""Simulated given labels for clean rows that have none, drawn from the estimated noise.

Labels drawn from a noise estimate suggest that changes help, because the same estimate makes the changes. A matrix T
fitted to noisy rows also overfits: labels that do not fit the predictions look wrong, the more so the fewer rows there
are per entry. So changes must also help if labels are as often right as a second estimate says, give or take its error.
There T only says where wrong labels go, and a single number s says how many there are:
T_s[y, k] = s T[y, k] for k ≠ y, and P_s(k | x) = Σ_y q(y | x) T_s[y, k]. T is estimated on one half of the noisy rows,
and s on the other, by the score ψ_s(x, k) = ∂ log P_s(k | x) / ∂s:

    mean of ψ_s(x, ỹ) over noisy rows = mean of Σ_k T_s[y, k] ψ_s(x, k) over clean rows.

If q is right, both sides are zero on average, and s is the most likely one. If it is not, clean rows show by how much
the score is off, as in prediction-powered inference (arXiv 2301.09633). It assumes that noise depends on the class.
If labels are wrong mostly on hard rows, the estimated share of right labels is too high, which is the safe side. It is
too low if labels are right on rows that predictions get wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from labelloop.relabel.guard import Guard, is_kept
from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.noise_model import estimate_rate, estimate_transition
from labelloop.relabel.noise_posterior import Noise
from labelloop.relabel.stacking import Combined, ValidationRows
from labelloop.types import FLOOR, MISSING, Floats, Labels

DRAWS = 20  # simulated labels of a clean row under each noise model
LEAST, MOST = 1e-3, 1.5  # of s
STEPS = 50  # of EM
ROWS_PER_ENTRY = 20  # noisy rows for each entry of T; with fewer, T follows chance, and one number may stand for it


@dataclass(frozen=True)
class Trial:
    """The validation rows with one given label each, real or drawn: soft labels [M, C] and given labels [M]."""

    posterior: Floats
    given: Labels
    model: int = 0  # the noise model that it was drawn from
    share: float = 1.0  # of the weight of all trials
    slope: float = 0.0  # of this weight in the share of given labels that are right

    def returned(self, guard: Guard, rows: Labels, alone: Floats, kept: Array) -> Labels:
        """The labels that a guard returns for some of the rows.

        Args:
            guard: The guard.
            rows: Positions among the validation rows [m].
            alone: P(y | x) of all validation rows [M, C].
            kept: As `kept_without` makes it [M, C].
        """
        posterior, shown = self.posterior[rows], self.given[rows]
        handed = guard.apply(posterior, shown, alone=alone[rows]).argmax(axis=1)
        return np.where(is_kept(posterior, shown, kept[rows]), shown, handed)


@dataclass(frozen=True)
class Simulated:
    """Trials for every noise model.

    Attributes:
        likely: As estimated.
        careful: With as many right labels as there probably are, if that is more.
    """

    likely: list[Trial]
    careful: list[Trial]

    @classmethod
    def of(
        cls, noise: Noise, posterior_given: Callable[[Labels], Floats], share: float, rng: np.random.Generator
    ) -> Simulated:
        """Draws labels for validation rows. The few that have one get others too: they must gain as noisy rows would.

        Careful trials are likely ones with less weight, and another trial for each noise model in which all labels are
        right, with so much weight that this share of all labels is.

        Args:
            noise: The estimated noise.
            posterior_given: Soft labels of the validation rows, learnt without them, if these were their given labels.
            share: The share of given labels that are right.
            rng: Draws the labels.
        """
        rows, true = noise.validation.rows, noise.validation.labels
        labels = [noise.draw(rng) for _ in range(DRAWS)]
        models = len(labels[0])
        each = 1 / (DRAWS * models)
        likely = [Trial(posterior_given(one), one, k, each) for of_all in labels for k, one in enumerate(of_all)]
        posterior, careful = posterior_given(true), []
        for k, law in enumerate(noise.label_probs(rows, true)):
            wrong = max(1 - float(law[np.arange(len(true)), true].mean()), 1e-9)
            more = min(max(1 - (1 - share) / wrong, 0.0), 1.0)
            careful += [
                replace(trial, share=(1 - more) * trial.share, slope=-trial.share / wrong)
                for trial in likely
                if trial.model == k
            ]
            careful.append(Trial(posterior, true, k, more / models, 1 / (wrong * models)))
        return cls(likely, careful)


@dataclass(frozen=True)
class RightShare:
    """The estimated share of given labels that are right, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, validation: ValidationRows, alone: Combined, transition: Array) -> RightShare:
        """Estimates the share.

        Args:
            validation: The clean rows.
            alone: P(y | x), learnt without the given label of a noisy row and the clean label of a clean one.
            transition: T from all noisy rows, for the fits of its halves to begin with.
        """
        observed, classes = validation.observed, len(transition)
        noisy = observed.sample[observed.clean[observed.sample] == MISSING]
        if len(noisy) < 2 or validation.counted.sum() < 2 or classes < 2:
            return cls(1.0, 0.0)
        q, given = alone.final[noisy].astype(np.float64), observed.given[noisy]
        clean = alone.oof[validation.counted].astype(np.float64), validation.labels[validation.counted]
        none, halves = np.zeros((classes, classes)), np.arange(len(noisy)) % 2
        by_entry, by_rate, enough = [], [], len(noisy) >= ROWS_PER_ENTRY * classes**2
        for half in (0, 1):
            rest = halves != half
            if not enough:
                one = estimate_rate(q[rest], given[rest], none)
                by_rate.append(Intensity(one, q[~rest], given[~rest], *clean))
            if rest.sum() >= classes**2:
                matrix = estimate_transition(q[rest], given[rest], pairs=none, start=transition, steps=STEPS)
                by_entry.append(Intensity(matrix, q[~rest], given[~rest], *clean))
        return max((cls.of_parts(parts) for parts in (by_entry, by_rate) if parts), key=lambda share: share.value)

    @classmethod
    def of_parts(cls, parts: list[Intensity]) -> RightShare:
        """The share from parts of the noisy rows, each with a matrix that was estimated without it."""

        def gap(s: float) -> float:
            of_noisy, of_clean = _scores(parts, s)
            return float(of_noisy.mean() - of_clean.mean())

        ends = LEAST, min(MOST, *(part.most for part in parts))
        crossed = gap(ends[0]) > 0 > gap(ends[1])
        s = float(brentq(gap, *ends, xtol=1e-4)) if crossed else ends[int(gap(ends[0]) > 0)]
        of_noisy, of_clean = _scores(parts, s)
        rows = sum(len(part.given) for part in parts)
        slope = sum(part.information(s) * len(part.given) for part in parts) / rows
        wrong = sum(part.wrong * len(part.given) for part in parts) / rows
        error = np.sqrt(of_noisy.var(ddof=1) / rows + of_clean.var(ddof=1) / len(of_clean)) / max(slope, FLOOR)
        return cls(1 - s * wrong, float(error) * wrong)


@dataclass(frozen=True)
class Intensity:
    """Noisy rows and clean rows under T_s, with a T that did not see the noisy rows.

    Attributes:
        matrix: T[y, ỹ] [C, C].
        q: P(y | x) of noisy rows [N, C].
        given: Their given labels [N].
        q_clean: P(y | x) of clean rows, learnt without them [M, C].
        clean: Their clean labels [M].
    """

    matrix: Array
    q: Array
    given: Labels
    q_clean: Array
    clean: Labels

    @property
    def most(self) -> float:
        """The largest s with which every entry of T_s is a probability."""
        return float(1 / max((1 - np.diag(self.matrix)).max(), FLOOR))

    @property
    def wrong(self) -> float:
        """The expected share of wrong labels for s = 1."""
        return float((self.q @ (1 - np.diag(self.matrix))).mean())

    def scores(self, s: float) -> tuple[Array, Array]:
        """ψ_s of the noisy rows [N], and what it should be on average for each clean row [M]."""
        change, p = self._change(self.q), self._probs(self.q, s)
        of_noisy = (change / p)[np.arange(len(p)), self.given]
        scaled = np.eye(len(self.matrix)) + s * self._change_of_true
        of_clean = (scaled[self.clean] * self._change(self.q_clean) / self._probs(self.q_clean, s)).sum(axis=1)
        return of_noisy, of_clean

    def information(self, s: float) -> float:
        """The mean of Σ_k (∂P_s(k | x) / ∂s)² / P_s(k | x): by how much the mean score falls as s grows."""
        return float((self._change(self.q) ** 2 / self._probs(self.q, s)).sum(axis=1).mean())

    @property
    def _change_of_true(self) -> Array:
        """∂T_s / ∂s [C, C]."""
        return self.matrix - np.eye(len(self.matrix))

    def _change(self, q: Array) -> Array:
        """∂P_s(k | x) / ∂s of some rows [n, C]."""
        return q @ self._change_of_true

    def _probs(self, q: Array, s: float) -> Array:
        """P_s(k | x) of some rows [n, C]."""
        return np.maximum(q + s * self._change(q), FLOOR)


def _scores(parts: list[Intensity], s: float) -> tuple[Array, Array]:
    """ψ_s of the noisy rows of all parts [N], and the mean over the parts for each clean row [M]."""
    found = [part.scores(s) for part in parts]
    return np.concatenate([noisy for noisy, _ in found]), np.mean([clean for _, clean in found], axis=0)
