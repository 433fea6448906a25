"""One correction from a network's outputs, without training the network; how good the loop's labels are; and the views
that both see: labels as probabilities, and the inputs of the correction network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from labelloop.large_arrays import by_chunks
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import fit_corrector
from labelloop.methods.closed_loop.state import History
from labelloop.relabel.estimate import MIN_CLEAN, cross_fitted, estimate, no_estimate
from labelloop.relabel.sample import MIN_PAIRS
from labelloop.relabel.stacking import combine, fit_simplex_weights
from labelloop.seeds import integer, stream
from labelloop.splits import one_hot, stratified_split
from labelloop.types import MISSING, Extracted, Floats, Labels, Problem

FIRST_ROUND = (
    "estimated at the first correction, before any clean label could influence the network; the effect of later "
    "corrections is not counted"
)
NOT_CALIBRATED = (
    f"with fewer than {MIN_PAIRS} rows that have both labels, the value of a given label cannot be measured: "
    "confidences and label scores are not calibrated, and rows with a given label usually do better than this estimate"
)
TINY = 1e-12


@dataclass(frozen=True)
class NetworkOutputs:
    """What is known about some rows, apart from their clean labels.

    Attributes:
        given: Given labels [n], -1 where missing.
        extracted: The network's outputs for them.
        extra: Further columns for the correction network [n, E], or None.
    """

    given: Labels
    extracted: Extracted
    extra: Floats | None = None

    def rows(self, index: Labels) -> NetworkOutputs:
        """Some of the rows."""
        outputs = self.extracted
        return NetworkOutputs(
            self.given[index],
            Extracted(outputs.features[index], outputs.logits[index], outputs.noisy_posterior[index]),
            None if self.extra is None else self.extra[index],
        )


def single_round(outputs: NetworkOutputs, clean: Labels, config: Config, seed: int) -> Floats:
    """Lines 6 to 9 of Algorithm 1 with one correction: the given label and a new correction network, combined.

    Args:
        outputs: What is known about the rows.
        clean: Clean labels [n], -1 where missing; the correction learns from them, and needs at least two.
        config: Settings of the loop.
        seed: The same seed gives the same result.

    Returns:
        Corrected soft labels of all rows [n, C].
    """
    clean_rows = np.flatnonzero(clean != MISSING)
    labels = clean[clean_rows]
    clean_fit, clean_val = stratified_split(labels, config.clean_fit_fraction, stream(seed, "clean-val"))
    view = noisy_view(outputs.given, outputs.extracted)  # [n, C]
    named = columns(outputs.extracted, outputs.extra, config)
    corrector = fit_corrector(
        view[clean_rows], {name: values[clean_rows] for name, values in named.items()}, labels, clean_fit, clean_val,
        config.corrector, integer(seed, "corrector"),
    )  # fmt: skip
    components = [view, corrector(view, named)]
    val = [component[clean_rows[clean_val]] for component in components]
    weights = np.array([0.0, 1.0]) if config.combination == "latest" else fit_simplex_weights(val, labels[clean_val])
    return combine(components, weights)


def estimate_loop(problem: Problem, config: Config, first: Extracted | None, seed: int) -> dict[str, Any]:
    """The entry "estimate" of run.json for the loop's labels.

    At the last epoch, even a cross-fitted correction would look too good: the network has learnt from labels that every
    clean row helped to correct. So the network at the first correction is used.

    Args:
        problem: What the loop was given.
        config: Its settings.
        first: What the network said of the clean rows at the first correction.
        seed: Deals the clean rows into folds.
    """
    clean = problem.clean
    if first is None:
        return no_estimate("an older version started the run and did not record the inputs of the first correction")
    if len(clean) < MIN_CLEAN:
        return no_estimate(f"there are fewer than {MIN_CLEAN} clean rows")
    outputs = NetworkOutputs(clean.labels, first, clean.extra)
    correct = partial(single_round, outputs, config=config, seed=integer(seed, "estimate"))
    posterior = cross_fitted(correct, clean.clean_labels, clean.labels, stream(seed, "estimate-folds"))
    few = (clean.labels != MISSING).sum() < MIN_PAIRS
    return estimate(posterior, clean.labels, clean.clean_labels, [*([NOT_CALIBRATED] if few else []), FIRST_ROUND])


def noisy_view(labels: Labels, extracted: Extracted) -> Floats:
    """The noisy label of every row [N, C]: the given one, else the simulated one, the noisy head's posterior f_n(x)."""
    view = one_hot(labels, extracted.noisy_posterior.shape[1])
    unknown = np.flatnonzero(labels == MISSING)
    view[unknown] = extracted.noisy_posterior[unknown]
    return view


def columns(
    extracted: Extracted, extra: Floats | None, config: Config, history: History | None = None
) -> dict[str, Floats]:
    """The inputs of the correction network besides the noisy label, by name, each [N, any].

    Args:
        extracted: The network's outputs.
        extra: Further columns of the user, or None.
        config: Says which are wanted.
        history: What earlier rounds left; None outside the loop.
    """
    named = {name: getattr(extracted, name) for name in ("features", "logits") if config.wants(name)}
    if config.wants("probabilities"):
        logits = extracted.logits
        named["probabilities"] = by_chunks(lambda rows: softmax(logits[rows], axis=1), logits.shape)
    if config.wants("noisy_logits"):  # up to a constant of the row
        posterior = extracted.noisy_posterior
        named["noisy_logits"] = by_chunks(lambda rows: np.log(np.maximum(posterior[rows], TINY)), posterior.shape)
    if config.wants("all_features"):  # {z_k}, k = 0, ..., t
        named["all_features"] = np.concatenate([*(history.features if history else ()), extracted.features], axis=1)
    if config.wants("past_labels"):  # ȳ_1, ..., ȳ_{t-1}; no column in the first round
        none = np.empty((len(extracted.logits), 0), np.float32)
        named["past_labels"] = np.concatenate([none, *(history.labels if history else ())], axis=1)
    if extra is not None:
        named["extra"] = extra
    return named
