"""New labels after the loop, from networks that have not seen the row and from other learners that suit the data.

The loop's network has memorised some wrong labels of its training rows but has never seen the clean rows, so what clean
rows show about its outputs does not carry over to the training rows. Here every row is predicted by a network that has
not seen it, trained only for the length of the warm-up. Where the inputs are columns of numbers, a discriminant and
trees join it. Instant correction weighs all of this against the given label, and its guard decides about changes.
"""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from labelloop.config.base import TrainingConfig
from labelloop.correction.instant import Corrected, correct_scores
from labelloop.correction.instant.correction import FLOOR, side_by_side
from labelloop.errors import DataError
from labelloop.large_arrays import by_chunks, put, taken, zeros
from labelloop.methods import cross_entropy
from labelloop.methods.closed_loop import Config
from labelloop.methods.closed_loop.learners.columns import TABLE, column_scores, kind_of_inputs
from labelloop.seeds import stream
from labelloop.splits import deal
from labelloop.training.extract import extract
from labelloop.training.runtime import Runtime
from labelloop.types import MISSING, Floats, Problem, Rows

MIN_LABELS = 20  # rows with a given label: fewer cannot train a network
FOLDS = 2  # two networks on half of the rows each take as many steps as one on all


def held_out_labels(problem: Problem, config: Config, runtime: Runtime) -> Corrected | None:
    """Labels of all rows of the problem, in the order of their index; None if too few rows have a given label.

    Args:
        problem: What the loop was given.
        config: Its settings, which the held-out networks share.
        runtime: Where to train them. It must not have the folder of the loop's run.
    """
    if (problem.train.labels != MISSING).sum() < MIN_LABELS:
        return None
    train, clean = problem.train, problem.clean
    order = np.argsort(np.concatenate([train.index, clean.index]))
    index, labels, verified = (
        np.concatenate([getattr(train, name), getattr(clean, name)])[order]
        for name in ("index", "labels", "clean_labels")
    )
    rows = Rows(train.inputs, index, labels, verified)
    try:
        sources: list[NDArray] = [_held_out(rows, problem, config, runtime)]
    except DataError as error:
        warnings.warn(f"the labels are the loop's own, because a held-out network failed: {error}", stacklevel=3)
        return None
    if not runtime.is_first:  # it has helped to train the networks; the first process makes the labels
        return None
    with runtime.clock("correcting labels"):
        return _corrected(rows, sources, problem.num_classes, config, runtime.seed)


def _corrected(rows: Rows, sources: list[Any], classes: int, config: Config, seed: int) -> Corrected:
    """Instant correction from the networks' predictions, and from the inputs where they are columns of numbers."""
    inputs, table = None, False
    if (kept := kind_of_inputs(rows.inputs, config.normalise)) is not None:
        inputs, table = taken(rows.inputs, rows.index).astype(np.float32, copy=False), kept == TABLE
        sources = [*sources, *column_scores(inputs, rows.labels, classes, table, seed)]
    scores = side_by_side(sources, np.float32)
    return correct_scores(scores, rows.labels, rows.clean_labels, classes, seed, inputs=inputs, table=table)


def _held_out(rows: Rows, problem: Problem, config: Config, runtime: Runtime) -> Floats:
    """Log-probabilities of the given label, each row's from a network that has not seen it [n, C]."""
    shared = {field.name: getattr(config, field.name) for field in fields(TrainingConfig)}
    plain = {"epochs": config.warm_up, "mixup": 0.0, "average_weights": 0.0}  # too few steps for a useful average
    short = cross_entropy.Config(**shared | plain)
    teaches = (rows.labels != MISSING) & (rows.clean_labels == MISSING)
    fold = deal(2 * rows.labels + teaches, stream(runtime.seed, "held-out"), FOLDS)
    logits = zeros((len(rows), problem.num_classes))
    for k in range(FOLDS):
        half = Problem(_take(rows, teaches & (fold != k)), _take(rows, np.zeros(len(rows), bool)), problem.class_names)
        fitted = cross_entropy.fit_noisy(half, short, runtime)
        put(logits, np.flatnonzero(fold == k), extract(fitted.model, _take(rows, fold == k), runtime).logits)
    floor = np.log(FLOOR)
    return by_chunks(lambda some: np.maximum(log_softmax(logits[some], axis=1), floor), logits.shape)


def _take(rows: Rows, mask: np.ndarray) -> Rows:
    return Rows(rows.inputs, rows.index[mask], rows.labels[mask], rows.clean_labels[mask])
