"""A checkpoint within a long epoch: a killed run loses only minutes, and ends with the same bytes.

checkpoint/within.json names the epoch, its finished steps and a file of tensors. The rest of the state is in the
checkpoint of the previous epoch, which is kept. If the checkpoint within is damaged, the epoch starts again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from labelloop.errors import DataError
from labelloop.runs.files import read_json, write_json
from labelloop.training.averaging import WeightAverage
from labelloop.training.checkpoint import packed, read_tensors, unpacked, write_tensors
from labelloop.trust import inside

EVERY = 300.0  # seconds between two checkpoints
PLACE = "within.json"


@dataclass
class WithinEpoch:
    """The network to checkpoint, and where.

    Attributes:
        folder: Of the checkpoint.
        model: The network; epochs of other networks are ignored.
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
        """Restores the state after the finished steps of this epoch; returns their number and the sum of their losses.

        Args:
            epoch: The epoch that begins.
            model: The network that it trains.
        """
        self._last = time.monotonic()
        if model is not self.model or not (self.folder / PLACE).exists():
            return 0, 0.0
        try:
            place = read_json(self.folder / PLACE)
            if place["epoch"] != epoch:
                return 0, 0.0
            tensors = read_tensors(inside(self.folder, place["file"], PLACE), place)
            state, optimizer, arrays = unpacked(tensors, place["optimizer"])
        except (DataError, KeyError, TypeError, ValueError, AttributeError, SafetensorError):
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
        """Writes a checkpoint, if it is time.

        Args:
            epoch: Counted from 1.
            step: Its finished steps.
            loss: The sum of their losses.
            model: The network that is trained.
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
