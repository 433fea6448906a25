"""Batch norm over rows that several processes share: what torch's own says of the whole batch."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from labelloop.training.batch_norm import over_whole_batches


class Sums:
    """Adds up one tensor of each of several threads, as processes would."""

    def __init__(self, count: int) -> None:
        self.count, self.barrier = count, threading.Barrier(count)
        self.parts: list[Tensor] = []

    def __call__(self, part: Tensor) -> Tensor:
        self.parts.append(part)
        self.barrier.wait(20)
        summed = torch.stack(self.parts[-self.count :]).sum(dim=0)
        self.barrier.wait(20)
        return summed


@pytest.mark.parametrize("sizes", [(5, 3), (8, 0), (4, 2, 2)])
@pytest.mark.parametrize("shape", [(6,), (6, 4, 3)])
@pytest.mark.parametrize("affine", [True, False])
def test_outputs_gradients_and_running_values_are_those_of_the_whole_batch(sizes, shape, affine):
    torch.manual_seed(0)
    x = torch.randn(sum(sizes), *shape, dtype=torch.float64) * 3 + 1
    slope = torch.randn_like(x)
    kind = nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d
    whole = nn.Sequential(kind(6, affine=affine)).double()
    if affine:
        nn.init.normal_(whole[0].weight)
        nn.init.normal_(whole[0].bias)
    sums = Sums(len(sizes))
    copies = [nn.Sequential(kind(6, affine=affine)).double() for _ in sizes]
    for copy in copies:
        copy.load_state_dict(whole.state_dict())
        over_whole_batches(copy, sums, torch.device("cpu"))
    whole_x = x.clone().requires_grad_()
    expected = whole(whole_x)
    expected.backward(slope)

    def share(rank: int) -> tuple[Tensor, Tensor]:
        start = sum(sizes[:rank])
        mine = x[start : start + sizes[rank]].clone().requires_grad_()
        out = copies[rank](mine)
        out.backward(slope[start : start + sizes[rank]])
        return out.detach(), mine.grad

    with ThreadPoolExecutor(len(sizes)) as pool:
        outs, gradients = zip(*pool.map(share, range(len(sizes))), strict=True)
    torch.testing.assert_close(torch.cat(outs), expected.detach())
    torch.testing.assert_close(torch.cat(gradients), whole_x.grad)
    for name, value in whole[0].named_parameters():
        found = sum(dict(copy[0].named_parameters())[name].grad for copy in copies)
        torch.testing.assert_close(found, value.grad)
    for copy in copies:
        torch.testing.assert_close(copy[0].running_mean, whole[0].running_mean)
        torch.testing.assert_close(copy[0].running_var, whole[0].running_var)
