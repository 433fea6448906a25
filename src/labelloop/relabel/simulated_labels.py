"""Given labels for clean rows that have none: drawn from the estimated noise, and right as often as they may be.

Labels drawn from an estimate of the noise say that changes help, because the same estimate makes the changes. Where
predictions are weak or noisy rows few, it says so wrongly: a noise matrix that is fitted to labels which do not fit the
predictions calls them wrong. So changes must help with better labels, too.

*How good the labels may be*: predictions from the inputs give the given labels of noisy rows the mean probability B.
The true labels of these rows have the mean probability Q. Predictions expect it to be Σ_k q_k² in a row, and clean rows
show how far they are from what they expect. If a share a of the given labels is right, and wrong ones fit as badly as
any other class does, W = (1 - Q) / (C - 1), then B = a Q + (1 - a) W, so a = (B - W) / (Q - W). Its upper bound needs
no noise matrix. Where labels go wrong on hard rows, or are taken for classes that look alike, they fit better than that
and a is overestimated, which is the careful side. It fails where labels are right on rows that predictions get wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.noise_posterior import Noise
from labelloop.relabel.sample import copies
from labelloop.relabel.stacking import Combined, ValidationRows
from labelloop.types import MISSING, Floats, Labels

DRAWS = 20  # simulated labels of a clean row under each noise model
ERRORS = 1.64  # standard errors from a to its upper bound: one-sided 95%
PRIOR = 0.25  # another row that is ½ from the mean, so that a few rows that are alike do not seem certain


@dataclass(frozen=True)
class Trial:
    """The validation rows with one given label each, real or drawn: soft labels [M, C] and given labels [M]."""

    posterior: Floats
    given: Labels
    model: int = 0  # the noise model that it was drawn from
    share: float = 1.0  # of the weight of all trials


@dataclass(frozen=True)
class Simulated:
    """Trials for every noise model.

    Attributes:
        likely: As estimated.
        careful: With as many right labels as there may be.
    """

    likely: list[Trial]
    careful: list[Trial]

    @classmethod
    def of(
        cls, noise: Noise, posterior_given: Callable[[Labels], Floats], most: float, rng: np.random.Generator
    ) -> Simulated:
        """Draws labels for validation rows without one; others keep theirs.

        Careful trials are likely ones with less weight, and another trial for each noise model in which all labels are
        right, with so much weight that a share `most` of all labels is.

        Args:
            noise: The estimated noise.
            posterior_given: Soft labels of the validation rows, learnt without them, if these were their given labels.
            most: The upper bound of the share of given labels that are right.
            rng: Draws the labels.
        """
        validation = noise.validation
        missing = validation.given == MISSING
        draws = DRAWS if missing.any() else 1
        labels = [noise.draw(rng) for _ in range(draws)]
        models = len(labels[0])
        each = 1 / (draws * models)
        likely = [Trial(posterior_given(one), one, k, each) for of_all in labels for k, one in enumerate(of_all)]
        if not missing.any():
            return cls(likely, likely)
        rows, true = validation.rows[missing], validation.labels[missing]
        good = np.where(missing, validation.labels, validation.given)
        posterior, careful = posterior_given(good), []
        for k, law in enumerate(noise.label_probs(rows, true)):
            right = float(law[np.arange(len(true)), true].mean())
            more = min(max((most - right) / max(1 - right, 1e-9), 0.0), 1.0)
            careful += [replace(trial, share=(1 - more) * trial.share) for trial in likely if trial.model == k]
            careful.append(Trial(posterior, good, k, more / models))
        return cls(likely, careful)


def most_right(validation: ValidationRows, alone: Combined) -> float:
    """The upper bound of the share of given labels that are right.

    Args:
        validation: The clean rows.
        alone: P(y | x), learnt without the given label of a noisy row and the clean label of a clean one.
    """
    observed = validation.observed
    noisy = np.flatnonzero((observed.given != MISSING) & (observed.clean == MISSING))
    counted = np.flatnonzero(~copies(observed, validation.rows))
    given = alone.final[noisy, observed.given[noisy]].astype(np.float64)
    clean = alone.oof[counted, validation.labels[counted]].astype(np.float64)
    gap = clean - _expected(alone.oof)[counted]
    return upper_bound(given, _expected(alone.final)[noisy], gap, observed.num_classes)


def upper_bound(given: Array, expected: Array, gap: Array, classes: int) -> float:
    """The upper bound of a.

    Args:
        given: The probabilities of the given labels of noisy rows [N].
        expected: What predictions expect the probability of their true labels to be [N].
        gap: The probabilities of the clean labels of clean rows, less what predictions expect [M].
        classes: C.
    """
    if not len(given) or not len(gap) or classes < 2:
        return 1.0
    right, others = float(expected.mean() + gap.mean()), 1 / (classes - 1)
    wrong = others * (1 - right)
    if right <= wrong:  # the predictions tell nothing about the label
        return 1.0
    share = (float(given.mean()) - wrong) / (right - wrong)
    slope = share - others * (1 - share)  # of a in Q, times W - Q
    error = np.hypot(_error(given - slope * expected), slope * _error(gap)) / (right - wrong)
    return float(min(max(share + ERRORS * error, 0.0), 1.0))


def _expected(q: Floats) -> Array:
    """Σ_k q_k² of every row [n]."""
    return np.einsum("nc,nc->n", q, q, dtype=np.float64)


def _error(values: Array) -> float:
    """The standard error of the mean."""
    return float(np.sqrt((values.var() * len(values) + PRIOR) / (len(values) + 1) / len(values)))
