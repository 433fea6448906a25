"""Where scores come from: existing probabilities, embeddings, or the columns of a table."""

from __future__ import annotations

import numpy as np

from labelloop.large_arrays import by_chunks
from labelloop.methods.closed_loop.instant.correction import Corrected, correct_scores
from labelloop.methods.closed_loop.instant.evidence import FLOOR, Inputs, side_by_side
from labelloop.methods.closed_loop.learners.columns import column_scores
from labelloop.types import Floats, Labels


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
        sources += column_scores(embeddings, given, num_classes, table, seed)
    scores = side_by_side(sources, np.float32)  # as a run stores them
    inputs = None if embeddings is None else Inputs(embeddings, table)
    return correct_scores(scores, given, clean, num_classes, seed, inputs=inputs)
