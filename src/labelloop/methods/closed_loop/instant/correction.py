"""Candidates learnt from the clean rows, judged on clean rows they have not seen, and combined as in Eq. 2 and 5.

All of this is cross-fitted: every clean row is learnt from, and judges only fits that were made without it. Rows are
labelled in four steps: predict the true label from the inputs alone; teach learners of the inputs once more with the
labels that follow (again.py); estimate the noise and add what the given label says (noise.py); and change
a given label only where the clean rows show that changes help (guard.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.large_arrays import put
from labelloop.methods.closed_loop.instant.again import teach_again
from labelloop.methods.closed_loop.instant.changes import look_at_changes
from labelloop.methods.closed_loop.instant.clean_only import clean_forest, clean_logistic
from labelloop.methods.closed_loop.instant.components import (
    Candidate,
    Combined,
    Component,
    Judges,
    best_of_each,
    combination,
)
from labelloop.methods.closed_loop.instant.evidence import Evidence, Inputs
from labelloop.methods.closed_loop.instant.noise import Noise, estimate_noise, flatten, least_sharp
from labelloop.methods.closed_loop.instant.opinions import as_they_are, label_corrector, noise_model, recalibrated
from labelloop.methods.closed_loop.instant.pairs import ENOUGH, MIN_PAIRS
from labelloop.methods.closed_loop.instant.structured import ALIKE, structured
from labelloop.methods.closed_loop.learners.logistic import MANY
from labelloop.seeds import stream
from labelloop.types import MISSING, Floats, Labels

SAMPLE = 5000  # noisy rows that noise models are fitted to: more change nothing and take time
MOST_SAMPLED = 20_000  # where a noise matrix has more entries than SAMPLE, as many rows as entries, up to this

STRENGTHS = (3, 30)  # of the penalty that pulls towards the scores as they are; more than two values changed nothing


NOISE_MODELS: dict[str, list[Candidate]] = {  # used with and without the given label
    "noise model": [partial(noise_model, influence=1, strength=s) for s in STRENGTHS],
    "noise model, mostly noisy rows": [partial(noise_model, influence=10, strength=s) for s in STRENGTHS],
}


@dataclass(frozen=True)
class Corrected:
    """What instant correction returns.

    Attributes:
        targets: Corrected soft labels of all rows [n, C].
        predicted: The same without the given labels, as if no row had one [n, C].
        weights: The weight of every component for rows with a given label.
        weights_without_label: The same for rows without one.
        cross_fitted: `targets` of the clean rows, with components and weights fitted without the row; NaN in other
            rows [n, C].
        expected_right: For clean rows without a given label, the probability that they would be right with a label
            drawn from each noise model; NaN in other rows [n, K].
        scores: The log-probabilities that all of this is made from [n, E].
        guard: What the guard decided, and how sure that is, for run.json.
    """

    targets: Floats
    predicted: Floats
    weights: dict[str, float]
    weights_without_label: dict[str, float]
    cross_fitted: Floats
    expected_right: Floats
    scores: NDArray[np.floating]
    guard: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """Soft labels before the guard.

    Attributes:
        noise: How labels go wrong, with the clean rows that judge.
        said: Soft labels of all rows, and cross-fitted ones of the judges.
        alone: The same from the noise model alone.
        q: P(y | x) of all rows, without their given labels [n, C].
        q_unseen: The same for the judges, learnt without them; flatter if there are few pairs [M, C].
        weights_without_label: The weight of every component of q.
        enough_pairs: Whether pairs show what a given label is worth; if not, labels are simulated for the judges.
    """

    noise: Noise
    said: Combined
    alone: Combined
    q: Floats
    q_unseen: Floats
    weights_without_label: dict[str, float]
    enough_pairs: bool

    def of_judges(self, labels: Labels) -> Floats:
        """Soft labels of the judges, learnt without them, if these were their given labels [M, C]."""
        believed = self.noise.believed(self.q_unseen, labels)
        paired = self.noise.judges.given != MISSING  # the noise is estimated without their own pair
        believed[paired] = self.said.unseen[paired]
        return believed


def families_without_given(evidence: Evidence) -> dict[str, list[Candidate]]:
    """Ways to predict the true label from the inputs alone; the best candidate of each family is kept.

    With many classes, only models with few parameters are fitted.
    """
    found: dict[str, list[Candidate]] = {
        "recalibrated": [partial(structured, strength=s, use_given=False) for s in ALIKE]
    }
    if evidence.num_classes <= MANY:
        found["recalibrated by class"] = [partial(recalibrated, strength=s) for s in STRENGTHS]
        found |= NOISE_MODELS
    if evidence.inputs is not None:
        found["clean rows, logistic"] = [partial(clean_logistic, strength=s) for s in (0.01, 0.1, 1.0)]
        if evidence.table and evidence.num_classes <= MANY:
            found["clean rows, forest"] = [clean_forest]
    return found


def families_with_given(evidence: Evidence) -> dict[str, list[Candidate]]:
    """Ways to predict the true label from the inputs and the given label, learnt from paired rows."""
    found: dict[str, list[Candidate]] = {
        "label corrector": [partial(structured, strength=s, use_given=True) for s in ALIKE]
    }
    if evidence.num_classes <= MANY:
        found["label corrector by class"] = [
            partial(label_corrector, strength=s, given_strength=g) for s in STRENGTHS for g in (0.5, 2)
        ]
        found |= NOISE_MODELS
    return found


def correct_scores(
    scores: NDArray[np.floating],
    given: Labels,
    clean: Labels,
    num_classes: int,
    seed: int = 0,
    *,
    inputs: Inputs | None = None,
    by_row: bool = True,
) -> Corrected:
    """Corrects labels from log-probabilities of one or more sources side by side; arguments as in `answer_scores`."""
    return guarded(answer_scores(scores, given, clean, num_classes, seed, inputs=inputs, by_row=by_row))


def answer_scores(
    scores: NDArray[np.floating],
    given: Labels,
    clean: Labels,
    num_classes: int,
    seed: int = 0,
    *,
    inputs: Inputs | None = None,
    by_row: bool = True,
) -> Answer:
    """Soft labels before the guard, from log-probabilities of one or more sources side by side.

    Args:
        scores: As `side_by_side` makes them [n, E].
        given: Given labels [n], -1 where missing.
        clean: Clean labels [n], -1 where missing; at least two rows have one.
        num_classes: C.
        seed: Deals rows into folds and draws the noisy rows that noise models are fitted to.
        inputs: The rows themselves, for learners of the clean rows and of corrected labels.
        by_row: Whether noise may depend on the row as well as on the class.
    """
    noisy = np.flatnonzero((given != MISSING) & (clean == MISSING))
    evidence = Evidence(
        scores=scores,
        given=given,
        clean=clean,
        sample=np.sort(stream(seed, "noisy-sample").permutation(noisy)[: _sample_size(num_classes)]),
        num_classes=num_classes,
        inputs=None if inputs is None else inputs.rows,
        table=inputs is not None and inputs.table,
        seed=seed,
    )
    judges = Judges.all_clean(evidence, stream(seed, "clean-folds"))
    learnt = best_of_each(judges, families_without_given(evidence), use_given=False)
    q = _keep_absent(combination(judges, learnt), judges)
    pairs = int((judges.given != MISSING).sum())
    if inputs is not None and inputs.again and len(judges.rows) >= ENOUGH:
        taught = estimate_noise(judges, q.final, by_row=by_row).pooled(q)
        q = _keep_absent(teach_again(judges, q, taught), judges)
    flat = _cautious(q, judges, pairs)
    noise = estimate_noise(judges, flat.final, by_row=by_row)
    said = alone = noise.pooled(flat)
    if pairs >= MIN_PAIRS:
        said = _taught_by_pairs(noise, q)
    return Answer(noise, said, alone, q.final, flat.unseen, q.weights, pairs >= MIN_PAIRS)


def _cautious(q: Combined, judges: Judges, pairs: int) -> Combined:
    """q as flat as the clean rows allow, where there are too few pairs to show what a given label is worth."""
    power = 1.0 if pairs >= MIN_PAIRS else least_sharp(q.unseen, judges.labels)
    return q.changed(judges, lambda said, rows: flatten(said, power))


def _sample_size(num_classes: int) -> int:
    return max(SAMPLE, min(num_classes**2, MOST_SAMPLED))


def guarded(answer: Answer) -> Corrected:
    """The labels to return: a given label is changed only where the clean rows show that changes help."""
    judges, said = answer.noise.judges, answer.said
    evidence = judges.evidence
    given, count = evidence.given, len(evidence.given)
    changes = look_at_changes(
        answer.noise, said, answer.alone, answer.q_unseen,
        simulate=not answer.enough_pairs, rng=stream(evidence.seed, "simulated-labels"),
    )  # fmt: skip
    targets = changes.guard.apply(said.final, given, answer.alone.final)
    targets = changes.guard.give_back(targets, said.final, given, changes.erased)
    return Corrected(
        targets=targets,
        predicted=answer.q,
        weights=said.weights,
        weights_without_label=answer.weights_without_label,
        cross_fitted=_in_rows(changes.cross_fitted, judges.rows, count),
        expected_right=_in_rows(changes.expected_right, judges.rows, count),
        scores=evidence.scores,
        guard=changes.record(said.final, targets, given, evidence.clean),
    )


def _taught_by_pairs(noise: Noise, q: Combined) -> Combined:
    """What paired rows teach about given labels, combined with the noise models and with the inputs alone.

    Args:
        noise: How labels go wrong.
        q: P(y | x).
    """
    judges, evidence = noise.judges, noise.judges.evidence
    paired = judges.given != MISSING  # [M]
    pairs = judges.among(paired)
    fixed = [*noise.components(q), Component("inputs alone", q.unseen, q.about)]
    learnt = best_of_each(pairs, families_with_given(evidence), use_given=True)
    whole = combination(pairs, [*learnt, *(component.among(paired) for component in fixed)])
    whole = _keep_absent(whole, pairs)
    final, unlabelled = whole.final, np.flatnonzero(evidence.given == MISSING)
    put(final, unlabelled, q.final[unlabelled])
    unseen = q.unseen.copy()
    unseen[paired] = whole.unseen
    return Combined(final, unseen, whole.weights, whole.without)


def _in_rows(values: Floats, rows: Labels, count: int) -> Floats:
    out = np.full((count, values.shape[1]), np.nan, np.float32)
    out[rows] = values
    return out


def _keep_absent(said: Combined, judges: Judges) -> Combined:
    """Takes classes without a clean row from the scores, since nothing was learnt about them."""
    evidence = judges.evidence
    absent = np.bincount(evidence.clean[evidence.clean != MISSING], minlength=evidence.num_classes) == 0  # [C]
    if not absent.any():
        return said
    kept = as_they_are(evidence, judges.rows)

    def mixed(some: Floats, rows: Labels) -> Floats:
        mine = kept.about(evidence, rows, use_given=False) * absent  # [m, C]
        others = np.where(absent, 0, some)
        share = 1 - mine.sum(axis=1, keepdims=True)
        return mine + share * others / np.maximum(others.sum(axis=1, keepdims=True), 1e-12)

    return said.changed(judges, mixed)
