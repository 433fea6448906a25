"""Networks as plain arrays, without pickle; and averaged weights: a second network that memorises less."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from labelloop.large_arrays import zeros
from labelloop.models import TwoHeadClassifier


def pack(value: Any) -> tuple[str, list[np.ndarray]]:
    """Dicts, lists, tuples, arrays, tensors and JSON values, as a string and the arrays it refers to by number."""
    arrays: list[np.ndarray] = []
    return json.dumps(_packed(value, arrays)), arrays


def shapes(arrays: list[np.ndarray]) -> str:
    """The types and shapes of the arrays, which a receiver needs first."""
    return json.dumps([[array.dtype.str, list(array.shape)] for array in arrays])


def empty_arrays(text: str) -> list[np.ndarray]:
    """Arrays of these types and shapes, to be filled."""
    return [zeros(shape, np.dtype(kind)) for kind, shape in json.loads(text)]


def unpack(text: str, arrays: list[np.ndarray]) -> Any:
    """The inverse of `pack`."""
    return _unpacked(json.loads(text), arrays)


def _packed(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, np.ndarray | torch.Tensor):
        plain = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
        arrays.append(plain)
        return {"array" if plain is value else "tensor": len(arrays) - 1}
    if isinstance(value, dict):
        return {"dict": [[_packed(key, arrays), _packed(inner, arrays)] for key, inner in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_packed(inner, arrays) for inner in value]}
    return {"value": value.item() if isinstance(value, np.generic) else value}


def _unpacked(packed: dict[str, Any], arrays: list[np.ndarray]) -> Any:
    ((kind, content),) = packed.items()
    if kind == "array":
        return arrays[content]
    if kind == "tensor":
        return torch.from_numpy(arrays[content])
    if kind == "dict":
        return {_unpacked(key, arrays): _unpacked(inner, arrays) for key, inner in content}
    if kind == "value":
        return content
    inner = [_unpacked(each, arrays) for each in content]
    return tuple(inner) if kind == "tuple" else inner


def tensors_of(name: str, part: torch.nn.Module | torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Every tensor of the part's state, with names that begin with `name`."""
    state = part.state_dict()
    if not isinstance(part, torch.nn.Module):
        entries = {f"{index}/{key}": value for index, entry in state["state"].items() for key, value in entry.items()}
        state = {key: value for key, value in entries.items() if isinstance(value, torch.Tensor)}
    return {f"{name}/{key}": value for key, value in state.items()}


def to_arrays(name: str, part: torch.nn.Module | torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """The same as arrays."""
    return {key: value.detach().cpu().numpy() for key, value in tensors_of(name, part).items()}


def from_arrays(name: str, part: torch.nn.Module | torch.optim.Optimizer, arrays: dict[str, np.ndarray]) -> None:
    """Restores the part from what `to_arrays` stored. An optimiser keeps its settings."""
    prefix = f"{name}/"
    tensors = {k.removeprefix(prefix): torch.from_numpy(v) for k, v in arrays.items() if k.startswith(prefix)}
    if isinstance(part, torch.nn.Module):
        part.load_state_dict(tensors)
        return
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        index, _, field = key.partition("/")
        state.setdefault(int(index), {})[field] = value
    part.load_state_dict(part.state_dict() | {"state": state})


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
