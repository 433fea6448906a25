"""The part of every batch that this process trains on. In a single process that is the whole batch.

All processes draw the same batches and the same blends, and each reads the rows that its part needs. So a step does not
depend on the number of processes, except for the order in which numbers are added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from labelloop.seeds import integer, stream
from labelloop.training.augmentation import crop_and_flip, draw_crops
from labelloop.training.batches import Augment, in_batches, is_images, read_batches
from labelloop.training.mixup import Blend, as_floats, draw_blend, mix
from labelloop.types import Labels, Rows, StreamedStore

if TYPE_CHECKING:
    from labelloop.config.base import TrainingConfig
    from labelloop.training.runtime import Runtime


class Share(NamedTuple):
    """A batch, and this process's part of it.

    Attributes:
        position: The rows of the whole batch [B].
        mine: Which of them are this process's.
        x: Their inputs, blended with mixup [b, ...].
        partner: The position in the batch of the row that each row is blended with [B]; None without mixup.
        share: A row's share in its own blend.
    """

    position: Labels
    mine: slice
    x: torch.Tensor
    partner: torch.Tensor | None
    share: float


def shared_batches(
    rows: Rows, order: Labels, alpha: float, config: TrainingConfig, runtime: Runtime, epoch: int, done: int = 0
) -> Iterator[Share]:
    """The batches of `augmented_batches` for an epoch, blended by mixup, each with this process's part.

    Args:
        rows: The rows to read.
        order: Positions in `rows`.
        alpha: Of mixup; 0 blends nothing.
        config: Batch size and augmentation.
        runtime: Device, seed, and the other processes.
        epoch: Names the random streams.
        done: Number of batches to skip, because they were trained on before; only in a single process.
    """
    draws = stream(runtime.seed, "mixup", epoch)
    if runtime.ranks.count == 1:
        for part in in_batches(order, config.batch_size)[:done]:
            draw_blend(len(part), alpha, draws)
        for position, x in augmented_batches(rows, order, config.batch_size, config, runtime, epoch, done=done):
            x, partner, share = mix(x, alpha, draws)
            yield Share(position, slice(None), x, partner, share)
        return
    sizes = [len(part) for part in in_batches(order, config.batch_size)]
    blends = [draw_blend(size, alpha, draws) for size in sizes]
    wanted = [_needed(runtime.ranks.mine(size), blend) for size, blend in zip(sizes, blends, strict=True)]
    read = augmented_batches(rows, order, config.batch_size, config, runtime, epoch, wanted=wanted)
    for (position, x), (partner, share), places in zip(read, blends, wanted, strict=True):
        mine = runtime.ranks.mine(len(position))
        x = x if partner is None else as_floats(x)
        own = x[_found(np.arange(mine.start, mine.stop), places)]
        if partner is not None:
            own = torch.lerp(x[_found(partner.numpy()[mine], places)], own, share)
        yield Share(position, mine, own, partner, share)


def _needed(mine: slice, blend: Blend) -> Labels:
    """The positions in a batch whose inputs a process needs, sorted: its own rows and their partners."""
    own = np.arange(mine.start, mine.stop)
    return own if blend.partner is None else np.union1d(own, blend.partner.numpy()[mine])


def _found(wanted: Labels, places: Labels) -> torch.Tensor:
    return torch.from_numpy(np.searchsorted(places, wanted))


def augmented_batches(
    rows: Rows,
    order: Labels,
    batch_size: int,
    config: TrainingConfig,
    runtime: Runtime,
    epoch: int,
    name: str = "",
    wanted: Sequence[Labels] | None = None,
    done: int = 0,
) -> Iterator[tuple[Labels, torch.Tensor]]:
    """Batches as training sees them: (positions in `rows`, inputs), augmented and on the device.

    Args:
        rows: The rows to read.
        order: Positions in `rows`.
        batch_size: Rows per batch.
        config: Augmentation.
        runtime: Device and seed.
        epoch: Names the random streams.
        name: Further name of the random streams, for methods that read several batches in a step.
        wanted: The positions in each batch whose inputs are wanted; None for all.
        done: Number of batches to skip; the others stay the same.
    """
    seed = integer(runtime.seed, name) if name else runtime.seed
    if config.augment == "own" and isinstance(rows.inputs, StreamedStore):  # in workers
        rows = replace(rows, inputs=rows.inputs.augmented(seed, epoch))
    parts = in_batches(order, batch_size)
    augment = None
    if config.augment == "crop-flip" and is_images(rows):
        crops = stream(seed, "augmentation", epoch)
        for part in parts[:done]:
            draw_crops(len(part), crops)
        augment = _crop_and_flip(parts, wanted, crops)
    parts = parts[done:]
    read = parts if wanted is None else [part[places] for part, places in zip(parts, wanted, strict=True)]
    draws = integer(seed, "workers", epoch)
    for position, (_, x) in zip(parts, read_batches(rows, read, augment, runtime.workers, draws), strict=True):
        yield position, runtime.inputs(x)


def _crop_and_flip(parts: Sequence[Labels], wanted: Sequence[Labels] | None, rng: np.random.Generator) -> Augment:
    """Augments batch after batch; wanted images are augmented as they would be in the whole batch."""
    if wanted is None:
        return partial(crop_and_flip, rng=rng)
    places = iter([(len(part), places) for part, places in zip(parts, wanted, strict=True)])
    return lambda images: crop_and_flip(images, rng, among=next(places))
