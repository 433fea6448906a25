"""A checkpoint within a long epoch: a run that is killed loses minutes, and ends in the same bytes.

checkpoint/within.json says how many steps of which epoch are done and names a file of tensors. All else that an epoch
needs is in the checkpoint of the epoch before, which stays beside it. A damaged one is not used: the epoch begins anew.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelloop.errors import DataError
from labelloop.runs.files import read_json, write_json
from labelloop.training.averaging import WeightAverage
from labelloop.training.checkpoint import packed, read_tensors, unpacked, write_tensors

EVERY = 300.0  # seconds between two of them
PLACE = "within.json"


@dataclass
class WithinEpoch:
    """The network that is followed, and where its place is kept.

    Attributes:
        folder: Of the checkpoint.
        model: Epochs of other networks are not kept.
        optimizer: Its optimiser.
        average: Its averaged weights, if any.
        every: Seconds between two checkpoints.
    """

    folder: Path
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None = None
    every: float = EVERY
    _last: float = field(default_factory=time.monotonic)

    def resume(self, epoch: int, model: torch.nn.Module) -> tuple[int, float]:
        """Puts everything back to the steps that were done of this epoch; returns their number and the sum of losses.

        Args:
            epoch: The epoch that begins.
            model: What is trained in it.
        """
        self._last = time.monotonic()
        if model is not self.model or not (self.folder / PLACE).exists():
            return 0, 0.0
        try:
            place = read_json(self.folder / PLACE)
            if place["epoch"] != epoch:
                return 0, 0.0
            tensors = read_tensors(self.folder / place["file"], place)
            state, optimizer, arrays = unpacked(tensors, place["optimizer"])
        except (DataError, KeyError, TypeError):
            return 0, 0.0
        self.model.load_state_dict(state)
        self.optimizer.load_state_dict(optimizer)
        if self.average is not None:
            self.average.from_arrays(arrays)
        torch.set_rng_state(torch.from_numpy(arrays["random"]))
        if "random_cuda" in arrays:
            torch.cuda.set_rng_state(torch.from_numpy(arrays["random_cuda"]))
        return place["step"], float(arrays["loss"][0])

    def after_step(self, epoch: int, step: int, loss: torch.Tensor, model: torch.nn.Module) -> None:
        """Keeps the place, if it is time.

        Args:
            epoch: Counted from 1.
            step: Steps of it that are done.
            loss: The sum of their losses.
            model: What is trained.
        """
        if model is not self.model or time.monotonic() - self._last < self.every:
            return
        arrays = {} if self.average is None else self.average.to_arrays()
        arrays |= {"random": torch.get_rng_state().numpy(), "loss": np.array([loss.item()])}
        if loss.is_cuda:
            arrays["random_cuda"] = torch.cuda.get_rng_state().numpy()
        tensors, settings = packed(self.model, self.optimizer, arrays)
        name = f"within-{epoch:04d}-{step:08d}.safetensors"
        self.folder.mkdir(parents=True, exist_ok=True)
        entry: dict[str, Any] = write_tensors(self.folder / name, tensors)
        place = {"epoch": epoch, "step": step, "file": name, "optimizer": settings, **entry}
        write_json(self.folder / PLACE, place)
        for old in self.folder.glob("within-*.safetensors"):
            if old.name != name:
                old.unlink()
        self._last = time.monotonic()
