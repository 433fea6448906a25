"""Nested values as a string and plain arrays, so that processes can exchange them without pickle."""

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
