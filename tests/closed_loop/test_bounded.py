"""Runs whose arrays live in files, and runs that are killed within an epoch: both end in the same bytes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_loop import variant
from tiny import assert_same, run
from toys import new_folder, quiet

from labelloop import large_arrays
from labelloop.large_arrays import is_on_disk, memory_limit
from labelloop.methods.closed_loop import fit
from labelloop.runs.folder import RunFolder
from labelloop.training.checkpoint import PLACE, read_checkpoint
from labelloop.training.runtime import Runtime

pytestmark = pytest.mark.slow


@pytest.fixture
def all_is_large(monkeypatch, tmp_path):
    """Every array of more than 512 bytes is kept in a file."""
    monkeypatch.setattr(large_arrays, "SMALLEST", 512)
    monkeypatch.setattr(large_arrays, "SHARE", 2**30)
    with memory_limit("1M", tmp_path):
        yield


class Killed(Runtime):
    """Keeps its place after every step, and stops after one of them."""

    def __init__(self, folder: RunFolder, epoch: int, step: int) -> None:
        super().__init__(0, device="cpu", folder=folder, progress=False)
        self.stop = (epoch, step)

    def restore(self, *arguments, **named):
        found = super().restore(*arguments, **named)
        self._within.every = 0.0
        return found

    def after_step(self, epoch, step, loss, model):
        super().after_step(epoch, step, loss, model)
        if (epoch, step) == self.stop and model is self._within.model:
            raise KeyboardInterrupt


class Counted(Runtime):
    """Counts the steps of the network that is followed."""

    steps = 0

    def after_step(self, epoch, step, loss, model):
        super().after_step(epoch, step, loss, model)
        self.steps += model is self._within.model


@pytest.mark.parametrize("name", ["dropout", "batch norm", "averaged"])
@pytest.mark.parametrize(("epoch", "step"), [(1, 1), (5, 2)])
def test_a_run_killed_within_an_epoch_goes_on_from_there_to_the_same_bytes(name, epoch, step, tmp_path):
    problem, config, _ = variant(name)
    whole = run(problem, config)
    with pytest.raises(KeyboardInterrupt):
        fit(problem, config, Killed(new_folder(tmp_path / "run"), epoch, step))
    place = json.loads((tmp_path / "run" / "checkpoint" / PLACE).read_text())
    assert (place["epoch"], place["step"]) == (epoch, step)
    runtime = Counted(0, device="cpu", folder=RunFolder(tmp_path / "run", resume=True), progress=False)
    assert_same(fit(problem, config, runtime), whole)
    early = sum(len(row) > 0 for row in runtime.history[: epoch - 1])
    assert early == epoch - 1
    assert not (tmp_path / "run" / "checkpoint" / PLACE).exists()  # the last epoch is whole
    per_epoch = -(-100 // config.batch_size)
    assert runtime.steps <= (config.epochs - epoch + 1) * (per_epoch + 1) - step


def test_a_damaged_place_costs_the_epoch_and_nothing_else(tmp_path):
    problem, config, _ = variant("dropout")
    with pytest.raises(KeyboardInterrupt):
        fit(problem, config, Killed(new_folder(tmp_path / "run"), 4, 2))
    (tensors,) = (tmp_path / "run" / "checkpoint").glob("within-*.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-7])
    assert_same(run(problem, config, folder=RunFolder(tmp_path / "run", resume=True)), run(problem, config))


def test_no_place_is_kept_before_it_is_time(tmp_path):
    problem, config, _ = variant("plain")
    runtime = Killed(new_folder(tmp_path / "run"), 4, 2)
    runtime.restore = lambda *a, **n: Runtime.restore(runtime, *a, **n)
    with pytest.raises(KeyboardInterrupt):
        fit(problem, config, runtime)
    assert not (tmp_path / "run" / "checkpoint" / PLACE).exists()


@pytest.mark.parametrize("name", ["plain", "averaged", "all candidates"])
def test_a_run_with_its_arrays_in_files_is_the_same_bit_for_bit(name, tmp_path, all_is_large):
    problem, config, _ = variant(name)
    found = run(problem, config, folder=new_folder(tmp_path / "run"))
    assert is_on_disk(found.targets)
    kept = read_checkpoint(tmp_path / "run" / "checkpoint")
    assert is_on_disk(kept.arrays["targets"])
    assert [set(entry) >= {"train", "clean"} for entry in kept.past] == [True] * len(found.rounds)
    with memory_limit("64G"):
        assert_same(found, run(problem, config))


def test_a_run_with_its_arrays_in_files_resumes(tmp_path, all_is_large):
    problem, config, _ = variant("all features")
    with pytest.raises(KeyboardInterrupt):
        fit(problem, config, Killed(new_folder(tmp_path / "run"), 6, 2))
    resumed = run(problem, config, folder=RunFolder(tmp_path / "run", resume=True))
    assert_same(resumed, run(problem, config))
    large = {path.name for path in (tmp_path / "run" / "checkpoint").glob("*.npy")}
    assert any(name.startswith("targets-") for name in large)
    assert any(name.startswith("round-001-train-") for name in large)


def test_half_precision_keeps_soft_labels_in_half(tmp_path):
    problem, config, _ = variant("all features")
    with memory_limit("64G", half=True):
        found = fit(problem, config, quiet())
    assert found.targets.dtype == np.float16
    np.testing.assert_allclose(found.targets.astype(np.float32).sum(axis=1), 1, atol=0.01)
