"""Batch normalisation over a whole batch that several processes share. torch has it only for GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Total = Callable[[Tensor], Tensor]
Model = TypeVar("Model", bound=nn.Module)


def over_whole_batches(model: Model, total: Total, device: torch.device) -> Model:
    """The model with batch norms over all processes' rows; names of parameters and buffers stay the same.

    Args:
        model: Changed in place.
        total: Sums a tensor over the processes, in place.
        device: Where the model will be.
    """
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for name, part in model.named_children():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            setattr(model, name, _WholeBatchNorm.like(part, total))
        else:
            over_whole_batches(part, total, device)
    return model


class _WholeBatchNorm(nn.modules.batchnorm._BatchNorm):
    total: Total

    @classmethod
    def like(cls, other: nn.modules.batchnorm._BatchNorm, total: Total) -> _WholeBatchNorm:
        norm = cls(other.num_features, other.eps, other.momentum, other.affine, other.track_running_stats)
        norm.__dict__.update(
            {key: value for key, value in vars(other).items() if key in ("_parameters", "_buffers", "training")}
        )
        norm.total = total
        return norm

    def _check_input_dim(self, x: Tensor) -> None:
        """Accepts any shape, since `_statistics` handles them all."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.running_mean is None or self.running_var is None:
            return super().forward(x)
        count, mean, variance = _statistics(x.detach(), self.total)
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
            self.running_var.lerp_((variance * count / (count - 1).clamp(min=1)).to(self.running_var.dtype), share)
        return _Normalised.apply(x, self.weight, self.bias, mean, variance, count, self.eps, self.total)


def _statistics(x: Tensor, total: Total) -> tuple[Tensor, Tensor, Tensor]:
    """The number of values of a channel in all processes, their mean and their variance [C], in double precision."""
    count = x.new_full((1,), x.numel() // x.shape[1], dtype=torch.float64)
    sums = x.new_zeros(2 * x.shape[1], dtype=torch.float64)
    if x.numel():  # a small batch may leave nothing for this process
        # torch's own pass over a batch, which is faster than var_mean
        found = torch.batch_norm_update_stats(_whole_floats(x), None, None, 0.0)
        mean, variance = (value.double() for value in found)
        sums = torch.cat([count * mean, count * (variance + mean.square())])
    summed = total(torch.cat([count, sums]))
    count, (mean, squares) = summed[0], (summed[1:] / summed[0].clamp(min=1)).chunk(2)
    return count, mean, (squares - mean.square()).clamp(min=0)


def _whole_floats(x: Tensor) -> Tensor:
    """Single precision for values that autocast has made half precision."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class _Normalised(torch.autograd.Function):
    """(x - mean) / std * weight + bias, where mean and std depend on the rows of all processes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        eps: float,
        total: Total,
    ) -> Tensor:
        mean, variance = mean.to(_whole_floats(x).dtype), variance.to(_whole_floats(x).dtype)
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(variance + eps))
        ctx.count, ctx.total = float(count), total
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (slope,) = gradients
        x, weight, mean, inverse_std = ctx.saved_tensors
        slope, kept, x = _whole_floats(slope), x.dtype, _whole_floats(x)
        scale = inverse_std if weight is None else inverse_std * weight
        # With mean and std held fixed, torch's own pass gives the gradient and both sums over this process's rows.
        held = (mean, inverse_std.pow(-2), None, None, False, 0.0)
        if x.numel():
            found, along_normal, along = torch.ops.aten.native_batch_norm_backward(slope, x, weight, *held, [True] * 3)
        else:
            found, along_normal, along = slope.clone(), torch.zeros_like(mean), torch.zeros_like(mean)
        summed = ctx.total(torch.cat([along, along_normal]))
        of_mean, of_std = (summed / ctx.count).chunk(2)
        # Minus scale · (of_mean + normal · of_std), a line in x for every channel.
        rise = scale * of_std * inverse_std
        shift = scale * of_mean - rise * mean
        channel = (1, -1, *[1] * (x.ndim - 2))
        found.sub_(torch.addcmul(shift.view(channel), x, rise.view(channel)))
        return found.to(kept), None if weight is None else along_normal, None if weight is None else along, *[None] * 5
