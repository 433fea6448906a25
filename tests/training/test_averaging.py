"""Averaged weights by hand: the recursion, running statistics, checkpoints, and nothing at all when off."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_rows import float_rows, make_model
from toys import same_state, state_of

import labelloop
from labelloop.config.base import TrainingConfig
from labelloop.errors import UsageError
from labelloop.methods.closed_loop import loop
from labelloop.training import setup
from labelloop.training.averaging import WeightAverage


def take_steps(model, optimizer, count, seed=0):
    """Random steps; the states of the model after each."""
    generator, states = torch.Generator().manual_seed(seed), []
    for _ in range(count):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
        states.append(state_of(model))
    return states


def test_the_average_is_the_recursion_written_out():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average, expected = WeightAverage(model, optimizer, 0.6), state_of(model)
    for n, state in enumerate(take_steps(model, optimizer, 20), start=1):
        keep = min(0.6, (1 + n) / (10 + n))
        expected = {name: keep * expected[name] + (1 - keep) * state[name] for name in state}
    for name, value in average.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)


def test_weights_that_stand_still_are_their_own_average():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    average = WeightAverage(model, optimizer, 0.99)
    take_steps(model, optimizer, 5)
    assert same_state(state_of(average.model), state_of(model))
    assert not any(weight.requires_grad for weight in average.model.parameters())  # no gradient is kept of it


def test_the_start_is_soon_forgotten():
    """What is left of the random start after n steps: below 1 in 1,000 after 10, though the decay is 0.999."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    average = WeightAverage(model, optimizer, 0.999)
    start = state_of(average.model)["head.weight"]
    with torch.no_grad():
        model.head.weight.zero_()
    take_steps(model, optimizer, 10)
    assert (state_of(average.model)["head.weight"].abs() <= 1e-3 * start.abs()).all()


def test_running_statistics_are_averaged_and_counts_copied():
    model = make_model("small-cnn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = WeightAverage(model, optimizer, 0.5)
    buffers = [name for name, _ in model.named_buffers() if "running" in name or "tracked" in name]
    assert buffers
    before = state_of(average.model)
    model.train()
    model(torch.rand(8, 3, 8, 8)).logits.sum().backward()
    optimizer.step()
    keep = 2 / 11
    for name in buffers:
        now = model.state_dict()[name]
        expected = keep * before[name] + (1 - keep) * now if now.is_floating_point() else now
        torch.testing.assert_close(average.model.state_dict()[name], expected)


def test_off_it_is_the_network_itself_and_stores_nothing():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = WeightAverage(model, optimizer, 0.0)
    assert average.model is model
    assert average.to_arrays() == {}
    average.from_arrays({})


def test_it_does_not_change_the_training():
    states = []
    for decay in (0.0, 0.9):
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        average = WeightAverage(model, optimizer, decay)
        states.append(take_steps(model, optimizer, 3)[-1])
        assert (average.model is model) == (decay == 0)
    assert same_state(*states)


def test_a_restored_average_goes_on_as_the_first_would_have():
    def start():
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, optimizer, WeightAverage(model, optimizer, 0.7)

    model, optimizer, average = start()
    take_steps(model, optimizer, 4)
    stored = {name: value.copy() for name, value in average.to_arrays().items()}
    other, other_optimizer, restored = start()
    other.load_state_dict(state_of(model))
    restored.from_arrays(stored)
    take_steps(model, optimizer, 3, seed=1)
    take_steps(other, other_optimizer, 3, seed=1)
    assert same_state(state_of(average.model), state_of(restored.model))


def test_the_average_takes_no_gradient_and_says_something():
    model = make_model()
    average = WeightAverage(model, torch.optim.SGD(model.parameters(), lr=0.1), 0.5)
    assert not any(parameter.requires_grad for parameter in average.model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert np.isfinite(average.model(torch.from_numpy(float_rows(3).inputs)).logits.numpy()).all()


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_that_is_none_is_refused(decay):
    with pytest.raises(UsageError, match="average_weights"):
        TrainingConfig(average_weights=decay)


def test_the_closed_loop_looks_at_the_averaged_network(tmp_path, monkeypatch):
    """What is extracted for a correction, recorded and returned is the average, not the network that is trained."""
    averages, looked_at = [], []
    make, look = setup.WeightAverage, loop.extract

    def made(*given):
        averages.append(make(*given))
        return averages[-1]

    def looked(model, *given):
        looked_at.append(model)
        return look(model, *given)

    monkeypatch.setattr(setup, "WeightAverage", made)
    monkeypatch.setattr(loop, "extract", looked)
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 3)) + y[:, None]
    config = {
        "epochs": 2,
        "warm_up": 1,
        "correct_every": 1,
        "network": "mlp",
        "augment": "none",
        "average_weights": 0.9,
    }
    settings = config | {"network_options": {"hidden": [4]}, "average_weights": 0.9}
    result = labelloop.fit(X, y, np.where(np.arange(60) < 20, y, -1), recipe="paper", config=settings, progress=False)
    assert looked_at
    assert all(model is averages[0].model for model in looked_at)
    assert result.model.network is averages[0].model
