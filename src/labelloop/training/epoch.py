"""One pass over the training rows with the loss of Eq. 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from labelloop.large_arrays import Releaser
from labelloop.seeds import integer, stream
from labelloop.training.augmentation import crop_and_flip
from labelloop.training.batches import batches, is_images
from labelloop.training.mixup import mix
from labelloop.training.setup import set_learning_rate
from labelloop.types import Floats, Labels, Rows, StreamedStore

if TYPE_CHECKING:
    from labelloop.config.base import TrainingConfig
    from labelloop.models import Outputs, TwoHeadClassifier
    from labelloop.training.runtime import Runtime


def soft_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy with rows of probabilities as targets, averaged over the rows that have one.

    A row of zeros is a row without a label: it adds nothing and is not counted.
    """
    labelled = (targets.sum(dim=1) > 0.5).sum().clamp(min=1)
    return -(targets * F.log_softmax(logits, dim=1)).sum() / labelled


def loss_of_both_heads(
    out: Outputs, targets: torch.Tensor, noisy: torch.Tensor, noisy_loss_weight: float
) -> torch.Tensor:
    """Eq. 1: L(f(x), ŷ) + λ L(f_n(x), ỹ)."""
    loss = soft_cross_entropy(out.logits, targets)
    return loss if noisy_loss_weight == 0 else loss + noisy_loss_weight * soft_cross_entropy(out.noisy_logits, noisy)


def augmented_batches(
    rows: Rows,
    order: Labels,
    batch_size: int,
    config: TrainingConfig,
    runtime: Runtime,
    epoch: int,
    name: str = "",
) -> Iterator[tuple[Labels, torch.Tensor]]:
    """Batches as training sees them: (positions in `rows`, inputs), augmented and on the device.

    Args:
        rows: The rows to read.
        order: Positions in `rows`.
        batch_size: Rows a batch.
        config: Augmentation.
        runtime: Device and seed.
        epoch: Names the random streams.
        name: Names them too, where a method reads several batches in a step.
    """
    seed = integer(runtime.seed, name) if name else runtime.seed
    if config.augment == "own" and isinstance(rows.inputs, StreamedStore):  # in workers
        rows = replace(rows, inputs=rows.inputs.augmented(seed, epoch))
    crop = config.augment == "crop-flip" and is_images(rows)
    augment = partial(crop_and_flip, rng=stream(seed, "augmentation", epoch)) if crop else None
    draws = integer(seed, "workers", epoch)
    for position, x in batches(rows, order, batch_size, augment, runtime.workers, draws):
        yield position, runtime.inputs(x)


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
        targets: What the classifier shall say of them, ŷ [N, C].
        noisy: Their given labels ỹ [N, C], for the noisy head. A row of zeros has none.
        noisy_loss_weight: λ.
        optimizer: Its learning rate is set for this epoch.
        config: Schedule, batch size, augmentation, mixup.
        runtime: Device and seed.
        epoch: Counted from 1; names the random streams, so that a resumed run draws what the first would have drawn.
    """
    model.train()
    set_learning_rate(optimizer, config.learning_rate_in(epoch))
    targets_t, noisy_t = runtime.tensor(targets), runtime.tensor(noisy)
    torch.manual_seed(integer(runtime.seed, "dropout", epoch))
    order = stream(runtime.seed, "batches", epoch).permutation(len(rows))
    alpha, blends = config.mixup_in(epoch), stream(runtime.seed, "mixup", epoch)
    total = torch.zeros((), device=runtime.device)
    let_go = Releaser(rows.inputs, targets, noisy)
    for position, x in augmented_batches(rows, order, config.batch_size, config, runtime, epoch):
        x, partner, share = mix(x, alpha, blends)
        out, index = model(x), torch.from_numpy(position)
        loss = loss_of_both_heads(
            out, runtime.picked(targets_t, index), runtime.picked(noisy_t, index), noisy_loss_weight
        )
        if partner is not None:
            other = index[partner]
            loss = share * loss + (1 - share) * loss_of_both_heads(
                out, runtime.picked(targets_t, other), runtime.picked(noisy_t, other), noisy_loss_weight
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(position)
        let_go(len(position))
    mean = float(total) / len(rows)
    runtime.check_loss(mean, epoch)
    return mean
