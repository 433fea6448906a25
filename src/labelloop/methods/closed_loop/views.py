"""Views of the data: labels as probabilities, and the inputs of the correction network."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from labelloop.large_arrays import by_chunks
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.state import History
from labelloop.splits import one_hot
from labelloop.types import MISSING, Extracted, Floats, Labels

TINY = 1e-12


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
