"""The seed of torch's own random numbers, such as those of dropout and of new weights."""

from __future__ import annotations

from functools import cache

import torch


def seed_torch(seed: int) -> None:
    """Does what `torch.manual_seed` does.

    That function formats the call stack once for every kind of device that has not started yet, which takes longer than
    a step of a small network. Where there is no accelerator, only the generator of the CPU is left to seed.
    """
    if _has_accelerator():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@cache
def _has_accelerator() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()
