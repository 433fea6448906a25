"""Averaged weights: a second network that follows the one being trained and memorises less."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from labelloop.models import TwoHeadClassifier
from labelloop.training.packing import from_arrays, to_arrays


class WeightAverage:
    """An exponential moving average of a network's weights and running statistics, updated at every step.

    At step n the average keeps min(decay, (1 + n) / (10 + n)) of itself, so that it leaves the random start quickly.

    Attributes:
        model: The network with the averaged weights; with a decay of 0 the trained network itself.

    Args:
        model: The network that is trained.
        optimizer: The average is updated after each of its steps.
        decay: The share of itself that the average keeps at each step in the long run; 0 turns averaging off.
    """

    def __init__(self, model: TwoHeadClassifier, optimizer: torch.optim.Optimizer, decay: float) -> None:
        self._decay, self._steps = decay, 0
        self.model = model
        if decay > 0:
            self.model = deepcopy(model).requires_grad_(False)
            self._pairs = list(zip(_tensors(self.model), _tensors(model), strict=True))
            optimizer.register_step_post_hook(self._follow)

    @torch.no_grad()
    def _follow(self, *_: Any) -> None:
        self._steps += 1
        share = 1 - min(self._decay, (1 + self._steps) / (10 + self._steps))
        for mean, value in self._pairs:
            if mean.is_floating_point():
                mean.lerp_(value, share)
            else:
                mean.copy_(value)  # a count

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint stores: nothing if averaging is off."""
        if self._decay == 0:
            return {}
        return to_arrays("average", self.model) | {"average_steps": np.array([self._steps])}

    def from_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Restores the average from what `to_arrays` stored."""
        if self._decay > 0:
            from_arrays("average", self.model, arrays)
            self._steps = int(arrays["average_steps"][0])


def _tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]
