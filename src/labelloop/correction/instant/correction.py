"""Candidates learnt from the clean rows, judged on clean rows they did not see, and combined as in Eq. 2 and 5.

Cross-fitted: every clean row teaches, and every clean row judges opinions that were formed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelloop.correction.instant.discriminant import discriminant_scores
from labelloop.correction.instant.logistic import Array
from labelloop.correction.instant.opinions import Evidence, Opinion, label_corrector, noise_model, recalibrated
from labelloop.methods.closed_loop.combination import clean_loss, combine, fit_simplex_weights
from labelloop.seeds import stream
from labelloop.types import MISSING, Floats, Labels

FOLDS = 5
SAMPLE = 5000  # noisy rows that the noise model looks at: more change nothing and take time
FLOOR = 1e-5  # of a probability, before its logarithm
MIN_PAIRS = 20  # fewer cannot judge what given labels are worth
DUST = 1e-6  # a weight that the solver leaves in place of zero

STRENGTHS = (3, 30)  # how firmly scores are believed as they are; more values than two changed nothing

Candidate = Callable[[Evidence, Labels], Opinion]

# Of each family the setting with the best cross-fitted loss is kept; the combination weighs the families.
SCORES_ONLY: dict[str, list[Candidate]] = {
    "recalibrated": [partial(recalibrated, strength=s) for s in STRENGTHS],
}
WITH_GIVEN: dict[str, list[Candidate]] = {
    "label corrector": [partial(label_corrector, strength=s, given_strength=g) for s in STRENGTHS for g in (0.5, 2)],
}
NOISE_MODELS: dict[str, list[Candidate]] = {
    "noise model": [partial(noise_model, influence=1, strength=s) for s in STRENGTHS],
    "noise model, mostly noisy rows": [partial(noise_model, influence=10, strength=s) for s in STRENGTHS],
}


@dataclass(frozen=True)
class Corrected:
    """What instant correction hands back.

    Attributes:
        targets: Corrected soft labels of all rows [n, C].
        predicted: The same from the scores alone, as if no row had a given label [n, C].
        weights: The weight of every component for rows with a given label.
        weights_without_label: The same for rows without one.
        cross_fitted: What `targets` would be for clean rows by opinions and weights formed without the row; NaN in
            other rows [n, C].
        scores: The log-probabilities that all of it is made from [n, E].
    """

    targets: Floats
    predicted: Floats
    weights: dict[str, float]
    weights_without_label: dict[str, float]
    cross_fitted: Floats
    scores: Array


def correct_labels(
    given: Labels,
    clean: Labels,
    num_classes: int,
    *,
    pred_probs: Floats | None = None,
    embeddings: Floats | None = None,
    seed: int = 0,
) -> Corrected:
    """Corrects labels without training a network.

    Without MIN_PAIRS paired clean rows nothing can tell what a given label is worth, so all are ignored.

    Args:
        given: Given labels [n], -1 where missing.
        clean: Verified labels [n], -1 where missing; at least two rows have one.
        num_classes: C.
        pred_probs: Out-of-sample probabilities [n, C].
        embeddings: Features [n, D].
        seed: Deals rows into folds and draws the noisy rows that the noise model looks at.
    """
    sources = []
    if pred_probs is not None:
        sources.append(np.log(np.maximum(pred_probs, FLOOR)))
    if embeddings is not None:
        sources.append(discriminant_scores(embeddings, given, num_classes, stream(seed, "discriminant-folds")))
    return correct_scores(side_by_side(sources), given, clean, num_classes, seed)


def side_by_side(sources: Sequence[NDArray]) -> NDArray:
    """Log-probabilities of several sources as one [n, E], each row of each centred."""
    return np.hstack([source - source.mean(axis=1, keepdims=True) for source in sources])


def correct_scores(scores: Array, given: Labels, clean: Labels, num_classes: int, seed: int = 0) -> Corrected:
    """The same from log-probabilities of one or more sources side by side [n, E]."""
    noisy = np.flatnonzero((given != MISSING) & (clean == MISSING))
    evidence = Evidence(
        scores=np.hstack([scores, np.ones((len(given), 1))]).astype(np.float64),
        given=given,
        clean=clean,
        sample=np.sort(stream(seed, "noisy-sample").permutation(noisy)[:SAMPLE]),
        num_classes=num_classes,
    )
    verified = np.flatnonzero(clean != MISSING)
    paired = given[verified] != MISSING  # [M]
    fold = deal(clean[verified] + num_classes * paired, stream(seed, "clean-folds"))  # [M]
    trials = {
        name: [_Trial(candidate, _fit_folds(candidate, evidence, verified, fold)) for candidate in candidates]
        for name, candidates in (SCORES_ONLY | WITH_GIVEN | NOISE_MODELS).items()
    }
    families = SCORES_ONLY | NOISE_MODELS
    every = np.ones(len(verified), bool)
    free = _combination(evidence, verified, fold, every, {n: trials[n] for n in families}, use_given=False)
    targets, cross_fitted, weights = free.targets, free.cross_fitted, free.weights
    if paired.sum() >= MIN_PAIRS:
        whole = _combination(evidence, verified, fold, paired, trials, use_given=True)
        labelled = (given != MISSING)[:, None]
        targets = np.where(labelled, whole.targets, free.targets)
        cross_fitted = np.where(labelled, whole.cross_fitted, free.cross_fitted)
        weights = whole.weights
    absent = np.bincount(clean[verified], minlength=num_classes) == 0  # [C]
    kept = Opinion(evidence.centre, np.zeros((num_classes, num_classes)))
    as_they_are = kept.about(evidence, np.arange(len(given)), use_given=False) * absent  # [n, C]
    return Corrected(
        targets=_keep_absent(targets, as_they_are),
        predicted=_keep_absent(free.targets, as_they_are),
        weights=weights,
        weights_without_label=free.weights,
        cross_fitted=_keep_absent(cross_fitted, as_they_are),
        scores=scores,
    )


def _keep_absent(targets: Floats, as_they_are: Floats) -> Floats:
    """Leaves classes without a clean row to the scores, since nothing that was learnt is about them."""
    if not as_they_are.any():
        return targets
    others = np.where(as_they_are > 0, 0, targets)
    share = 1 - as_they_are.sum(axis=1, keepdims=True)
    return as_they_are + share * others / np.maximum(others.sum(axis=1, keepdims=True), 1e-12)


def deal(groups: Labels, rng: np.random.Generator, folds: int = FOLDS) -> Labels:
    """Deals rows into folds so that every fold has its share of every group [M]."""
    order = np.lexsort((rng.random(len(groups)), groups))
    fold = np.empty(len(groups), np.int64)
    fold[order] = np.arange(len(groups)) % min(folds, len(groups))
    return fold


@dataclass(frozen=True)
class _Trial:
    """A candidate, and the opinions it forms without each fold in turn."""

    candidate: Candidate
    without: list[Opinion]


def _fit_folds(candidate: Candidate, evidence: Evidence, verified: Labels, fold: Labels) -> list[Opinion]:
    return [candidate(evidence, verified[fold != k]) for k in range(fold.max() + 1)]


@dataclass(frozen=True)
class _Combination:
    targets: Floats  # [n, C]
    cross_fitted: Floats  # [n, C]
    weights: dict[str, float]


def _combination(
    evidence: Evidence,
    verified: Labels,
    fold: Labels,
    judges: NDArray[np.bool_],
    families: Mapping[str, Sequence[_Trial]],
    *,
    use_given: bool,
) -> _Combination:
    """Keeps the best candidate of each family and weighs the families, both by what the judges say.

    Args:
        evidence: What is known.
        verified: Positions of the clean rows [M].
        fold: Their folds [M].
        judges: Which of them judge [M].
        families: The trials of every family.
        use_given: Whether opinions may look at the given label.
    """
    rows, fold = verified[judges], fold[judges]  # [m]
    labels = evidence.clean[rows]
    chosen, unseen = [], []  # a family each: its candidate, and what that says of the rows it did not see [m, C]
    for trials in families.values():
        said = [_unseen(trial, evidence, rows, fold, use_given) for trial in trials]
        best = int(np.argmin([clean_loss([p], labels, np.ones(1)) for p in said]))
        chosen.append(trials[best].candidate)
        unseen.append(said[best])
    weights = fit_simplex_weights(unseen, labels)
    weights = np.where(weights < DUST, 0, weights) / weights[weights >= DUST].sum()
    used = np.flatnonzero(weights)
    everything = np.arange(len(evidence.given))
    final = [chosen[j](evidence, verified).about(evidence, everything, use_given=use_given) for j in used]
    targets = combine(final, weights[used])
    cross_fitted = np.full_like(targets, np.nan)
    for k in np.unique(fold):  # the weights, too, are formed without the row
        others = fold != k
        without = fit_simplex_weights([p[others] for p in unseen], labels[others]) if others.any() else weights
        cross_fitted[rows[~others]] = combine([p[~others] for p in unseen], without)
    return _Combination(targets, cross_fitted, dict(zip(families, weights.tolist(), strict=True)))


def _unseen(trial: _Trial, evidence: Evidence, rows: Labels, fold: Labels, use_given: bool) -> Floats:
    """What a candidate says of every row without having seen its clean label [m, C]."""
    said = np.empty((len(rows), evidence.num_classes), np.float32)
    for k, opinion in enumerate(trial.without):
        said[fold == k] = opinion.about(evidence, rows[fold == k], use_given=use_given)
    return said
