"""A label corrector with few parameters, for a handful of clean rows or hundreds of classes.

logit_k = Σ_s (τ_s + δ_sk) · score_sk + b_k + (γ + ε_k) · [k is the given label]

Temperatures τ and the worth γ of a given label are shared by all classes; δ, b and ε are deviations of a single class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labelloop.methods.closed_loop.instant.evidence import Evidence
from labelloop.methods.closed_loop.learners.logistic import Array, descend, log_softmax, precision
from labelloop.types import MISSING, Floats, Labels

TEMPERATURE_STRENGTH = 1.0  # of the penalty that pulls τ towards the scores as they are
BIAS_STRENGTH = 1.0  # of that on b, towards 0
WORTH_STRENGTH = 0.3  # of that on γ, towards its value when the share RIGHT of the labels is right
ALIKE = (1, 30)  # of the penalty that pulls classes towards each other; the clean rows choose
RIGHT = 0.7  # the prior share of labels that are right


@dataclass(frozen=True)
class Structured:
    """The fitted parameters.

    Attributes:
        slopes: τ_s + δ_sk [S, C].
        bias: b [C].
        worth: γ + ε_k [C]; zeros if fitted without given labels.
    """

    slopes: Array
    bias: Array
    worth: Array

    def about(self, evidence: Evidence, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        logits = _by_source(evidence, rows, self.slopes) + self.bias
        if use_given:
            given = evidence.given[rows]
            known = np.flatnonzero(given != MISSING)
            logits[known, given[known]] += self.worth[given[known]]
        return np.exp(log_softmax(logits)).astype(np.float32)


def _by_source(evidence: Evidence, rows: Labels, slopes: Array) -> Array:
    scores = evidence.scores[rows].astype(np.float64).reshape(len(rows), *slopes.shape)  # [m, S, C]
    return np.einsum("msc,sc->mc", scores, slopes)


def structured(evidence: Evidence, rows: Labels, strength: float, *, use_given: bool) -> Structured:
    """Fits the corrector to clean rows; with `use_given`, to those that have a given label.

    Args:
        evidence: What is known about the rows.
        rows: Clean rows to learn from.
        strength: Of the penalty that pulls classes towards each other.
        use_given: Whether to use the given label.
    """
    if use_given:
        rows = rows[evidence.given[rows] != MISSING]
    classes, sources = evidence.num_classes, evidence.sources
    kind = precision(classes)
    scores = evidence.scores[rows].astype(kind).reshape(len(rows), sources, classes)
    true, given = evidence.clean[rows], evidence.given[rows]
    each = np.arange(len(rows))
    centre = np.concatenate([
        np.full(sources, 1 / sources), np.zeros(sources * classes), np.zeros(classes),
        [np.log(RIGHT / (1 - RIGHT) * max(classes - 1, 1))], np.zeros(classes),
    ])  # fmt: skip
    firm = np.concatenate([
        np.full(sources, TEMPERATURE_STRENGTH), np.full(sources * classes, strength), np.full(classes, BIAS_STRENGTH),
        [WORTH_STRENGTH], np.full(classes, strength),
    ])  # fmt: skip
    cuts = np.cumsum([sources, sources * classes, classes, 1])

    def loss(flat: Array) -> tuple[float, Array]:
        tau, delta, bias, gamma, differ = np.split(flat, cuts)
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

    tau, delta, bias, gamma, differ = np.split(descend(loss, centre), cuts)
    worth = gamma + differ if use_given else np.zeros(classes)
    return Structured(tau[:, None] + delta.reshape(sources, classes), bias, worth)
