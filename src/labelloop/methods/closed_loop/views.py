"""Views of the data: labels as probabilities, inputs of the correction network, rows to train on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from labelloop.large_arrays import by_chunks, joined
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import Redraw
from labelloop.models import TwoHeadClassifier
from labelloop.splits import one_hot, take, together
from labelloop.training.epoch import extract
from labelloop.training.runtime import Runtime
from labelloop.types import MISSING, Extracted, Floats, Labels, Problem, Rows

if TYPE_CHECKING:
    from labelloop.methods.closed_loop.first_labels import HeldOut


def noisy_view(labels: Labels, extracted: Extracted) -> Floats:
    """The noisy label of every row [N, C]: the given one if there is one, else what `extracted` has in its place."""
    view = one_hot(labels, extracted.noisy_posterior.shape[1])
    unknown = np.flatnonzero(labels == MISSING)
    view[unknown] = extracted.noisy_posterior[unknown]
    return view


def look(
    model: TwoHeadClassifier, problem: Problem, held_out: HeldOut | None, runtime: Runtime
) -> tuple[Extracted, Extracted, Labels]:
    """The network's outputs for training and clean rows, and the noisy labels of the clean rows, -1 where unknown.

    What stands for a missing label is f_n(x). With half-networks every clean row has a noisy label, and a noisy row
    without one has its first label.
    """
    on_train, on_clean = (extract(model, rows, runtime) for rows in (problem.train, problem.clean))
    if held_out is None:
        return on_train, on_clean, problem.clean.labels
    return (
        replace(on_train, noisy_posterior=held_out.train),
        replace(on_clean, noisy_posterior=held_out.noisy_clean),
        held_out.labels,
    )


def redraw_of(clean: Rows, held_out: HeldOut | None) -> Redraw | None:
    """Makes the noisy labels for a pass of the correction network: real ones, and new draws where there is none."""
    if held_out is None:
        return None
    chances = held_out.chances  # [M, C]

    def redraw(rng: np.random.Generator) -> Floats:
        labels = np.where(clean.labels != MISSING, clean.labels, draw_labels(chances, rng))
        return one_hot(labels, chances.shape[1])

    return redraw


def draw_labels(posterior: NDArray[np.floating], rng: np.random.Generator) -> Labels:
    """A label for every row, drawn from its row of probabilities [n, C]."""
    edges = posterior.cumsum(axis=1, dtype=np.float64)
    uniform = rng.random((len(posterior), 1)) * edges[:, -1:]
    return (uniform >= edges).sum(axis=1).clip(max=posterior.shape[1] - 1)


def columns(extracted: Extracted, extra: Floats | None, config: Config) -> dict[str, Floats]:
    """The inputs of the correction network besides the noisy label, by name, each [N, any]."""
    named = {name: getattr(extracted, name) for name in ("features", "logits") if config.wants(name)}
    if config.wants("probabilities"):
        logits = extracted.logits
        named["probabilities"] = by_chunks(lambda rows: softmax(logits[rows], axis=1), logits.shape)
    if extra is not None:
        named["extra"] = extra
    return named


def rows_to_train_on(
    problem: Problem, targets: Floats, noisy: Floats, config: Config, epoch: int, repeats: int = 1
) -> tuple[Rows, Floats, Floats, float]:
    """The rows of an epoch, with targets, noisy labels and λ: the training rows, and the clean rows if asked.

    Args:
        problem: Training rows and clean rows.
        targets: Labels of the training rows [N, C].
        noisy: Their given labels [N, C].
        config: Says whether and when clean rows train.
        epoch: Counted from 1.
        repeats: How often each clean row is included.
    """
    weight = config.noisy_loss_weight
    train, clean, when = problem.train, problem.clean, config.clean_rows_train
    waits = {"never": config.epochs, "after_warm_up": config.warm_up, "after_last_correction": config.last_correction()}
    if epoch <= waits.get(when, 0):
        return train, targets, noisy, weight
    clean = take(clean, np.tile(np.arange(len(clean)), repeats))
    both = together(train, clean)
    clean_targets = one_hot(clean.clean_labels, problem.num_classes)
    clean_noisy = one_hot(clean.labels, problem.num_classes)
    return both, joined(targets, clean_targets), joined(noisy, clean_noisy), weight
