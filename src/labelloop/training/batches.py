"""Batches of inputs by position, from an array in memory or a map-style dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from labelloop.types import Labels, Rows, StreamedStore

Augment = Callable[[np.ndarray], np.ndarray]


def input_shape(rows: Rows) -> tuple[int, ...]:
    """The shape of one input as the network sees it: (D,) or (C, H, W)."""
    return tuple(_fetch(rows.inputs, rows.index[:1])[0].shape)


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


def _fetch(inputs: Any, index: Labels) -> torch.Tensor:
    if isinstance(inputs, np.ndarray):
        return _from_array(inputs[index], None)
    dataset = _FirstOf(inputs)
    return torch.stack([torch.as_tensor(dataset[int(i)]) for i in index])


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
