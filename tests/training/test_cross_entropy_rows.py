"""The four rows of plain cross-entropy: which labels they read, on which rows, at which learning rate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from toys import quiet, same_state, toy_problem

from labelloop.errors import UsageError
from labelloop.methods import METHODS
from labelloop.methods.cross_entropy import FineTuneConfig
from labelloop.seeds import integer, stream
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, resolve
from labelloop.types import MISSING, Problem

ROWS = ("cross-entropy", "clean-only", "noisy-and-clean", "fine-tune")


def configure(name: str, problem: Problem, **changes):
    settings: dict[str, Any] = {"network_options": {"hidden": [16]}, "epochs": 4, "batch_size": 32}
    settings["learning_rate"] = 0.05
    if name == "fine-tune":
        settings |= {"fine_tune_epochs": 2, "fine_tune_learning_rate": 0.02}
    return resolve(METHODS[name].config(**(settings | changes)), problem)


def train(name: str, problem: Problem, seed: int = 0, **changes):
    return METHODS[name].fit(problem, configure(name, problem, **changes), quiet(seed))


def relabelled(problem: Problem, *, noisy: bool = False, clean: bool = False) -> Problem:
    if noisy:
        problem = replace(problem, train=replace(problem.train, labels=(problem.train.labels + 1) % 3))
    if clean:
        labels = (problem.clean.clean_labels + 1) % 3
        problem = replace(problem, clean=replace(problem.clean, clean_labels=labels))
    return problem


READS = {
    "cross-entropy": (True, False),
    "clean-only": (False, True),
    "noisy-and-clean": (True, True),
    "fine-tune": (True, True),
}


@pytest.mark.parametrize("name", ROWS)
def test_which_labels_are_read(name):
    problem = toy_problem()
    state = train(name, problem).model.state_dict()
    reads_noisy, reads_clean = READS[name]
    other_noisy = train(name, relabelled(problem, noisy=True)).model.state_dict()
    other_clean = train(name, relabelled(problem, clean=True)).model.state_dict()
    assert same_state(state, other_noisy) is not reads_noisy
    assert same_state(state, other_clean) is not reads_clean


@pytest.mark.parametrize("name", ROWS)
def test_the_given_label_of_a_paired_clean_row_is_never_read(name):
    problem = toy_problem()
    paired = replace(problem, clean=replace(problem.clean, labels=(problem.clean.clean_labels + 1) % 3))
    assert same_state(train(name, problem).model.state_dict(), train(name, paired).model.state_dict())


class Watching(Runtime):
    """Notes the rows of every training batch, by the number in their first column, with the learning rate."""

    def __init__(self, **arguments) -> None:
        super().__init__(0, device="cpu", progress=False, **arguments)
        self.epoch_rows: list[list[int]] = []

    def prepare(self, model):
        model.register_forward_pre_hook(
            lambda _, x: self.epoch_rows[-1].extend(np.round(x[0][:, 0].numpy()).astype(int).tolist())
        )
        return super().prepare(model)

    def phase(self, name):
        if name == "train":
            self.epoch_rows.append([])
        return super().phase(name)


def rows_by_epoch(name: str, **changes) -> tuple[Problem, list[list[int]]]:
    problem = toy_problem()
    problem.train.inputs[:, 0] = np.arange(len(problem.train.inputs))
    runtime = Watching()
    METHODS[name].fit(problem, configure(name, problem, **changes), runtime)
    return problem, [sorted(rows) for rows in runtime.epoch_rows]


def test_cross_entropy_sees_the_training_rows():
    problem, epochs = rows_by_epoch("cross-entropy")
    assert epochs == [problem.train.index.tolist()] * 4


def test_clean_only_repeats_the_clean_rows_until_an_epoch_is_as_long():
    problem, epochs = rows_by_epoch("clean-only")
    assert len(problem.train) == 3 * len(problem.clean)
    assert epochs == [sorted(problem.clean.index.tolist() * 3)] * 4


def test_noisy_and_clean_sees_both():
    problem, epochs = rows_by_epoch("noisy-and-clean")
    assert epochs == [sorted([*problem.train.index, *problem.clean.index])] * 4


def test_fine_tune_sees_the_noisy_rows_first_and_the_clean_rows_afterwards():
    problem, epochs = rows_by_epoch("fine-tune")
    assert epochs == [problem.train.index.tolist()] * 4 + [problem.clean.index.tolist()] * 2


def test_fine_tune_begins_as_cross_entropy():
    problem = toy_problem()
    first = train("cross-entropy", problem).model.state_dict()

    class Stopped(Exception):
        pass

    class Stopping(Runtime):
        def record(self, epoch, model, *arguments):
            if epoch == 4:
                assert same_state(model.state_dict(), first)
                raise Stopped

    with pytest.raises(Stopped):
        METHODS["fine-tune"].fit(problem, configure("fine-tune", problem), Stopping(0, device="cpu", progress=False))


def test_fine_tune_has_its_own_learning_rate_and_no_drops(monkeypatch):
    from labelloop.methods import cross_entropy

    problem, rates = toy_problem(), []
    original = cross_entropy.train_epoch

    def note(model, rows, targets, noisy, weight, optimizer, *rest):
        loss = original(model, rows, targets, noisy, weight, optimizer, *rest)
        rates.append(optimizer.param_groups[0]["lr"])
        return loss

    monkeypatch.setattr(cross_entropy, "train_epoch", note)
    train("fine-tune", problem, epochs=5, fine_tune_epochs=3)
    np.testing.assert_allclose(rates, [0.05, 0.05, 0.05, 0.005, 0.0005, 0.02, 0.02, 0.02])


def test_fine_tune_needs_an_epoch():
    with pytest.raises(UsageError, match="fine_tune_epochs"):
        FineTuneConfig(fine_tune_epochs=0)


def plain_cross_entropy(problem: Problem, config, x: torch.Tensor, y: torch.Tensor, seed: int) -> dict:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(seed, "network"))
        hidden, head = nn.Linear(6, 16), nn.Linear(16, 3)
    scale = new_classifier(config, problem, seed).normalise
    optimizer = torch.optim.SGD([*hidden.parameters(), *head.parameters()], lr=1.0, momentum=0.9, weight_decay=5e-4)
    for epoch in range(1, config.epochs + 1):
        optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch)
        for batch in torch.tensor(stream(seed, "batches", epoch).permutation(len(x))).split(config.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(head(torch.relu(hidden(scale(x[batch])))), y[batch]).backward()
            optimizer.step()
    return {"encoder.hidden.0.weight": hidden.weight, "head.weight": head.weight, "head.bias": head.bias}


@pytest.mark.parametrize("name", ["cross-entropy", "clean-only", "noisy-and-clean"])
def test_each_equals_a_plain_loop_bit_for_bit(name):
    problem = toy_problem()
    train_rows, clean = problem.train, problem.clean
    index = {
        "cross-entropy": train_rows.index,
        "clean-only": np.tile(clean.index, 3),
        "noisy-and-clean": np.concatenate([train_rows.index, clean.index]),
    }[name]
    labels = {
        "cross-entropy": train_rows.labels,
        "clean-only": np.tile(clean.clean_labels, 3),
        "noisy-and-clean": np.concatenate([train_rows.labels, clean.clean_labels]),
    }[name]
    x, y = torch.tensor(train_rows.inputs[index]), torch.tensor(labels)
    expected = plain_cross_entropy(problem, configure(name, problem), x, y, seed=2)
    state = train(name, problem, seed=2).model.state_dict()
    for key, value in expected.items():
        assert torch.equal(state[key], value), key


@pytest.mark.parametrize("name", ROWS)
def test_the_given_labels_are_handed_back_as_they_are(name):
    problem = toy_problem()
    problem.train.labels[-5:] = MISSING
    fitted = train(name, problem)
    np.testing.assert_array_equal(fitted.targets[:-5], np.eye(3)[problem.train.labels[:-5]])
    np.testing.assert_array_equal(fitted.targets[-5:], 0)
    assert fitted.rounds == ()
    assert fitted.stop_reason == "epoch limit"


@pytest.mark.parametrize("name", ROWS)
def test_one_seed_agrees_with_itself_and_another_differs(name):
    problem = toy_problem()
    state = train(name, problem).model.state_dict()
    assert same_state(state, train(name, problem).model.state_dict())
    assert not same_state(state, train(name, problem, seed=1).model.state_dict())


def test_clean_rows_help_to_find_the_true_labels():
    problem = toy_problem(n=200, m=100)
    clean = train("clean-only", problem, epochs=10)
    rows = problem.clean
    with torch.no_grad():
        logits = clean.model.eval()(torch.tensor(rows.inputs[rows.index])).logits
    assert (logits.argmax(dim=1).numpy() == rows.clean_labels).mean() > 0.9
