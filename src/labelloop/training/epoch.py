"""One pass over rows: with the loss of Eq. 1 to train, or in evaluation mode to extract features and predictions.

Also the loss that is corrected by a transition matrix T[true, noisy] of class-dependent noise, and its estimate:
Patrini et al., "Making Deep Neural Networks Robust to Label Noise", CVPR 2017.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from labelloop.errors import DataError, some
from labelloop.large_arrays import Releaser, release, row_chunks, zeros
from labelloop.models import Outputs, TwoHeadClassifier, evaluating
from labelloop.seeds import integer, stream
from labelloop.training.batches import in_batches, rank_batches, read_batches
from labelloop.training.setup import seed_torch, set_learning_rate
from labelloop.types import Extracted, Floats, Problem, Rows

if TYPE_CHECKING:
    from labelloop.config.base import TrainingConfig
    from labelloop.training.runtime import Runtime

ALL = slice(None)
BATCH = 128  # larger batches do not fit into the processor's caches and take 1.5 times as long


def soft_cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, mine: slice = ALL, all_labelled: bool = False
) -> torch.Tensor:
    """Cross-entropy with rows of probabilities as targets, averaged over the rows that have one.

    A row of zeros is a row without a label: it adds nothing and is not counted.

    Args:
        logits: Of the rows `mine` of a batch [b, C].
        targets: Of the whole batch [B, C].
        mine: The rows that contribute; the losses of all parts of a batch add up to that of the whole batch.
        all_labelled: Whether every row is known to have a label, so that they need not be counted.
    """
    labelled = len(targets) if all_labelled else (targets.sum(dim=1) > 0.5).sum().clamp(min=1)
    return F.cross_entropy(logits, targets[mine], reduction="sum") / labelled


def loss_of_both_heads(
    out: Outputs,
    targets: torch.Tensor,
    noisy: torch.Tensor,
    noisy_loss_weight: float,
    mine: slice = ALL,
    all_labelled: tuple[bool, bool] = (False, False),
) -> torch.Tensor:
    """Eq. 1: L(f(x), ŷ) + λ L(f_n(x), ỹ)."""
    loss = soft_cross_entropy(out.logits, targets, mine, all_labelled[0])
    if noisy_loss_weight == 0:
        return loss
    return loss + noisy_loss_weight * soft_cross_entropy(out.noisy_logits, noisy, mine, all_labelled[1])


def train_epoch(
    model: TwoHeadClassifier,
    rows: Rows,
    targets: Floats,
    noisy: Floats,
    noisy_loss_weight: float,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    runtime: Runtime,
    epoch: int,
) -> float:
    """Trains both heads for one epoch and returns the mean loss.

    Args:
        model: Changed in place.
        rows: The rows to train on.
        targets: The classifier's targets ŷ [N, C].
        noisy: The given labels ỹ [N, C], for the noisy head; zeros where there is none.
        noisy_loss_weight: λ.
        optimizer: Its learning rate is set for this epoch.
        config: Schedule, batch size, augmentation, mixup.
        runtime: Device, seed, and the processes that share the batches.
        epoch: Counted from 1; names the random streams, so that a resumed run draws the same numbers.
    """
    model.train()
    set_learning_rate(optimizer, config.learning_rate_in(epoch))
    targets_t, noisy_t = runtime.tensor(targets), runtime.tensor(noisy)
    seed_torch(integer(runtime.seed, "dropout", epoch, *runtime.ranks.names))
    order = stream(runtime.seed, "batches", epoch).permutation(len(rows))
    done, loss_so_far = runtime.begin_epoch(epoch, model)
    total = torch.full((), loss_so_far, device=runtime.device)
    let_go = Releaser(rows.inputs, targets, noisy)
    whole = (all_labelled(targets), all_labelled(noisy))
    batches = rank_batches(rows, order, config.mixup, config, runtime, epoch, done)
    unused = model.noisy_head.parameters() if noisy_loss_weight == 0 else ()
    with runtime.sharing(model, unused) as network:
        for step, (position, mine, x, partner, share) in enumerate(batches, done + 1):
            out, index = network(x), torch.from_numpy(position)
            wanted = (runtime.picked(targets_t, index), runtime.picked(noisy_t, index))
            loss = loss_of_both_heads(out, *wanted, noisy_loss_weight, mine, whole)
            if partner is not None:
                other = index[partner]
                wanted = (runtime.picked(targets_t, other), runtime.picked(noisy_t, other))
                loss = share * loss + (1 - share) * loss_of_both_heads(out, *wanted, noisy_loss_weight, mine, whole)
            optimizer.zero_grad()
            runtime.backward(loss)
            optimizer.step()
            total += loss.detach() * len(position)
            let_go(len(position))
            runtime.after_step(epoch, step, total, model)
    mean = float(runtime.ranks.total(total)) / len(rows)
    runtime.check_loss(mean, epoch)
    return mean


def all_labelled(targets: Floats) -> bool:
    """Whether every row has a label."""
    return all(bool((targets[rows].sum(axis=1) > 0.5).all()) for rows in row_chunks(*targets.shape))


def extract(model: TwoHeadClassifier, rows: Rows, runtime: Runtime) -> Extracted:
    """The network's outputs for every row, in the order of the rows. The model is not changed.

    Several processes share the batches, which are the same as in a single process, and each gets all rows.
    """
    # Filled batch by batch, because concatenating a list of batches would need twice the memory.
    widths = (model.head.in_features, model.head.out_features, model.head.out_features)
    whole: list[Floats] = [zeros((len(rows), width)) for width in widths]
    parts = in_batches(np.arange(len(rows)), BATCH)
    mine = parts[runtime.ranks.mine(len(parts))]
    let_go = Releaser(rows.inputs, *whole)
    with evaluating(model), torch.no_grad():
        for position, x in read_batches(rows, mine, workers=runtime.workers):
            out = model(runtime.inputs(x))
            outputs = (out.features, out.logits, torch.softmax(out.noisy_logits, dim=1))
            for array, part in zip(whole, outputs, strict=True):
                array[position] = part.cpu().numpy()
            let_go(len(position))
    if runtime.ranks.count > 1:
        runtime.ranks.gather_rows(whole, [len(part) for part in parts])
    release()
    return Extracted(*whole)


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
