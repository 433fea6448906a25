"""The state of a second network or optimiser as plain arrays, for the checkpoint."""

from __future__ import annotations

import numpy as np
import torch


def to_arrays(name: str, part: torch.nn.Module | torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """Every tensor of the part's state, with names that begin with `name`."""
    if isinstance(part, torch.nn.Module):
        tensors = part.state_dict()
    else:
        state = part.state_dict()["state"]
        tensors = {f"{index}/{key}": value for index, entry in state.items() for key, value in entry.items()}
    return {f"{name}/{key}": value.detach().cpu().numpy() for key, value in tensors.items()}


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
