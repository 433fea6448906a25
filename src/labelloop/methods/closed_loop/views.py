"""What the loop shows to whom: labels as probabilities, columns for the correction network, rows to train on."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from labelloop.methods.closed_loop.config import Config
from labelloop.training.targets import one_hot, together
from labelloop.types import MISSING, Extracted, Floats, Labels, Problem, Rows


def noisy_view(labels: Labels, extracted: Extracted) -> Floats:
    """The noisy label of every row [N, C]: the given one where there is one, else the simulated posterior f_n(x)."""
    known = (labels != MISSING)[:, None]
    return np.where(known, one_hot(labels, extracted.noisy_posterior.shape[1]), extracted.noisy_posterior)


def columns(extracted: Extracted, extra: Floats | None) -> dict[str, Floats]:
    """All that the correction network may ask for beside the noisy label, by name, each [N, any]."""
    named = {
        "features": extracted.features,
        "logits": extracted.logits,
        "probabilities": softmax(extracted.logits, axis=1),
    }
    if extra is not None:
        named["extra"] = extra
    return named


def rows_to_train_on(
    problem: Problem, targets: Floats, noisy: Floats, config: Config, epoch: int
) -> tuple[Rows, Floats, Floats, float]:
    """The rows of an epoch, with targets, noisy labels and λ: the training rows, and the clean rows if asked."""
    weight = config.noisy_loss_weight_in(epoch)
    train, clean = problem.train, problem.clean
    if config.clean_rows_train == "never" or (config.clean_rows_train == "after_warm_up" and epoch <= config.warm_up):
        return train, targets, noisy, weight
    both = together(train, clean)
    clean_targets = one_hot(clean.clean_labels, problem.num_classes)
    clean_noisy = one_hot(clean.labels, problem.num_classes)
    return both, np.concatenate([targets, clean_targets]), np.concatenate([noisy, clean_noisy]), weight
