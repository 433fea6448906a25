"""The surroundings of a run: streams and random state, clocks, the record, and the folder it is kept in."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from tiny_rows import image_rows, make_model
from toys import new_folder, quiet, random_states, same_state, state_of, toy_problem

from labelloop.runs.folder import RunFolder
from labelloop.splits import one_hot
from labelloop.training.epoch import extract
from labelloop.training.runtime import Runtime
from labelloop.types import MISSING, Rows, Truth


def truth_of(problem) -> Truth:
    rng = np.random.default_rng(7)
    inputs = rng.normal(size=(25, 6)).astype(np.float32)
    test = Rows(inputs, np.arange(25), np.full(25, MISSING), rng.integers(3, size=25))
    return Truth(rng.integers(3, size=len(problem.train)), test)


def test_epochs_count_from_one():
    assert list(quiet().epochs(4)) == [1, 2, 3, 4]
    assert list(quiet().epochs(0)) == []


@pytest.mark.parametrize("ending", ["to the end", "break", "error"])
def test_a_run_leaves_the_callers_random_state_alone(ending):
    def use() -> None:
        for epoch in quiet().epochs(3):
            torch.manual_seed(epoch)
            torch.rand(5)
            if ending == "break" and epoch == 2:
                break
            if ending == "error" and epoch == 2:
                raise RuntimeError

    before = random_states()
    if ending == "error":
        with pytest.raises(RuntimeError):
            use()
    else:
        use()
    assert random_states() == before


def test_seconds_are_kept_by_phase_and_start_again_every_epoch():
    runtime, problem, model = quiet(), toy_problem(), make_model()
    for epoch in runtime.epochs(2):
        with runtime.phase("train"):
            pass
        with runtime.phase("train"):
            pass
        if epoch == 1:
            with runtime.phase("extract"):
                pass
        runtime.record(epoch, model, problem, one_hot(problem.train.labels, 3), {})
    assert [set(row["seconds"]) for row in runtime.history] == [{"train", "extract", "evaluate"}, {"train", "evaluate"}]
    assert all(seconds >= 0 for row in runtime.history for seconds in row["seconds"].values())


def test_the_record_compares_with_the_truth():
    problem = toy_problem()
    truth, model = truth_of(problem), make_model()
    targets = np.random.default_rng(0).dirichlet(np.ones(3), len(problem.train)).astype(np.float32)
    runtime = quiet(truth=truth)
    runtime.record(1, model, problem, targets, {"loss": 0.5})
    row = runtime.history[0]
    predicted = extract(model, truth.test, runtime).logits.argmax(axis=1)
    assert row["epoch"] == 1
    assert row["loss"] == 0.5
    assert row["test_accuracy"] == (predicted == truth.test.clean_labels).mean()
    assert row["given_label_accuracy"] == (problem.train.labels == truth.train_labels).mean()
    assert row["corrected_label_accuracy"] == (targets.argmax(axis=1) == truth.train_labels).mean()
    good = problem.train.labels == truth.train_labels
    broken = (targets.argmax(axis=1) != truth.train_labels)[good].mean()
    assert row["good_labels_broken"] == pytest.approx(broken)


def test_without_truth_the_record_says_nothing_of_it():
    problem, runtime = toy_problem(), quiet()
    runtime.record(1, make_model(), problem, one_hot(problem.train.labels, 3), {"loss": 0.5})
    assert set(runtime.history[0]) >= {"epoch", "loss", "seconds"}
    assert not [name for name in runtime.history[0] if "accuracy" in name or "broken" in name]


def test_true_labels_that_are_not_known_are_not_counted():
    problem = toy_problem()
    truth = truth_of(problem)
    truth.train_labels[10:] = MISSING
    targets = one_hot(truth.train_labels, 3)
    targets[10:] = [1, 0, 0]
    runtime = quiet(truth=truth)
    runtime.record(1, make_model(), problem, targets, {})
    assert runtime.history[0]["corrected_label_accuracy"] == 1


def test_the_record_leaves_the_network_and_the_random_states_alone():
    problem = toy_problem()
    model = make_model("mlp", hidden=[16], dropout=0.5).train()
    before, states = state_of(model), random_states()
    quiet(truth=truth_of(problem)).record(1, model, problem, one_hot(problem.train.labels, 3), {})
    assert same_state(model.state_dict(), before)
    assert model.training
    assert random_states() == states


def test_the_folder_holds_a_row_an_epoch(tmp_path):
    problem, model = toy_problem(), make_model()
    runtime = quiet(folder=new_folder(tmp_path / "run"))
    for epoch in runtime.epochs(3):
        runtime.record(epoch, model, problem, one_hot(problem.train.labels, 3), {"loss": 1 / epoch})
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows == runtime.history
    assert [row["loss"] for row in rows] == [1, 1 / 2, 1 / 3]


def run_epochs(runtime: Runtime, problem, model, optimizer, until: int) -> list[int]:
    done = []
    for epoch in runtime.epochs(until):
        runtime.record(epoch, model, problem, one_hot(problem.train.labels, 3), {})
        runtime.save(epoch, model, optimizer, {"targets": np.full((2, 3), epoch, np.float32)}, [], {"epoch": epoch})
        done.append(epoch)
    return done


def test_restoring_puts_network_optimiser_epoch_and_record_back(tmp_path):
    problem, model = toy_problem(), make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(4, 6)).logits.sum().backward()
    optimizer.step()
    first = quiet(folder=new_folder(tmp_path / "run"))
    assert first.restore(model, optimizer) is None
    assert run_epochs(first, problem, model, optimizer, 3) == [1, 2, 3]
    first.record(4, model, problem, one_hot(problem.train.labels, 3), {})  # recorded, but not saved

    other = make_model(seed=1)
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9)
    second = quiet(folder=RunFolder(tmp_path / "run", resume=True))
    saved = second.restore(other, other_optimizer)
    assert saved.epoch == 3
    assert saved.values == {"epoch": 3}
    np.testing.assert_array_equal(saved.arrays["targets"], 3)
    assert same_state(other.state_dict(), model.state_dict())
    assert other_optimizer.param_groups[0]["lr"] == 0.1
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"]
    assert torch.equal(other_optimizer.state_dict()["state"][0]["momentum_buffer"], momentum)
    assert [row["epoch"] for row in second.history] == [1, 2, 3], "epoch 4 will be run again"
    assert run_epochs(second, problem, other, other_optimizer, 5) == [4, 5]
    assert [row["epoch"] for row in second.folder.read_metrics()] == [1, 2, 3, 4, 5]


def test_without_a_folder_nothing_is_kept():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runtime = quiet()
    runtime.save(1, model, optimizer)
    assert runtime.restore(model, optimizer) is None
    assert list(runtime.epochs(2)) == [1, 2]


def test_a_convolutional_network_runs_channels_last_and_gives_the_same_numbers():
    rows = image_rows(10)
    model = make_model("small-cnn")
    plain = extract(model, rows, quiet()).logits
    runtime = quiet()
    prepared = runtime.prepare(model)
    assert prepared.encoder.blocks[1].conv.weight.is_contiguous(memory_format=torch.channels_last)
    x = runtime.inputs(torch.zeros(2, 3, 8, 8))
    assert x.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(extract(prepared, rows, runtime).logits, plain, atol=1e-5)


def test_a_network_of_columns_is_left_in_its_format():
    runtime = quiet()
    runtime.prepare(make_model())
    x = torch.zeros(2, 6)
    assert runtime.inputs(x) is x


def test_progress_is_drawn_only_when_asked(capfd):
    list(quiet().epochs(3))
    assert capfd.readouterr() == ("", "")
    list(Runtime(0, device="cpu", progress=None).epochs(3))
    assert capfd.readouterr() == ("", ""), "not a terminal"
    list(Runtime(0, device="cpu", progress=True).epochs(3))
    out, err = capfd.readouterr()
    assert out == ""
    assert "epoch" in err


def test_truth_is_held_by_the_runtime_alone():
    problem = toy_problem()
    assert not {"truth", "test", "train_labels"} & {f.name for f in dataclasses.fields(problem)}
    assert quiet()._truth == Truth()
