"""Processes as a launcher starts them: forks with its environment, which find each other through gloo."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch._dynamo  # noqa: F401  torch's DistributedDataParallel needs it: once here, not in every fork
from forked import Ended, forked_together


def launched(do: Callable[[int], int | None], count: int = 2, folder: Path | None = None) -> list[Ended]:
    """Calls a function with the rank in `count` processes that have the environment of torchrun.

    Args:
        do: What each does.
        count: How many.
        folder: The working directory.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"LABELLOOP_PROCESS_TIMEOUT": "120"}
    return forked_together([partial(_as_rank, do, rank, shared) for rank in range(count)], folder)


def _as_rank(do: Callable[[int], int | None], rank: int, shared: Mapping[str, str]) -> int | None:
    os.environ.update({**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    return do(rank)
