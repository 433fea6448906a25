"""From scores, given labels and clean rows to corrected labels, with calibrators combined as in Eq. 2 and 5.

All of this is cross-fitted: every clean row is used for fitting, and validates only fits that were made without it.
There are four steps: predict the true label from the inputs alone; retrain learners of the inputs on the resulting
labels (self_training.py); estimate the noise and add the evidence of the given label (noise_posterior.py); and change a
given label only where the clean rows show that changes help (guard.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from labelloop.large_arrays import by_chunks
from labelloop.relabel.calibration import (
    OF_ANY_CLASS,
    CleanOnly,
    Inputs,
    Observations,
    families_with_given,
    families_without_given,
    side_by_side,
)
from labelloop.relabel.evidence import Changes, look_at_changes
from labelloop.relabel.guard import KEEP_ALL, keep_given
from labelloop.relabel.learners import column_scores
from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.noise_posterior import Noise, estimate_noise
from labelloop.relabel.sample import MIN_PAIRS, differ, largest_if_absent, paired_once
from labelloop.relabel.self_training import self_train
from labelloop.relabel.stacking import (
    EVERYBODY,
    Combined,
    Component,
    ValidationRows,
    Weights,
    best_of_each,
    combination,
    combine,
)
from labelloop.seeds import stream
from labelloop.splits import one_hot
from labelloop.types import FLOOR, MISSING, Floats, Labels

NEWEST = np.array([0.0, 1.0])  # the weights of a single round: the given labels are in it

ENOUGH = 20  # clean rows, to choose among learners

LEAST_LOG_ODDS = -10.0  # by which a class without a clean row becomes rarer at most
SAMPLE = 5000  # noisy rows that noise models are fitted to: more change nothing and take time
MOST_SAMPLED = 20_000  # where a noise matrix has more entries than SAMPLE, as many rows as entries, up to this


@dataclass(frozen=True)
class Corrected:
    """What relabelling returns.

    Attributes:
        targets: Corrected soft labels of all rows [n, C].
        predicted: The same without the given labels, as if no row had one [n, C].
        weights: The weight of every component for rows with a given label.
        weights_without_label: The same for rows without one.
        cross_fitted: `targets` of the clean rows, with components and weights fitted without the row; NaN in other
            rows [n, C].
        expected_right: For clean rows without a given label, the probability that they would be right with a label
            drawn from each noise model; NaN in other rows [n, K].
        judged: The returned label and its probability before the guard, the likeliest class by the inputs alone and its
            probability; of clean rows, learnt without them; and whether the row counts: 0 for a copy of another clean
            row [n, 5].
        scores: The log-probabilities that all of this is made from [n, E].
        guard: What the guard decided, and how sure it is, for run.json.
        notes: What is wrong with the clean rows as a sample, for the estimate.
    """

    targets: Floats
    predicted: Floats
    weights: dict[str, float]
    weights_without_label: dict[str, float]
    cross_fitted: Floats
    expected_right: Floats
    judged: Floats
    scores: NDArray[np.floating]
    guard: dict[str, Any]
    notes: tuple[str, ...]

    def counted(self, rows: Labels) -> Labels:
        """Those of some clean rows that count: all but copies."""
        return rows[self.judged[rows, 4] > 0]


@dataclass(frozen=True)
class Relabelled:
    """Soft labels before the guard.

    Attributes:
        noise: How labels go wrong, with the validation rows.
        posterior: Soft labels of all rows, and cross-fitted ones of the validation rows.
        noise_only: The same from the noise model alone.
        q: P(y | x), without given labels.
        enough_pairs: Whether pairs show what a given label is worth; if not, validation rows get simulated ones.
    """

    noise: Noise
    posterior: Combined
    noise_only: Combined
    q: Combined
    enough_pairs: bool

    def if_given(self, rows: Labels, labels: Labels) -> Floats:
        """Soft labels of some rows, none of them a clean row that was learnt from, if these were given [m, C]."""
        found = self.noise.posterior_given(rows, self.q.final[rows], labels)
        own = self.noise.validation.observed.given[rows] == labels  # what pairs teach applies to real labels only
        found[own] = self.posterior.final[rows[own]]
        return found


def correct_scores(
    scores: NDArray[np.floating],
    given: Labels,
    clean: Labels,
    num_classes: int,
    seed: int = 0,
    *,
    inputs: Inputs | None = None,
) -> Corrected:
    """Corrects labels from log-probabilities of one or more sources side by side; arguments as in `relabel`."""
    return guarded([relabel(scores, given, clean, num_classes, seed, inputs=inputs)])


def relabel(
    scores: NDArray[np.floating],
    given: Labels,
    clean: Labels,
    num_classes: int,
    seed: int = 0,
    *,
    inputs: Inputs | None = None,
    clean_fits: dict[Any, Any] | None = None,
    first_scores: NDArray[np.floating] | None = None,
) -> Relabelled:
    """Soft labels before the guard, from log-probabilities of one or more sources side by side.

    Args:
        scores: As `side_by_side` makes them [n, E].
        given: Given labels [n], -1 where missing.
        clean: Clean labels [n], -1 where missing; at least two rows have one.
        num_classes: C.
        seed: Deals rows into folds and draws the noisy rows that noise models are fitted to.
        inputs: The rows themselves, for learners of the clean rows and of corrected labels.
        clean_fits: Learners of the clean rows alone from an earlier round of the same rows, which are used again; those
            of this round are added.
        first_scores: The scores of the first round, whose learners the given labels taught; None if it is this one.
    """
    noisy = np.flatnonzero((given != MISSING) & (clean == MISSING))
    observed = Observations(
        scores=scores,
        given=given,
        clean=clean,
        sample=np.sort(stream(seed, "noisy-sample").permutation(noisy)[: _sample_size(num_classes)]),
        num_classes=num_classes,
        inputs=None if inputs is None else inputs.rows,
        table=inputs is not None and inputs.table,
        seed=seed,
        first_scores=first_scores,
    )
    observed = replace(observed, given=paired_once(observed))
    validation = ValidationRows.all_clean(observed, stream(seed, "clean-folds"))
    validation.learnt.update(clean_fits or {})
    learnt = best_of_each(validation, families_without_given(observed), use_given=False)
    q = _keep_absent(combination(validation, learnt), validation)
    if clean_fits is not None:
        clean_fits |= {key: fit for key, fit in validation.learnt.items() if isinstance(fit, CleanOnly)}
    pairs = int((validation.given != MISSING).sum())
    if inputs is not None and len(validation.rows) >= ENOUGH:
        taught = estimate_noise(validation, q.final).posterior(q)
        q = _keep_absent(self_train(validation, q, taught), validation)
    noise = estimate_noise(validation, q.final)
    posterior = noise_only = noise.posterior(q)
    if pairs >= MIN_PAIRS:
        posterior = _taught_by_pairs(noise, q)
    return Relabelled(noise, posterior, noise_only, q, pairs >= MIN_PAIRS)


def _sample_size(num_classes: int) -> int:
    return max(SAMPLE, min(num_classes**2, MOST_SAMPLED))


def guarded(rounds: Sequence[Relabelled], weights: Weights = NEWEST) -> Corrected:
    """The labels to return: a given label is changed only where the clean rows show that changes help.

    Args:
        rounds: Soft labels of every round, the newest last.
        weights: Of the given labels and of every round, as Eq. 5 found them [1 + K].
    """
    last = rounds[-1]
    validation = last.noise.validation
    observed = validation.observed
    given, count = observed.given, len(observed.given)

    def mixed(labels: Labels, parts: Sequence[Floats]) -> Floats:
        return combine([given_or(labels, parts[-1]) if weights[0] > 0 else parts[-1], *parts], weights)

    posterior, noise_only = (
        replace(
            part(last),
            final=mixed(given, [part(one).final for one in rounds]),
            oof=mixed(validation.given, [part(one).oof for one in rounds]),
        )
        for part in (lambda one: one.posterior, lambda one: one.noise_only)
    )
    changes = look_at_changes(
        last.noise, posterior, noise_only, last.q,
        lambda labels: mixed(labels, [one.noise.posterior_given(validation.rows, one.q.oof, labels) for one in rounds]),
        simulate=not last.enough_pairs, rng=stream(observed.seed, "simulated-labels"),
    )  # fmt: skip

    def returned(rows: slice) -> Floats:
        return changes.guard.apply(posterior.final[rows], given[rows], noise_only.final[rows], last.q.final[rows])

    targets = by_chunks(returned, posterior.final.shape)
    back, least = changes.guard.given_back(targets, posterior.final, given, changes.erased, last.noise.log_p)
    targets[back] = keep_given(targets[back], np.arange(len(back)), given[back])
    changes = changes.given_back(posterior.oof, validation.given, least)
    return Corrected(
        targets=targets,
        predicted=last.q.final,
        weights=posterior.weights,
        weights_without_label=last.q.weights,
        cross_fitted=_in_rows(changes.cross_fitted, validation.rows, count),
        expected_right=_in_rows(changes.expected_right, validation.rows, count),
        judged=_judged(targets, posterior, changes, last),
        scores=observed.scores,
        guard=changes.record(posterior.final, targets, given, observed.clean),
        notes=_about_sample(validation),
    )


def _about_sample(validation: ValidationRows) -> tuple[str, ...]:
    """What is wrong with the clean rows as a sample, as sentences."""
    again = int((~validation.counted).sum())
    alike = f"{again} clean rows are copies of others and are not counted" if again else None
    return tuple(note for note in (differ(validation.observed, validation.rows), alike) if note)


def _judged(targets: Floats, posterior: Combined, changes: Changes, last: Relabelled) -> Floats:
    """What the certificate needs to know about every row, as certificate.COLUMNS names it [n, 5]."""
    from_alone = (
        changes.guard.alone_above < KEEP_ALL
    )  # labels that come from the inputs alone are as likely as those say

    def columns(labels: Labels, soft: Floats, q: Floats, counts: NDArray) -> Floats:
        alone = q.argmax(axis=1)
        support = np.where((labels == alone) & from_alone, _of(q, alone), _of(soft, labels))
        return np.stack([labels, support, alone, _of(q, alone), counts], axis=1).astype(np.float32)

    def of_rows(rows: slice) -> Floats:
        labels = targets[rows].argmax(axis=1)
        return columns(labels, posterior.final[rows], last.q.final[rows], np.ones(len(labels)))

    found, validation = by_chunks(of_rows, (len(targets), 5)), last.noise.validation
    of_clean = changes.cross_fitted.argmax(axis=1)
    found[validation.rows] = columns(of_clean, posterior.oof, last.q.oof, validation.counted)
    return found


def _of(soft: Floats, labels: Labels) -> Floats:
    return soft[np.arange(len(labels)), labels]


def given_or(given: Labels, soft: Floats) -> Floats:
    """One-hot given labels [n, C], and soft labels in rows without one."""
    missing = np.flatnonzero(given == MISSING)
    labels = one_hot(given, soft.shape[1])
    labels[missing] = soft[missing]
    return labels


def _taught_by_pairs(noise: Noise, q: Combined) -> Combined:
    """What paired rows teach about given labels, combined with the noise models and with the inputs alone.

    Args:
        noise: How labels go wrong.
        q: P(y | x).
    """
    validation, observed = noise.validation, noise.validation.observed
    paired = validation.given != MISSING  # [M]
    pairs = validation.among(paired)
    fixed = [*noise.components(q), Component("inputs alone", q.oof, q.predict)]
    learnt = best_of_each(pairs, families_with_given(observed), use_given=True)
    whole = combination(pairs, [*learnt, *(component.among(paired) for component in fixed)])
    whole = _keep_absent(whole, pairs, use_given=True)
    final, unlabelled = whole.final, np.flatnonzero(observed.given == MISSING)
    final[unlabelled] = q.final[unlabelled]
    oof = q.oof.copy()
    oof[paired] = whole.oof
    return Combined(final, oof, whole.weights, whole.without)


def _in_rows(values: Floats, rows: Labels, count: int) -> Floats:
    out = np.full((count, values.shape[1]), np.nan, np.float32)
    out[rows] = values
    return out


def _keep_absent(posterior: Combined, validation: ValidationRows, use_given: bool = False) -> Combined:
    """Predicts classes without a clean row by what the clean rows of all others teach.

    A fit to rows that lack a class makes it too rare; but pairs without it also show how rare it is at least. A clean
    row is predicted without its fold, so classes that only its fold has are among them.

    Args:
        posterior: Predictions of all classes.
        validation: The clean rows.
        use_given: Whether the predictions use given labels.
    """
    observed = validation.observed
    labels = observed.clean[validation.clean_rows]
    absent = {
        k: np.bincount(labels[validation.clean_fold != k], minlength=observed.num_classes) == 0  # [C]
        for k in (EVERYBODY, *validation.folds)
    }
    if not any(some.any() for some in absent.values()):
        return posterior

    def own(rows: Labels, fold: int) -> Floats:
        return validation.fitted(OF_ANY_CLASS[use_given], fold).predict(observed, rows, use_given=use_given)  # [m, C]

    odds = {}
    for k, some in absent.items():
        if some.any():
            most = largest_if_absent(observed, validation.clean_rows[validation.clean_fold != k])
            odds[k] = np.where(some, at_most_on_average(own(observed.sample, k), most), 1.0)  # [C]

    def mixed(some: Floats, rows: Labels, fold: int) -> Floats:
        if fold not in odds:
            return some
        p = own(rows, fold)
        rarer = np.where(odds[fold] < 1, p * odds[fold] / (p * odds[fold] + 1 - p), p)
        mine, others = rarer * absent[fold], np.where(absent[fold], 0, some)
        share, total = 1 - mine.sum(axis=1, keepdims=True), others.sum(axis=1, keepdims=True)
        shared = mine + share * others / np.maximum(total, 1e-12)
        return np.where(total > 1e-12, shared, p)  # nothing to share out where `some` is sure of an absent class

    return posterior.changed(validation, mixed)


def at_most_on_average(p: Floats, most: Array) -> Array:
    """What to multiply the odds of every class by, so that its mean probability is not above a limit [C]; at most 1.

    Args:
        p: Probabilities of some rows [m, C].
        most: The limits [C].
    """
    p, factor = p.astype(np.float64), np.ones(p.shape[1])

    def excess(log_odds: float, k: int) -> float:
        return float((p[:, k] / (p[:, k] + (1 - p[:, k]) * np.exp(-log_odds))).mean() - most[k])

    for k in np.flatnonzero(p.mean(axis=0) > most).tolist() if len(p) else ():
        least = excess(LEAST_LOG_ODDS, k) < 0
        factor[k] = np.exp(brentq(excess, LEAST_LOG_ODDS, 0.0, args=(k,)) if least else LEAST_LOG_ODDS)
    return factor


def correct_labels(
    given: Labels,
    clean: Labels,
    num_classes: int,
    *,
    pred_probs: Floats | None = None,
    embeddings: Floats | None = None,
    table: bool = False,
    seed: int = 0,
) -> Corrected:
    """Corrects labels without training a network.

    Args:
        given: Given labels [n], -1 where missing.
        clean: Clean labels [n], -1 where missing; at least two rows have one.
        num_classes: C.
        pred_probs: Out-of-sample probabilities [n, C].
        embeddings: Features [n, D].
        table: Whether the features are columns of a table, which suit trees.
        seed: Deals rows into folds and draws the noisy rows that noise models are fitted to.
    """
    sources = []
    if pred_probs is not None:
        p = pred_probs
        sources.append(by_chunks(lambda rows: np.log(np.maximum(p[rows], FLOOR)), p.shape, p.dtype))
    if embeddings is not None:
        given = paired_once(Observations(embeddings, given, clean, clean, num_classes, seed=seed))
        sources += column_scores(embeddings, given, num_classes, table, seed)
    scores = side_by_side(sources, np.float32)  # as a run stores them
    inputs = None if embeddings is None else Inputs(embeddings, table)
    return correct_scores(scores, given, clean, num_classes, seed, inputs=inputs)
