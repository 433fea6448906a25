"""How the loss on clean rows depends on each training row's share in a step: shared by MW-Net, L2B and EMLC.

One backward pass at the virtual parameters gives a direction; one forward-mode pass at the real parameters gives the
slope of every row's loss along it. This equals differentiating through a backward pass, in a fraction of the time and
memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from labelloop.config.base import TrainingConfig
from labelloop.models import Outputs
from labelloop.seeds import stream
from labelloop.training.augmentation import mix
from labelloop.training.batches import augmented_batches
from labelloop.training.runtime import Runtime
from labelloop.types import Labels, Rows

Parameters = Mapping[str, Tensor]


# --- gradients -------------------------------------------------------------------------------------------------------


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters, by name; frozen ones are left out."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def gradient(loss: Tensor, parameters: Parameters, retain_graph: bool = False) -> dict[str, Tensor]:
    """The gradient, by parameter name, without the parameters that the loss does not depend on."""
    found = torch.autograd.grad(loss, list(parameters.values()), retain_graph=retain_graph, allow_unused=True)
    return {name: value for name, value in zip(parameters, found, strict=True) if value is not None}


def outputs_at(model: nn.Module, parameters: Parameters, x: Tensor) -> Outputs:
    """The network's outputs with other parameters. Its own parameters and running statistics do not change."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}  # batch norm writes into these
    return functional_call(model, (dict(parameters), buffers), (x,))


def clean_gradient(model: nn.Module, parameters: Parameters, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The gradient of the mean loss on clean rows at virtual parameters, by one ordinary backward pass."""
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    return gradient(F.cross_entropy(outputs_at(model, leaves, x).logits, labels), leaves)


def slopes(
    model: nn.Module, parameters: Parameters, direction: Parameters, x: Tensor, quantity: Callable[[Tensor], Tensor]
) -> Tensor:
    """How fast `quantity(logits)` changes as the parameters move along `direction`: <direction, ∇quantity>.

    Args:
        model: In the mode (training or evaluation) in which the quantity is defined. It is not changed.
        parameters: Where to take the slope.
        direction: By parameter name; parameters without an entry do not move.
        x: The inputs.
        quantity: Such as the loss of every row, [B, C] -> [B].

    Returns:
        One slope for each value of the quantity, detached.
    """
    with warnings.catch_warnings(), torch.no_grad(), forward_ad.dual_level(), _FastFormulas():
        # Torch compiles its forward-mode formulas when they are first used, and warns about its own script compiler.
        warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)
        dual = {
            name: forward_ad.make_dual(value.detach(), direction[name]) if name in direction else value.detach()
            for name, value in parameters.items()
        }
        return forward_ad.unpack_dual(quantity(outputs_at(model, dual, x).logits)).tangent


class _FastFormulas(TorchFunctionMode):
    """Makes forward mode a third cheaper than torch's own formulas, with the same results.

    Torch's batch norm on batch statistics reads memory about 15 times and took half of a pass through a small
    convolutional network; its convolution also convolves the zero tangents of constant inputs.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        fast = {F.batch_norm: _batch_norm, F.conv2d: _convolution}.get(func, func)
        return fast(*args, **(kwargs or {}))


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None, *how: Any, **named: Any) -> Tensor:
    value, moved = forward_ad.unpack_dual(weight)
    if moved is None or forward_ad.unpack_dual(x).tangent is not None:
        return F.conv2d(x, weight, bias, *how, **named)
    shift, shift_moved = (None, None) if bias is None else forward_ad.unpack_dual(bias)
    return forward_ad.make_dual(
        F.conv2d(x, value, shift, *how, **named), F.conv2d(x, moved, shift_moved, *how, **named)
    )  # fmt: skip


