"""The transition matrix T[true, noisy] of class-dependent noise: its estimate from clean rows, and the corrected loss.

Patrini et al., "Making Deep Neural Networks Robust to Label Noise", CVPR 2017, for the forward correction.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from labelloop.errors import DataError, some
from labelloop.types import Problem


def forward_corrected_nll(logits: Tensor, labels: Tensor, transition: Tensor, eps: float = 0.0) -> Tensor:
    """-log(Σ_k T[k, noisy label] p_k + eps) of every row: the loss on noisy labels of a model of the true ones.

    Args:
        logits: Of the true class [B, C].
        labels: The noisy labels [B].
        transition: T[true, noisy] [C, C]; rows sum to 1.
        eps: Bounds the loss of a label that has probability 0 under the matrix.
    """
    # In logarithms, so that an identity matrix gives exactly cross-entropy, however small the probability.
    joint = F.log_softmax(logits, dim=1) + torch.log(transition)[:, labels].T  # [B, C]
    likelihood = torch.logsumexp(joint, dim=1)  # [B]
    return -(torch.logaddexp(likelihood, likelihood.new_tensor(math.log(eps))) if eps > 0 else likelihood)


def class_mean(posterior: Tensor, labels: Tensor) -> Tensor:
    """The mean posterior of each true class [C, C]: T[true, noisy] if the posterior is that of the noisy label.

    Args:
        posterior: Of the noisy label [M, C].
        labels: The true labels [M]; every class must occur.
    """
    members = F.one_hot(labels, posterior.shape[1]).to(posterior.dtype)  # [M, C]
    return members.T @ posterior / members.sum(dim=0)[:, None]


def need_every_class(problem: Problem) -> None:
    """Refuses clean rows that lack a class.

    Raises:
        DataError: It names the classes.
    """
    missing = np.setdiff1d(np.arange(problem.num_classes), problem.clean.clean_labels)
    if len(missing):
        names = some(repr(problem.class_names[number]) for number in missing)
        raise DataError(
            f"no clean row of class {names}: this method estimates the label noise of each class from clean rows; "
            "verify at least one row of every class, or use another method"
        )
