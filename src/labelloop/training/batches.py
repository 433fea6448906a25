"""Batches of inputs by position, and the part of every batch that this process trains on.

All processes draw the same batches and the same blends, and each reads the rows that its part needs. So a step does not
depend on the number of processes, except for the order in which numbers are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from labelloop.seeds import integer, stream
from labelloop.training.augmentation import Blend, as_floats, crop_and_flip, draw_blend, draw_crops, mix
from labelloop.types import Labels, Rows, StreamedStore

Augment = Callable[[np.ndarray], np.ndarray]

if TYPE_CHECKING:
    from labelloop.config.base import TrainingConfig
    from labelloop.training.runtime import Runtime


def input_shape(rows: Rows) -> tuple[int, ...]:
    """The shape of one input as the network sees it: (D,) or (C, H, W)."""
    if isinstance(rows.inputs, np.ndarray):
        return tuple(_from_array(rows.inputs[rows.index[:1]], None)[0].shape)
    return tuple(torch.as_tensor(_first(rows.inputs[int(rows.index[0])])).shape)


def is_images(rows: Rows) -> bool:
    return isinstance(rows.inputs, np.ndarray) and rows.inputs.dtype == np.uint8 and rows.inputs.ndim == 4


def in_batches(order: Labels, batch_size: int) -> list[Labels]:
    """Splits `order` into batches and keeps a smaller last one; a single left-over row joins the batch before it."""
    parts = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    if len(parts) > 1 and len(parts[-1]) == 1:  # batch norm has nothing to average over in a batch of one
        parts[-2:] = [np.concatenate(parts[-2:])]
    return parts


def batches(
    rows: Rows, order: Labels, batch_size: int, augment: Augment | None = None, workers: int = 0, seed: int = 0
) -> Iterator[tuple[Labels, torch.Tensor]]:
    """Yields (positions in `rows`, inputs) for the batches of `in_batches`.

    Args:
        rows: The rows to read.
        order: Positions in `rows`.
        batch_size: Rows per batch.
        augment: Applied to arrays only; a dataset augments its own items.
        workers: Processes that load the items of a dataset.
        seed: The seed of those processes.
    """
    return read_batches(rows, in_batches(order, batch_size), augment, workers, seed)


def read_batches(
    rows: Rows, parts: Sequence[Labels], augment: Augment | None = None, workers: int = 0, seed: int = 0
) -> Iterator[tuple[Labels, torch.Tensor]]:
    """The same for existing batches: `parts` are positions in `rows`."""
    if isinstance(rows.inputs, np.ndarray):
        for part in parts:
            yield part, _from_array(rows.inputs[rows.index[part]], augment)
        return
    index = [rows.index[part].tolist() for part in parts]
    generator = torch.Generator().manual_seed(seed)  # the default would draw from the global random state
    if isinstance(rows.inputs, StreamedStore):
        yield from zip(parts, _read_into_shared(rows.inputs, index, workers, generator), strict=True)
        return
    loader = DataLoader(_FirstOf(rows.inputs), batch_sampler=index, num_workers=workers, generator=generator)
    yield from zip(parts, loader, strict=True)


def _read_into_shared(
    dataset: Any, index: list[list[int]], workers: int, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Batches that the workers read into memory they share with this process.

    A loader that sends arrays allocates, maps and frees shared memory for every batch. Here only the number of a slot
    is sent.
    """
    if not index:
        return
    one = torch.as_tensor(dataset[index[0][0]])
    ahead = 2 * workers  # batches in flight; one more slot, since the next is requested while this one is copied
    shape = (ahead + 1, max(map(len, index)), *one.shape)
    memory = torch.empty(shape, dtype=one.dtype).share_memory_()
    loader = DataLoader(
        _Places(dataset, memory),
        batch_sampler=[[number % len(memory), *rows] for number, rows in enumerate(index)],
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        collate_fn=_as_it_is,
        generator=generator,
    )
    for place, rows in zip(loader, index, strict=True):
        yield memory[place, : len(rows)].clone()


def _from_array(x: np.ndarray, augment: Augment | None) -> torch.Tensor:
    x = augment(x) if augment else x
    if x.ndim == 4:
        return torch.from_numpy(x).permute(0, 3, 1, 2)  # [B, C, H, W], channels last in memory without a copy
    if x.dtype == np.uint8:
        return torch.from_numpy(x)  # the model divides by 255, as it does for images
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


def _as_it_is(items: Any) -> Any:
    return items


class _Places(Dataset[Any]):
    """A dataset whose batches are read into a slot of the shared memory [P, B, ...]. An item is the slot's number."""

    def __init__(self, dataset: Any, memory: torch.Tensor) -> None:
        self.dataset, self.memory = dataset, memory

    def __getitems__(self, asked: list[int]) -> int:
        place, *index = asked
        self.dataset.read_into(index, self.memory[place].numpy())
        return place


class _FirstOf(Dataset[Any]):
    """The inputs of a dataset whose items may also hold labels. Reads whole batches at once if the dataset can."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, i: int) -> Any:
        return _first(self.dataset[i])

    def __getitems__(self, index: list[int]) -> Any:
        if not hasattr(self.dataset, "__getitems__"):
            return [self[i] for i in index]
        return [_first(item) for item in self.dataset.__getitems__(index)]

    def __len__(self) -> int:
        return len(self.dataset)


def _first(item: Any) -> Any:
    return item[0] if isinstance(item, tuple | list) else item


class RankBatch(NamedTuple):
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


def rank_batches(
    rows: Rows, order: Labels, alpha: float, config: TrainingConfig, runtime: Runtime, epoch: int, done: int = 0
) -> Iterator[RankBatch]:
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
            yield RankBatch(position, slice(None), x, partner, share)
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
        yield RankBatch(position, mine, own, partner, share)


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
