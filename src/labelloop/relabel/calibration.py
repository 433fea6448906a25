"""Calibrators: models of a row's true label given scores and its given label, learnt from clean rows.

The linear ones have the form logits = scores · weights + (a row of numbers for the given label), so they can be
compared, combined, and applied to rows without a given label. One has few parameters, for a handful of clean rows or
hundreds of classes:

logit_k = Σ_s (τ_s + δ_sk) · score_sk + b_k + (γ + ε_k) · [k is the given label]

Temperatures τ and the worth γ of a given label are shared by all classes; δ, b and ε are deviations of a single class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from labelloop.large_arrays import by_chunks, mean_and_deviation
from labelloop.relabel.learners.logistic import MANY, Array, descend, fit_logistic, log_softmax, precision
from labelloop.relabel.learners.trees import grow, votes
from labelloop.types import MISSING, Floats, Labels

# The penalty on the weight of the constant column, so that a class without clean rows stays possible.
CONSTANT_STRENGTH = 0.1

# Prior rows for each row of the noise matrix; they make the given label uninformative.
PRIOR_ROWS = 5.0

TEMPERATURE_STRENGTH = 1.0  # of the penalty that pulls τ towards the scores as they are
BIAS_STRENGTH = 1.0  # of that on b, towards 0
WORTH_STRENGTH = 0.3  # of that on γ, towards its value when the share RIGHT of the labels is right
ALIKE = (1, 30)  # of the penalty that pulls classes towards each other; the clean rows choose
RIGHT = 0.7  # the prior share of labels that are right
STRENGTHS = (3, 30)  # of the penalty that pulls towards the scores as they are; more than two values changed nothing
TREES = 100  # of a forest of the clean rows
FOREST_PRIOR = 3.0  # prior rows, spread over all classes, that keep a forest of a few rows from overconfidence


@dataclass(frozen=True)
class Inputs:
    """The rows themselves, for learners.

    Attributes:
        rows: Numbers [n, D].
        table: Whether they are columns of a table, which suit trees.
    """

    rows: Floats
    table: bool = False


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of every column of all rows [D]."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, inputs: Floats) -> Scale:
        """Mean and deviation of these rows."""
        mean, deviation = mean_and_deviation(inputs)
        return cls(mean, np.maximum(deviation, 1e-6))

    def standardised(self, inputs: Floats) -> Array:
        """Standardised columns [n, D]."""
        return ((inputs - self.mean) / self.deviation).clip(-10, 10)

    def with_constant(self, inputs: Floats) -> Array:
        """The same and a last column of ones [n, D + 1], so that a penalty means the same for any D."""
        x = self.standardised(inputs)
        return np.hstack([x / np.sqrt(x.shape[1]), np.ones((len(x), 1))]).astype(np.float64)


@dataclass(frozen=True)
class Observations:
    """All that is known about the rows.

    Attributes:
        scores: Log-probabilities of one or more sources side by side.
        given: Given labels, -1 where missing.
        clean: Clean labels, -1 where missing.
        sample: Positions of a sample of the rows that have only a given label.
        num_classes: C.
        inputs: The rows themselves as numbers, for learners of clean rows and corrected labels; None if not available.
        table: Whether the inputs are columns of a table, which suit trees.
        seed: For learners that use random numbers.
        first_scores: The scores of the first round, whose learners the given labels taught; None if it is this one.
        recalibrations: A cache of weights by strength and rows, so that each is fitted once.
    """

    scores: NDArray[np.floating]  # [n, E]
    given: Labels  # [n]
    clean: Labels  # [n]
    sample: Labels  # [S]
    num_classes: int
    inputs: Floats | None = None  # [n, D]
    table: bool = False
    seed: int = 0
    first_scores: NDArray[np.floating] | None = None  # [n, E]
    recalibrations: dict[tuple[float, bytes], Array] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def log_given(self, rows: Labels | slice) -> Array:
        """log P(ỹ | x) of some rows: the mean over the sources that the given labels taught [m, C]."""
        scores = self.scores if self.first_scores is None else self.first_scores
        by_source = scores[rows].astype(np.float64).reshape(-1, self.sources, self.num_classes)
        return np.mean([log_softmax(by_source[:, s]) for s in range(self.sources)], axis=0)

    @cached_property
    def scale(self) -> Scale:
        """Mean and deviation of the inputs, computed once for all learners."""
        assert self.inputs is not None
        return Scale.of(self.inputs)

    @property
    def sources(self) -> int:
        """How many sources the scores come from."""
        return self.scores.shape[1] // self.num_classes

    def columns(self, rows: Labels | slice) -> Array:
        """The scores of some rows and a last column of ones [m, E + 1]."""
        scores = self.scores[rows]
        return np.hstack([scores, np.ones((len(scores), 1))]).astype(np.float64)

    @property
    def centre(self) -> Array:
        """The weights [E + 1, C] that take the scores as they are: the geometric mean of their sources."""
        eyes = [np.eye(self.num_classes)] * self.sources
        return np.vstack([*eyes, np.zeros((1, self.num_classes))]) / max(self.sources, 1)

    def strength(self, columns: float) -> Array:
        """The penalty `columns` for every score, and a small one for the constant [E + 1]."""
        return np.append(np.full(self.scores.shape[1], columns), CONSTANT_STRENGTH)

    def one_hot(self, labels: Labels) -> Array:
        """One-hot rows [n, C]; zeros where the label is missing."""
        return np.eye(self.num_classes + 1, self.num_classes)[labels]  # -1 picks the last row, all zeros


def side_by_side(sources: Sequence[NDArray], dtype: DTypeLike | None = None) -> NDArray:
    """Log-probabilities of several sources in one array [n, E], each centred row by row."""

    def centred(rows: slice) -> NDArray:
        return np.hstack([part - part.mean(axis=1, keepdims=True) for part in (source[rows] for source in sources)])

    shape = (len(sources[0]), sum(source.shape[1] for source in sources))
    return by_chunks(centred, shape, dtype or np.result_type(*sources))


class Calibrator(Protocol):
    """A fitted predictor of the true label."""

    def predict(self, observed: Observations, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        ...


@dataclass(frozen=True)
class LinearCalibrator:
    """A fitted linear predictor of the true label."""

    weights: Array  # [E, C]
    of_given: Array  # [C given, C] what a given label adds to the logits

    def predict(self, observed: Observations, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        logits = observed.columns(rows) @ self.weights
        if use_given:
            logits += np.vstack([self.of_given, np.zeros(observed.num_classes)])[observed.given[rows]]  # -1: the zeros
        return np.exp(log_softmax(logits)).astype(np.float32)


def uncalibrated(observed: Observations, rows: Labels) -> LinearCalibrator:
    """The geometric mean of the scores: nothing is learnt from the clean rows."""
    return LinearCalibrator(observed.centre, np.zeros((observed.num_classes, observed.num_classes)))


def recalibrated(observed: Observations, rows: Labels, strength: float) -> LinearCalibrator:
    """The scores alone, recalibrated on the clean rows. The given label is ignored."""
    weights = _recalibration(observed, rows, strength)
    return LinearCalibrator(weights, np.zeros((observed.num_classes, observed.num_classes)))


def _recalibration(observed: Observations, rows: Labels, strength: float) -> Array:
    """The weights that recalibrate the scores [E, C], which noise models of the same strength start from."""
    key = (strength, rows.tobytes())
    if key not in observed.recalibrations:
        targets = observed.one_hot(observed.clean[rows])
        observed.recalibrations[key] = fit_logistic(
            observed.columns(rows), targets, observed.centre, observed.strength(strength)
        )
    return observed.recalibrations[key]


def label_corrector(observed: Observations, rows: Labels, strength: float, given_strength: float) -> LinearCalibrator:
    """The correction network without a hidden layer: predicts the true label from the given label and the scores.

    Args:
        observed: What is known about the rows.
        rows: Clean rows; only the paired ones are learnt from.
        strength: Of the penalty that pulls towards the scores as they are.
        given_strength: Of the penalty that pulls towards ignoring the given label.
    """
    c, rows = observed.num_classes, rows[observed.given[rows] != MISSING]
    x = np.hstack([observed.one_hot(observed.given[rows]), observed.columns(rows)])  # [m, C + E]
    centre = np.vstack([np.zeros((c, c)), observed.centre])
    firm = np.append(np.full(c, given_strength), observed.strength(strength))
    weights = fit_logistic(x, observed.one_hot(observed.clean[rows]), centre, firm)
    return LinearCalibrator(weights[c:], weights[:c])


def noise_model(observed: Observations, rows: Labels, influence: float, strength: float) -> LinearCalibrator:
    """Bayes with a noise matrix: p(true | x) · T[true, given], fitted jointly to clean and noisy rows.

    The likelihood of a clean row is p(true | x), times T[true, given] if it is paired. That of a noisy row is
    Σ_true p(true | x) T[true, given]. Only the matrix assumes that noise depends on nothing but the class.

    Args:
        observed: What is known about the rows.
        rows: Clean rows to learn from.
        influence: The total weight of the sampled noisy rows, as a multiple of the clean rows.
        strength: Of the penalty that pulls towards the scores as they are.
    """
    c, centre, firm = observed.num_classes, observed.centre, observed.strength(strength)[:, None]
    x, x_noisy = observed.columns(rows), observed.columns(observed.sample)
    targets, given = observed.one_hot(observed.clean[rows]), observed.given[observed.sample]
    known = observed.given[observed.given != MISSING]
    prior = PRIOR_ROWS * np.bincount(known, minlength=c) / max(len(known), 1)  # [C]
    seen = targets.T @ observed.one_hot(observed.given[rows]) + prior  # [C true, C given]
    weight = min(influence * len(rows), len(known)) / max(len(given), 1)  # of one noisy row
    given_one_hot = observed.one_hot(given)  # [S, C]
    noisy_by_column = np.ascontiguousarray(x_noisy.T)  # [E, S]: numpy works faster along long rows than across them

    def loss(flat: Array) -> tuple[float, Array]:
        weights, free = flat[: centre.size].reshape(centre.shape), flat[centre.size :].reshape(c, c)
        log_matrix = log_softmax(free)
        matrix = np.exp(log_matrix)
        log_p = log_softmax(x @ weights)  # [m, C]
        p_noisy = weights.T @ noisy_by_column  # [C, S]
        p_noisy -= p_noisy.max(axis=0)
        np.exp(p_noisy, out=p_noisy)
        p_noisy /= p_noisy.sum(axis=0)
        posterior = matrix[:, given]  # [C, S]
        posterior *= p_noisy
        likelihood = np.maximum(posterior.sum(axis=0), 1e-300)
        posterior /= likelihood
        counts = seen + weight * posterior @ given_one_hot
        away = weights - centre
        value = -(targets * log_p).sum() - weight * np.log(likelihood).sum() - (seen * log_matrix).sum()
        p_noisy -= posterior
        slope = x.T @ (np.exp(log_p) - targets) + weight * noisy_by_column @ p_noisy.T + firm * away
        slope_matrix = matrix * counts.sum(axis=1, keepdims=True) - counts
        return float(value + 0.5 * (firm * away**2).sum()), np.concatenate([slope.ravel(), slope_matrix.ravel()])

    weights = _recalibration(observed, rows, strength)
    if seen.sum() < PRIOR_ROWS * c + 1:  # no pairs: start from the matrix that the scores alone suggest
        seen_first = np.exp(log_softmax(x_noisy @ weights)).T @ given_one_hot + prior
    else:
        seen_first = seen
    start = np.log(np.maximum(seen_first / np.maximum(seen_first.sum(axis=1, keepdims=True), 1e-12), 1e-4))
    found = descend(loss, np.concatenate([weights.ravel(), start.ravel()]))
    log_matrix = log_softmax(found[centre.size :].reshape(c, c))
    return LinearCalibrator(found[: centre.size].reshape(centre.shape), log_matrix.T)


@dataclass(frozen=True)
class SharedCalibrator:
    """The fitted parameters.

    Attributes:
        slopes: τ_s + δ_sk [S, C].
        bias: b [C].
        worth: γ + ε_k [C]; zeros if fitted without given labels.
    """

    slopes: Array
    bias: Array
    worth: Array

    def predict(self, observed: Observations, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        logits = _by_source(observed, rows, self.slopes) + self.bias
        if use_given:
            given = observed.given[rows]
            known = np.flatnonzero(given != MISSING)
            logits[known, given[known]] += self.worth[given[known]]
        return np.exp(log_softmax(logits)).astype(np.float32)


def _by_source(observed: Observations, rows: Labels, slopes: Array) -> Array:
    scores = observed.scores[rows].astype(np.float64).reshape(len(rows), *slopes.shape)  # [m, S, C]
    return np.einsum("msc,sc->mc", scores, slopes)


def shared_calibrator(observed: Observations, rows: Labels, strength: float, *, use_given: bool) -> SharedCalibrator:
    """Fits the corrector to clean rows; with `use_given`, to those that have a given label.

    Args:
        observed: What is known about the rows.
        rows: Clean rows to learn from.
        strength: Of the penalty that pulls classes towards each other.
        use_given: Whether to use the given label.
    """
    if use_given:
        rows = rows[observed.given[rows] != MISSING]
    classes, sources = observed.num_classes, observed.sources
    kind = precision(classes)
    scores = observed.scores[rows].astype(kind).reshape(len(rows), sources, classes)
    true, given = observed.clean[rows], observed.given[rows]
    each = np.arange(len(rows))
    centre = np.concatenate([
        np.full(sources, 1 / sources), np.zeros(sources * classes), np.zeros(classes),
        [np.log(RIGHT / (1 - RIGHT) * max(classes - 1, 1))], np.zeros(classes),
    ])  # fmt: skip
    firm = np.concatenate([
        np.full(sources, TEMPERATURE_STRENGTH), np.full(sources * classes, strength), np.full(classes, BIAS_STRENGTH),
        [WORTH_STRENGTH], np.full(classes, strength),
    ])  # fmt: skip
    a, b, c, d = np.cumsum([sources, sources * classes, classes, 1]).tolist()

    def parts(flat: Array) -> tuple[Array, Array, Array, Array, Array]:
        return flat[:a], flat[a:b], flat[b:c], flat[c:d], flat[d:]

    def loss(flat: Array) -> tuple[float, Array]:
        tau, delta, bias, gamma, differ = parts(flat)
        slopes = (tau[:, None] + delta.reshape(sources, classes)).astype(kind, copy=False)
        logits = np.einsum("msc,sc->mc", scores, slopes) + bias.astype(kind, copy=False)
        if use_given:
            logits[each, given] += gamma + differ[given]
        log_p = log_softmax(logits)
        away = flat - centre
        value = -log_p[each, true].sum(dtype=np.float64) + 0.5 * (firm * away**2).sum()
        gap = np.exp(log_p)
        gap[each, true] -= 1
        per_score = np.einsum("msc,mc->sc", scores, gap)
        slope = [per_score.sum(axis=1), per_score.ravel(), gap.sum(axis=0)]
        if use_given:
            mine = gap[each, given]
            slope += [[mine.sum()], np.bincount(given, mine, classes)]
        else:
            slope += [[0.0], np.zeros(classes)]
        return float(value), np.concatenate(slope) + firm * away

    tau, delta, bias, gamma, differ = parts(descend(loss, centre))
    worth = gamma + differ if use_given else np.zeros(classes)
    return SharedCalibrator(tau[:, None] + delta.reshape(sources, classes), bias, worth)


def calibrator_of_any_class(observed: Observations, rows: Labels, *, use_given: bool) -> SharedCalibrator:
    """What clean rows teach about all classes alike: temperatures and the worth of a given label, without deviations.

    It also suits a class that none of the rows has.
    """
    found = shared_calibrator(observed, rows, max(ALIKE), use_given=use_given)
    slopes = np.broadcast_to(found.slopes.mean(axis=1, keepdims=True), found.slopes.shape)
    return SharedCalibrator(slopes, np.zeros_like(found.bias), np.full_like(found.worth, found.worth.mean()))


@dataclass(frozen=True)
class CleanOnly:
    """A classifier of the inputs, fitted to clean rows only."""

    predict_proba: Callable[[Floats], Floats]

    def predict(self, observed: Observations, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        assert observed.inputs is not None
        return self.predict_proba(observed.inputs[rows])


def clean_logistic(observed: Observations, rows: Labels, strength: float) -> CleanOnly:
    """Fits a logistic regression to the clean rows."""
    assert observed.inputs is not None
    scale, classes = observed.scale, observed.num_classes
    x = scale.with_constant(observed.inputs[rows])
    firm = np.append(np.full(x.shape[1] - 1, strength), CONSTANT_STRENGTH)
    weights = fit_logistic(x, observed.one_hot(observed.clean[rows]), np.zeros((x.shape[1], classes)), firm)
    return CleanOnly(lambda inputs: np.exp(log_softmax(scale.with_constant(inputs) @ weights)).astype(np.float32))


def clean_forest(observed: Observations, rows: Labels) -> CleanOnly:
    """Fits a forest to the clean rows, and mixes it with a few prior rows spread over all classes."""
    assert observed.inputs is not None
    classes, sure = observed.num_classes, len(rows) / (len(rows) + FOREST_PRIOR)
    forest = grow(observed.inputs[rows], observed.clean[rows], TREES, observed.seed, leaf=1, oob=False)

    def predict(inputs: Floats) -> Floats:
        scores = np.full((len(inputs), classes), (1 - sure) / classes, np.float32)
        if len(inputs):
            scores[:, forest.classes] += sure * votes(forest, inputs)
        return scores

    return CleanOnly(predict)


Candidate = Callable[[Observations, Labels], Calibrator]  # learns from the clean rows it is given
OF_ANY_CLASS = {given: partial(calibrator_of_any_class, use_given=given) for given in (False, True)}
NOISE_MODELS: dict[str, list[Candidate]] = {  # used with and without the given label
    "noise model": [partial(noise_model, influence=1, strength=s) for s in STRENGTHS],
    "noise model, mostly noisy rows": [partial(noise_model, influence=10, strength=s) for s in STRENGTHS],
}
CLEAN_LEARNERS: dict[str, list[Candidate]] = {
    "clean rows, logistic": [partial(clean_logistic, strength=s) for s in (0.01, 0.1, 1.0)]
}


def families_without_given(observed: Observations) -> dict[str, list[Candidate]]:
    """Ways to predict the true label from the inputs alone; the best candidate of each family is kept.

    With many classes, only models with few parameters are fitted.
    """
    found: dict[str, list[Candidate]] = {
        "recalibrated": [partial(shared_calibrator, strength=s, use_given=False) for s in ALIKE]
    }
    if observed.num_classes <= MANY:
        found["recalibrated by class"] = [partial(recalibrated, strength=s) for s in STRENGTHS]
        found |= NOISE_MODELS
    if observed.inputs is not None:
        found |= CLEAN_LEARNERS
        if observed.table and observed.num_classes <= MANY:
            found["clean rows, forest"] = [clean_forest]
    return found


def families_with_given(observed: Observations) -> dict[str, list[Candidate]]:
    """Ways to predict the true label from the inputs and the given label, learnt from paired rows."""
    found: dict[str, list[Candidate]] = {
        "label corrector": [partial(shared_calibrator, strength=s, use_given=True) for s in ALIKE]
    }
    if observed.num_classes <= MANY:
        found["label corrector by class"] = [
            partial(label_corrector, strength=s, given_strength=g) for s in STRENGTHS for g in (0.5, 2)
        ]
        found |= NOISE_MODELS
    return found
