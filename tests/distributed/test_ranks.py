"""Where a process stands among others, as launchers say it; and what is refused. Nothing here starts a process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_two_processes import SHARED
from toys import toy

from labelloop.errors import ElsewhereError, UsageError
from labelloop.methods import METHODS, recipe_config
from labelloop.training.averaging import empty_arrays, pack, shapes, unpack
from labelloop.training.ranks import Ranks, alone_among_others, join, place_in
from labelloop.workflows.compose import RunOptions, check_task, make_task

MASTER = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
PLACES = {
    "nobody": ({}, Ranks()),
    "torchrun": (
        {**MASTER, "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
        Ranks(3, 4, 1, 2),
    ),
    "torchrun, again": (
        {**MASTER, "RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "3"},
        Ranks(0, 2, restarts=3),
    ),
    "torchrun, one": ({**MASTER, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, Ranks()),
    "one, without a rank": ({"WORLD_SIZE": "1"}, Ranks()),
    "torchrun inside srun": (
        {**MASTER, "RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "9"},
        Ranks(1, 2),
    ),
    "srun": (
        {**MASTER, "SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"},
        Ranks(5, 8, 1),
    ),
    "srun of an older SLURM": ({**MASTER, "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, Ranks(5, 8)),
    "a step of one task in a job of eight": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, Ranks()),
    "mpirun": (
        {**MASTER, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        Ranks(1, 2, 1),
    ),
}
WRONG = {
    "no rank": ({**MASTER, "WORLD_SIZE": "2"}, "RANK is not set and WORLD_SIZE 2"),
    "no number": ({**MASTER, "RANK": "0"}, "RANK is 0 and WORLD_SIZE not set"),
    "outside": ({**MASTER, "RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2 and WORLD_SIZE 2"),
    "words": ({**MASTER, "RANK": "first", "WORLD_SIZE": "2"}, "RANK=first is not a number"),
    "nowhere to meet": ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is not set"),
    "Accelerate without GPUs": (
        {**MASTER, "ACCELERATE_USE_CPU": "True"},  # what its version 1.15 sets for --cpu --num_processes 2
        "Accelerate was asked for several processes, but started this one alone",
    ),
    "srun, nowhere to meet": ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, "srun started 4 processes"),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_launcher_says_where_a_process_stands(name):
    environ, place = PLACES[name]
    assert place_in(environ) == place


@pytest.mark.parametrize("name", WRONG)
def test_an_environment_that_contradicts_itself_is_refused(name):
    environ, message = WRONG[name]
    with pytest.raises(UsageError, match=message):
        join(environ=environ)


def test_another_number_than_asked_for_is_refused_before_anybody_waits():
    with pytest.raises(UsageError, match="processes asked for: 4, taking part: 1; start it with `torchrun"):
        join(4, {})
    with pytest.raises(UsageError, match=r"taking part: 1 \(Accelerate's launcher started no other"):
        join(2, {"ACCELERATE_USE_CPU": "True"})
    environ = {**MASTER, "RANK": "0", "WORLD_SIZE": "2"}
    with pytest.raises(UsageError, match="processes asked for: 1, taking part: 2"):
        join(1, environ)
    with pytest.raises(ElsewhereError):  # one of them says it
        join(3, environ | {"RANK": "1"})


def test_a_single_process_near_a_launcher_is_said():
    assert alone_among_others({}) == ""
    assert "Accelerate's launcher started no other one" in alone_among_others({"ACCELERATE_MIXED_PRECISION": "no"})
    assert "`srun` before the command" in alone_among_others({"SLURM_NTASKS": "8"})


@pytest.mark.parametrize("total", [0, 1, 5, 128, 1001])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_parts_hold_everything_once(total, count):
    parts = [np.arange(total)[Ranks(rank, count).mine(total)] for rank in range(count)]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(total))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_values_travel_as_text_and_arrays():
    value = {
        "a": [1, 2.5, None, "x", True],
        3: (np.arange(6.0).reshape(2, 3), torch.ones(2)),
        "none": np.empty((0, 4), np.float32),
        "number": np.float64(1.5),
    }
    text, arrays = pack(value)
    made = empty_arrays(shapes(arrays))
    for to, array in zip(made, arrays, strict=True):
        to[...] = array
    again = unpack(text, made)
    assert again["a"] == value["a"]
    assert again["number"] == 1.5
    np.testing.assert_array_equal(again[3][0], value[3][0])
    assert torch.equal(again[3][1], value[3][1])
    assert again["none"].shape == (0, 4)
    assert isinstance(again[3], tuple)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_shares_its_batches_or_is_refused(method):
    """Those that share are trained by two processes in test_two_processes.py."""
    assert METHODS[method].shares_batches == (method in (*SHARED, "oracle"))
    problem, truth = toy(paired=10)
    task = make_task(method, recipe_config(method), problem, truth)
    if METHODS[method].shares_batches:
        check_task(task, "rows", RunOptions(ranks=Ranks(0, 2)))
    else:
        with pytest.raises(UsageError, match=f"{method}.*whole batch, and 2 take part; start one process"):
            check_task(task, "rows", RunOptions(ranks=Ranks(0, 2)))
