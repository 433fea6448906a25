"""Nested values, networks and optimisers as plain arrays, so that processes and checkpoints need no pickle."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from labelloop.large_arrays import zeros


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