def _batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    value, moved = forward_ad.unpack_dual(x)
    if not training or moved is None or weight is None or bias is None:
        return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    (scale, scale_moved), (shift, shift_moved) = forward_ad.unpack_dual(weight), forward_ad.unpack_dual(bias)
    # The running statistics are copies that nothing reads, so they are not updated.
    out, mean, inverse_std = torch.native_batch_norm(value, scale, shift, None, None, True, momentum, eps)
    others = [axis for axis in range(value.ndim) if axis != 1]
    per_channel = (1, -1, *[1] * (value.ndim - 2))
    centred = moved - moved.mean(others, keepdim=True)
    product = value * centred
    together = product.mean(others) * inverse_std**2  # [C] how the deviation moves, over the variance
    # out' = scale (centred - (value - mean) together) / std + scale' (value - mean) / std + shift'
    #      = slope centred + tilt value + rest
    slope = scale * inverse_std  # [C]
    tilt = -slope * together  # [C]
    if scale_moved is not None:
        tilt = tilt + scale_moved * inverse_std
    rest = -tilt * mean  # [C]
    if shift_moved is not None:
        rest = rest + shift_moved
    slope, tilt, rest = (channel.view(per_channel) for channel in (slope, tilt, rest))
    torch.addcmul(rest, value, tilt, out=product).addcmul_(centred, slope)  # reuses memory
    return forward_ad.make_dual(out, product)


# --- batches ---------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Training rows and clean rows of one step, on the device."""

    position: Labels  # [B] where the training rows are among those passed in
    x: Tensor
    labels: Tensor  # [B], or [B, C] where rows are blended
    clean_x: Tensor
    clean_labels: Tensor  # [M]
    draw: int  # seeds dropout: two passes over the same rows must drop the same values


def batches_with_clean(
    train: Rows,
    clean: Rows,
    batch_size: int,
    clean_batch_size: int,
    config: TrainingConfig,
    runtime: Runtime,
    epoch: int,
    fresh: bool = False,
) -> Iterator[Batch]:
    """One epoch over the training rows, in the same order as for cross-entropy, each batch with one of clean rows.

    Args:
        train: Rows with a label.
        clean: Fewer rows than a batch are all used in every step.
        batch_size: Training rows per step.
        clean_batch_size: Clean rows per step.
        config: Augmentation, of both kinds of rows.
        runtime: Device and seed.
        epoch: Names the random streams.
        fresh: Whether to draw the clean rows anew at every step, instead of going through all before any repeats.
    """
    seed = runtime.seed
    order = stream(seed, "batches", epoch).permutation(len(train))
    size = min(clean_batch_size, len(clean))
    steps = -(-len(train) // batch_size) + 1  # one to spare, however a left-over row is batched
    clean_order = _clean_order(len(clean), size, steps, stream(seed, "clean-batches", epoch), fresh)
    noisy_batches = augmented_batches(train, order, batch_size, config, runtime, epoch)
    clean_batches = augmented_batches(clean, clean_order, size, config, runtime, epoch, "clean")
    draws = stream(seed, "dropout", epoch)
    for (position, x), (clean_position, clean_x) in zip(noisy_batches, clean_batches, strict=False):
        yield Batch(
            position,
            x,
            torch.from_numpy(train.labels[position]).to(runtime.device),
            clean_x,
            torch.from_numpy(clean.clean_labels[clean_position]).to(runtime.device),
            int(draws.integers(2**62)),
        )


def blended(batch: Batch, alpha: float, num_classes: int, rng: np.random.Generator) -> Batch:
    """The batch with its training rows blended by mixup; their labels become soft labels [B, C].

    Cross-entropy is linear in its target, so the loss towards a blend of labels is the blend of the losses.
    """
    x, partner, share = mix(batch.x, alpha, rng)
    if partner is None:
        return batch
    labels = F.one_hot(batch.labels, num_classes).float()
    return batch._replace(x=x, labels=torch.lerp(labels[partner], labels, share))


def _clean_order(count: int, size: int, steps: int, rng: np.random.Generator, fresh: bool) -> Labels:
    """Positions for `steps` full batches; no batch holds a row twice."""
    per_shuffle = 1 if fresh else count // size
    shuffles = -(-steps // per_shuffle)
    return np.concatenate([rng.permutation(count)[: per_shuffle * size] for _ in range(shuffles)])[: steps * size]
