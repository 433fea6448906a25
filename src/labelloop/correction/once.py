"""The cheap part of the loop on its own: one correction from a network's outputs, without training the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labelloop.methods.closed_loop.combination import combine, fit_simplex_weights
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import fit_corrector
from labelloop.methods.closed_loop.views import columns, noisy_view
from labelloop.seeds import integer, stream
from labelloop.splits import stratified_split
from labelloop.types import MISSING, Extracted, Floats, Labels


@dataclass(frozen=True)
class Seen:
    """What is known about some rows, apart from their clean labels.

    Attributes:
        given: Given labels [n], -1 where missing.
        extracted: The network's outputs for them.
        extra: Further columns for the correction network [n, E], or None.
    """

    given: Labels
    extracted: Extracted
    extra: Floats | None = None

    def rows(self, index: Labels) -> Seen:
        """Some of the rows."""
        said = self.extracted
        return Seen(
            self.given[index],
            Extracted(said.features[index], said.logits[index], said.noisy_posterior[index]),
            None if self.extra is None else self.extra[index],
        )


def correct_once(seen: Seen, clean: Labels, config: Config, seed: int) -> Floats:
    """Lines 6 to 9 of Algorithm 1 with one correction: the given label and a new correction network, combined.

    Args:
        seen: What is known about the rows.
        clean: Clean labels [n], -1 where missing; the correction learns from them, and needs at least two.
        config: Settings of the loop.
        seed: The same seed gives the same result.

    Returns:
        Corrected soft labels of all rows [n, C].
    """
    teachers = np.flatnonzero(clean != MISSING)
    labels = clean[teachers]
    clean_fit, clean_val = stratified_split(labels, config.clean_fit_fraction, stream(seed, "clean-val"))
    view = noisy_view(seen.given, seen.extracted)  # [n, C]
    named = columns(seen.extracted, seen.extra, config)
    corrector = fit_corrector(
        view[teachers], {name: values[teachers] for name, values in named.items()}, labels, clean_fit, clean_val,
        config.corrector, integer(seed, "corrector"),
    )  # fmt: skip
    components = [view, corrector(view, named)]
    val = [component[teachers[clean_val]] for component in components]
    weights = np.array([0.0, 1.0]) if config.combination == "latest" else fit_simplex_weights(val, labels[clean_val])
    return combine(components, weights)
