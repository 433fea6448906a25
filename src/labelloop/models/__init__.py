"""Networks: an encoder from a name and the shape of the inputs, a built-in one or any `module:factory`; and the
classifier with two heads, for corrected and for noisy labels, which standardises its inputs.

Weights come from safetensors, or a .pth that holds only tensors. No pickled code is ever run.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from labelloop.errors import DataError, UsageError, nearest, some
from labelloop.large_arrays import row_chunks
from labelloop.models.networks import mlp, resnet18, resnet34, resnet50, small_cnn

Factory = Callable[..., nn.Module]

NETWORKS: dict[str, Factory] = {
    "mlp": mlp,
    "small-cnn": small_cnn,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
}
_CONVOLUTIONAL = frozenset(NETWORKS) - {"mlp"}

SUFFIXES = (".safetensors", ".pth", ".pt")
_SHOWN = 10  # keys per kind that a message shows
Statistics = tuple[NDArray[np.float64], NDArray[np.float64]]
_CHUNK_VALUES = 2**20  # 8 MB as float64: small next to the inputs, large next to the overhead of one numpy call


def build_encoder(name: str, input_shape: tuple[int, ...], options: Mapping[str, Any] | None = None) -> nn.Module:
    """Builds an encoder, with random weights drawn from torch's global random state.

    Args:
        name: A name in NETWORKS, or `module:factory`, an importable callable that returns a module. Such a factory
            gets the options, and the input shape if it has an argument `input_shape` or its first argument is missing.
        input_shape: (D,) for a matrix of features, (C, H, W) for images.
        options: Keyword arguments of the factory.

    Returns:
        A module that maps a batch [B, *input_shape] to features [B, D] and has `feature_dim`.

    Raises:
        UsageError: If there is no such network, or it does not fit the options or the inputs.
    """
    input_shape, options = tuple(input_shape), dict(options or {})
    if name in NETWORKS:
        if name in _CONVOLUTIONAL and len(input_shape) != 3:
            raise UsageError(
                f"network {name!r} needs images (channels, height, width), "
                f"but the inputs have shape {input_shape}; use 'mlp' for a matrix of features"
            )
        _check_options(name, NETWORKS[name], options)
        return NETWORKS[name](input_shape, **options)
    if ":" not in name:
        raise UsageError(f"unknown network {name!r} (your own is 'module:factory'): {nearest(name, NETWORKS)}")
    return as_encoder(_call(name, _import(name), input_shape, options), input_shape, name)


def as_encoder(module: nn.Module, input_shape: tuple[int, ...], name: str = "the encoder") -> nn.Module:
    """Checks that a module maps a batch to features, on two rows of zeros, and gives it `feature_dim`.

    The check runs in evaluation mode. It does not change the module's buffers or modes, or torch's random state.

    Args:
        module: Any module. If it already has `feature_dim`, that must be the width of its output.
        input_shape: (D,) for a matrix of features, (C, H, W) for images.
        name: What to call it in a message.

    Raises:
        UsageError: If it does not take such a batch, or does not return features [B, D].
    """
    batch_shape = (2, *input_shape)
    first = next(chain(module.parameters(), module.buffers()), torch.empty(0))
    batch = torch.zeros(batch_shape, device=first.device)
    try:
        devices = [first.device] if first.is_cuda else []
        with evaluating(module), torch.no_grad(), torch.random.fork_rng(devices=devices):
            features = module(batch)
    except Exception as error:
        raise UsageError(f"network {name!r} does not take a batch of shape {batch_shape}: {error}") from error
    if not isinstance(features, Tensor):
        raise UsageError(f"network {name!r} must return a tensor of features [B, D], not {type(features).__name__}")
    if features.ndim != 2 or len(features) != 2:
        raise UsageError(
            f"network {name!r} must return features [B, D], but a batch of shape {batch_shape} "
            f"gave shape {tuple(features.shape)}; flatten or pool its output"
        )
    encoder: Any = module  # for the type checker a module's attributes are tensors and modules
    named = getattr(encoder, "feature_dim", None)
    if named is None:
        encoder.feature_dim = features.shape[1]
    elif named != features.shape[1]:
        raise UsageError(f"network {name!r} says feature_dim is {named}, but returns {features.shape[1]} features")
    return module


def is_convolutional(module: nn.Module) -> bool:
    """Whether the channels-last memory format pays off: the module has a two-dimensional convolution."""
    return any(isinstance(part, nn.Conv2d) for part in module.modules())


def _check_options(name: str, factory: Factory, options: Mapping[str, Any]) -> None:
    known = [option for option in inspect.signature(factory).parameters if option != "input_shape"]
    for option in options:
        if option not in known:
            hint = nearest(option, known) if known else "it has none"
            raise UsageError(f"network {name!r} has no option {option!r}: {hint}")


def _import(name: str) -> Factory:
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise UsageError(
            f"network {name!r}: cannot import {module_name!r} ({type(error).__name__}: {error}); see PYTHONPATH"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"network {name!r}: {module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"network {name!r}: the factory is not callable, it is of type {type(found).__name__}")
    return found


def _call(name: str, factory: Factory, input_shape: tuple[int, ...], options: dict[str, Any]) -> nn.Module:
    try:
        signature = inspect.signature(factory)
    except ValueError as error:  # some callables written in C
        raise UsageError(f"network {name!r}: {error}; wrap it in a function") from error
    arguments: tuple[Any, ...] = ()
    if "input_shape" in signature.parameters:
        options = {**options, "input_shape": input_shape}
    elif not _binds(signature, (), options):
        arguments = (input_shape,)
    if not _binds(signature, arguments, options):
        raise UsageError(f"network {name!r}: the factory{signature} does not take the options {sorted(options)}")
    module = factory(*arguments, **options)
    if not isinstance(module, nn.Module):
        raise UsageError(f"network {name!r}: the factory must return a torch module, not {type(module).__name__}")
    return module


def _binds(signature: inspect.Signature, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    try:
        signature.bind(*arguments, **options)
    except TypeError:
        return False
    return True


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards every part, frozen or not, is back in the mode it had."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


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
        f"{key} {list(value.shape)} where the encoder has {list(wanted[key].shape)}"
        for key, value in weights.items()
        if key in wanted and value.shape != wanted[key].shape
    ]
    if missing or unexpected or misshapen:
        found = {"missing": missing, "unexpected": unexpected, "of another shape": misshapen}
        kinds = (f"{len(keys)} {kind}: {some(keys, _SHOWN)}" for kind, keys in found.items() if keys)
        raise DataError(
            f"{path} does not fit {type(encoder).__name__}. Keys {'; '.join(kinds)}. Choose the network and options of"
            " the file, or rename its keys."
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
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path}: the name of a file of weights must end in one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    content = _read(path)
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


def _read(path: Path) -> Any:
    try:
        if path.suffix.lower() == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{path}: holds more than tensors, or is not a torch file. Only tensors are read: save the state_dict()."
        ) from error
    except Exception as error:  # a damaged file can raise any error
        why = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise DataError(f"{path}: cannot be read as {path.suffix} ({why}). Is the file complete?") from error


class Normalise(nn.Module):
    """Turns a batch into float32 and (x - mean) / std, per channel of images or per column of a matrix.

    A uint8 batch is first divided by 255. A standard deviation of zero becomes 1, so a constant column becomes 0.

    Args:
        mean: One number for each channel or column.
        std: One number for each channel or column.
    """

    mean: Tensor  # [C] channels, or [D] columns
    std: Tensor

    def __init__(self, mean: ArrayLike, std: ArrayLike) -> None:
        super().__init__()
        mean32, std32 = np.array(mean, np.float32), np.array(std, np.float32)
        std32[std32 == 0] = 1
        self.register_buffer("mean", torch.from_numpy(mean32))
        self.register_buffer("std", torch.from_numpy(std32))

    @classmethod
    def identity(cls, size: int = 1) -> Normalise:
        """No normalisation; pixels are still scaled to [0, 1]. `size` is that of the buffers of a state dict."""
        return cls(np.zeros(size), np.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        pixels = x.dtype == torch.uint8
        x = x.to(self.mean.dtype)
        if pixels:
            x = x / 255
        per_channel = (-1, *[1] * (x.ndim - 2))  # dimension 1 is the channel or the column
        return (x - self.mean.view(per_channel)) / self.std.view(per_channel)


def mean_and_std(inputs: NDArray, index: NDArray) -> Statistics:
    """The statistics of some rows, on the scale that `Normalise` sees, without a float copy of the inputs.

    Args:
        inputs: Features [n, D], or images [n, H, W, C].
        index: The rows to use.

    Returns:
        Mean and population standard deviation over the last axis, [D] or [C]. A column that varies by less than
        float32 can hold has a standard deviation of zero.

    Raises:
        DataError: If there are no rows.
    """
    if len(index) == 0:
        raise DataError("normalisation needs at least one training row, but there is none")
    images = inputs.dtype == np.uint8 and inputs.ndim > 2
    mean, std = _of_pixels(inputs, index) if images else _of_floats(inputs, index)
    # Rounding alone gives a constant column a tiny deviation, and dividing by it would blow up new values.
    return mean, np.where(std <= 1e-7 * np.abs(mean), 0.0, std)


def _chunks(inputs: NDArray, index: NDArray) -> Iterator[NDArray]:
    """The rows, a few at a time, as [values, columns]."""
    for rows in row_chunks(len(index), inputs[0].size, _CHUNK_VALUES):
        yield inputs[index[rows]].reshape(-1, inputs.shape[-1])


def _of_pixels(inputs: NDArray, index: NDArray) -> Statistics:
    """Exact, from the counts of the 256 possible values."""
    counts = np.zeros((inputs.shape[-1], 256), np.int64)  # [C, 256]
    for chunk in _chunks(inputs, index):
        for channel, count in enumerate(counts):
            count += np.bincount(chunk[:, channel], minlength=256)
    values = np.arange(256) / 255
    total = counts.sum(axis=1)  # [C]
    mean = counts @ values / total
    variance = (counts * (values - mean[:, None]) ** 2).sum(axis=1) / total
    return mean, np.sqrt(variance)


def _of_floats(inputs: NDArray, index: NDArray) -> Statistics:
    """In two passes and float64, because the mean of squares loses small deviations around a large mean."""
    scale = 255 if inputs.dtype == np.uint8 else 1
    total, count = np.zeros(inputs.shape[-1]), 0
    for chunk in _chunks(inputs, index):
        total += (chunk.astype(np.float64) / scale).sum(axis=0)
        count += len(chunk)
    mean = total / count
    squares = np.zeros_like(mean)
    for chunk in _chunks(inputs, index):
        squares += ((chunk.astype(np.float64) / scale - mean) ** 2).sum(axis=0)
    return mean, np.sqrt(squares / count)


class Outputs(NamedTuple):
    """The output of the classifier for a batch. Logits are before the softmax."""

    features: Tensor  # [B, D]
    logits: Tensor  # [B, C]
    noisy_logits: Tensor  # [B, C]


class TwoHeadClassifier(nn.Module):
    """An encoder with a head for the labels and a head for the noisy labels.

    Args:
        encoder: A module that maps a batch to features [B, D] and has `feature_dim`, as `build_encoder` returns it.
        num_classes: The number of classes of both heads.
        normalise: Applied to a batch before the encoder; None only scales uint8 pixels to [0, 1].
        bfloat16: Whether the encoder computes in bfloat16 where that is safe; its weights and all else stay in float32.
    """

    def __init__(
        self, encoder: nn.Module, num_classes: int, normalise: Normalise | None = None, bfloat16: bool = False
    ) -> None:
        super().__init__()
        self.in_bfloat16 = bfloat16
        feature_dim: Any = encoder.feature_dim
        self.normalise = Normalise.identity() if normalise is None else normalise
        self.encoder = encoder
        # The noisy head comes last: a one-head network from the same seed then has the same encoder and head.
        self.head = nn.Linear(feature_dim, num_classes)
        self.noisy_head = nn.Linear(feature_dim, num_classes)

    def forward(self, x: Tensor) -> Outputs:
        x = self.normalise(x)
        if self.in_bfloat16:
            with torch.autocast(x.device.type, torch.bfloat16):
                features = self.encoder(x).float()  # [B, D]
        else:
            features = self.encoder(x)  # [B, D]
        return Outputs(features, self.head(features), self.noisy_head(features))
