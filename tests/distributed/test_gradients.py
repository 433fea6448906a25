"""Gradients of several processes: summed while `backward` still works, names and unused heads as in one process."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import numpy as np
import pytest
import torch
from launched import launched
from toys import quiet

from labelloop.errors import DataError
from labelloop.training.ranks import ALONE, Ranks, join

WIDTH, LAYERS = 512, 4  # a megabyte each, so that the sums travel in several messages


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers)


def gradients(ranks: Ranks) -> dict[str, np.ndarray]:
    """Of the sum over six rows, of which each process has its part; the last layer is not used."""
    model, rows = network(), torch.linspace(-1, 1, 6 * WIDTH).view(6, WIDTH)
    used = model[:-1]
    model.forward = used.forward  # type: ignore[method-assign]
    with quiet(ranks=ranks).sharing(model, model[-1].parameters()) as shared:
        for _ in range(3):  # torch puts its messages together anew after the first step
            model.zero_grad()
            ranks.backward(shared(rows[ranks.mine(6)]).square().sum())
    assert all(parameter.requires_grad for parameter in model.parameters())
    return {name: value.grad.numpy() for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("count", [2, 3])
def test_gradients_are_those_of_the_whole_batch_and_the_same_in_all(count, tmp_path):
    alone = gradients(ALONE)
    assert list(alone) == [f"{layer}.weight" for layer in range(LAYERS - 1)]

    def do(rank: int) -> None:
        np.savez(tmp_path / f"{rank}.npz", **gradients(join(count)))

    ended = launched(do, count)
    assert [one.code for one in ended] == [0] * count, ended[0].err
    found = [np.load(tmp_path / f"{rank}.npz") for rank in range(count)]
    for name, value in alone.items():
        np.testing.assert_allclose(found[0][name], value, rtol=0, atol=1e-5 * np.abs(value).max())
        for other in found[1:]:
            np.testing.assert_array_equal(other[name], found[0][name])
    assert all(set(one.files) == set(alone) for one in found)


def test_sums_travel_while_backward_works(tmp_path):
    def do(rank: int) -> None:
        model, ranks = network(), join(2)
        with ranks.sharing(model) as shared:
            ranks.backward(shared(torch.ones(4, WIDTH)).sum())
            # The first layer, last of all, begins a second later: a busy machine does not hide what was sent before.
            model[1].weight.register_hook(lambda _: time.sleep(1))
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as watched:
                ranks.backward(shared(torch.ones(4, WIDTH)).sum())
        spans: dict[str, list[Any]] = {"gloo:all_reduce": [], "MmBackward0": []}
        for event in watched.events():
            for name, found in spans.items():
                if name in event.name:
                    found.append(event.time_range.start)
        (tmp_path / f"{rank}").write_text(json.dumps([sorted(each) for each in spans.values()]))

    ended = launched(do)
    assert [one.code for one in ended] == [0, 0], ended[0].err
    for rank in range(2):
        sums, layers = json.loads((tmp_path / f"{rank}").read_text())
        assert len(sums) >= 2
        assert len(layers) >= LAYERS
        assert sums[0] < layers[-1]


def test_a_process_that_dies_within_a_step_is_missed(tmp_path):
    def do(rank: int) -> int:
        model, ranks = network(), join(2)
        if rank == 1:
            model[1].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        try:
            with ranks.sharing(model) as shared:
                ranks.backward(shared(torch.ones(4, WIDTH)).sum())
        except DataError as error:
            print(error)
            return 1
        return 0

    first, second = launched(do)
    assert (first.code, second.code) == (1, -signal.SIGKILL)
    assert "process 0 of 2 has lost the others" in first.out
    assert "--resume" in first.out


def test_what_goes_wrong_in_the_network_itself_is_not_blamed_on_the_others():
    def do(rank: int) -> None:
        ranks = join(2)
        with ranks.sharing(network()) as shared, pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            shared(torch.ones(4, WIDTH + 1))
        ones = torch.ones(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="scalar outputs"):
            ranks.backward(ones * 2)

    ended = launched(do)
    assert [one.code for one in ended] == [0, 0], ended[0].err
