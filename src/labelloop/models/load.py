"""Loads the weights of an encoder: safetensors, or a .pth that holds only tensors. No pickled code is ever run."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from labelloop.errors import DataError, some

SUFFIXES = (".safetensors", ".pth", ".pt")
_SHOWN = 10  # keys per kind that a message shows


def load_encoder(encoder: nn.Module, path: str | Path) -> tuple[str, ...]:
    """Loads a file of weights into an encoder, completely or not at all.

    Public checkpoints hold the last layer `fc` of their own task: its keys are skipped, unless the encoder has them.

    Args:
        encoder: The module that gets the weights.
        path: A file as `read_state_dict` takes it.

    Returns:
        The keys of the file that were skipped.

    Raises:
        DataError: If the file cannot be read, or its keys or shapes do not match the encoder.
    """
    weights, wanted = read_state_dict(path), encoder.state_dict()
    left_out = tuple(key for key in weights if key.startswith("fc.") and key not in wanted)
    weights = {key: value for key, value in weights.items() if key not in left_out}
    # Old checkpoints lack this counter; batch normalisation with a momentum never reads it.
    missing = [key for key in wanted if key not in weights and not key.endswith(".num_batches_tracked")]
    unexpected = [key for key in weights if key not in wanted]
    misshapen = [
        f"{key} {_shape(value)} where the encoder has {_shape(wanted[key])}"
        for key, value in weights.items()
        if key in wanted and value.shape != wanted[key].shape
    ]
    if missing or unexpected or misshapen:
        found = {"missing": missing, "unexpected": unexpected, "of another shape": misshapen}
        kinds = (f"{len(keys)} {kind}: {some(keys, _SHOWN)}" for kind, keys in found.items() if keys)
        raise DataError(
            f"{path} does not fit {type(encoder).__name__}. Keys " + "; ".join(kinds) + ". "
            "Choose the network, its options and the number of input channels that the file was made with, "
            "or rename the keys in the file."
        )
    encoder.load_state_dict(weights, strict=False)  # only the counters above can be missing
    return left_out


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors, .pth or .pt file by key.

    The dictionary may be nested under "state_dict" or "model", and its keys may all begin with "module.", as some
    trainers write them.

    Raises:
        DataError: If there is no such file, or it does not hold tensors by key.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: the name of a file of weights must end in one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    content = _read_safetensors(path) if suffix == ".safetensors" else _read_pickle(path)
    for entry in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(entry), Mapping):
            content = content[entry]
    if not isinstance(content, Mapping) or not content:
        raise DataError(f"{path}: holds no tensors by key. Save the module's state_dict() to it.")
    others = [f"{key!r} ({type(value).__name__})" for key, value in content.items() if not isinstance(value, Tensor)]
    if others:
        raise DataError(f"{path}: not tensors: {some(others)}. Save only the module's state_dict() to it.")
    weights = {str(key): value for key, value in content.items()}
    if all(key.startswith("module.") for key in weights):
        weights = {key.removeprefix("module."): value for key, value in weights.items()}
    return weights


def _read_safetensors(path: Path) -> Any:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: cannot be read as safetensors ({error}). Is the file complete?") from error


def _read_pickle(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{path}: holds more than tensors, or is not a torch file. Only tensors are read, so that no code in a "
            "file is run: save the module's state_dict() with torch.save, or better as safetensors."
        ) from error
    except Exception as error:  # a damaged file can raise any error
        why = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise DataError(f"{path}: cannot be read as a torch file ({why}). Is the file complete?") from error


def _shape(value: Tensor) -> list[int]:
    return list(value.shape)
