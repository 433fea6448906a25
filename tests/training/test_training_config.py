"""What every method's configuration shares, and how it becomes a network and an optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_rows import Items, float_rows, image_rows, make_rows
from toys import random_states, same_state, toy_problem

from labelloop.config.base import TrainingConfig
from labelloop.errors import UsageError
from labelloop.methods import METHODS
from labelloop.training.setup import new_classifier, new_optimizer, resolve, set_learning_rate
from labelloop.types import Problem


def problem_of(rows) -> Problem:
    return Problem(rows, rows, ("ant", "bee", "cat"))


def test_the_defaults_are_the_papers():
    config = TrainingConfig()
    assert (config.epochs, config.batch_size, config.learning_rate) == (100, 128, 0.1)
    assert (config.momentum, config.weight_decay) == (0.9, 5e-4)
    assert config.drop_epochs() == (60, 80)


def test_the_learning_rate_drops_after_60_and_80_finished_epochs():
    config = TrainingConfig()
    rates = [config.learning_rate_in(epoch) for epoch in (1, 60, 61, 80, 81, 100)]
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_the_drops_move_with_the_number_of_epochs():
    config = TrainingConfig(epochs=15, learning_rate_drops=(1 / 3, 2 / 3), learning_rate=0.01)
    assert config.drop_epochs() == (5, 10)
    rates = [config.learning_rate_in(epoch) for epoch in (5, 6, 10, 11)]
    np.testing.assert_allclose(rates, [0.01, 0.001, 0.001, 0.0001])
    assert TrainingConfig(learning_rate_drops=()).learning_rate_in(100) == 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"batch_size": -1}, "batch_size"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate_drops": (60, 80)}, "fractions"),
        ({"augment": "crop_flip"}, "did you mean 'crop-flip'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        TrainingConfig(**changes)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_frozen_configuration_with_defaults(name):
    config = METHODS[name].config()
    with pytest.raises(AttributeError):
        config.epochs = 3


@pytest.mark.parametrize(
    ("rows", "network", "augment"),
    [
        (float_rows(), "mlp", "none"),
        (image_rows(), "small-cnn", "crop-flip"),
        (image_rows(channels=1), "small-cnn", "none"),
        (make_rows(Items(float_rows().inputs)), "mlp", "none"),
    ],
    ids=["columns", "colour images", "grey images", "dataset"],
)
def test_automatic_values_follow_from_the_rows(rows, network, augment):
    config = resolve(TrainingConfig(epochs=7), problem_of(rows))
    assert (config.network, config.augment, config.epochs) == (network, augment, 7)
    chosen = resolve(TrainingConfig(network="resnet18", augment="none"), problem_of(rows))
    assert (chosen.network, chosen.augment) == ("resnet18", "none")


def test_the_seed_alone_fixes_the_network():
    problem = toy_problem()
    config = resolve(TrainingConfig(network_options={"hidden": [8]}), problem)
    before = random_states()
    first = new_classifier(config, problem, 3)
    assert random_states() == before
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        assert same_state(first.state_dict(), new_classifier(config, problem, 3).state_dict())
    assert not same_state(first.state_dict(), new_classifier(config, problem, 4).state_dict())


def test_the_two_heads_start_apart():
    problem = toy_problem()
    model = new_classifier(resolve(TrainingConfig(network_options={"hidden": [8]}), problem), problem, 0)
    assert not torch.equal(model.head.weight, model.noisy_head.weight)
    assert model.head.weight.shape == model.noisy_head.weight.shape == (3, 8)


def test_inputs_are_scaled_by_the_training_rows_alone():
    problem = toy_problem()
    problem.train.inputs[problem.clean.index] = 1e6  # clean rows share the store
    problem.train.inputs[problem.train.index] *= 50
    problem.train.inputs[problem.train.index] += 30
    model = new_classifier(resolve(TrainingConfig(network_options={"hidden": [8]}), problem), problem, 0)
    scaled = model.normalise(torch.tensor(problem.train.inputs[problem.train.index]))
    np.testing.assert_allclose(scaled.mean(dim=0), 0, atol=1e-3)
    assert float(scaled.square().mean()) == pytest.approx(1, abs=1e-3)


def test_images_are_scaled_by_channel():
    rows = image_rows(40)
    rows.inputs[..., 0] //= 4
    problem = problem_of(rows)
    model = new_classifier(resolve(TrainingConfig(), problem), problem, 0)
    scaled = model.normalise(torch.tensor(rows.inputs.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(scaled.mean(dim=(0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(dim=(0, 2, 3)), 1, atol=1e-3)


def test_the_optimiser_has_every_parameter_and_the_settings_of_the_configuration():
    problem = toy_problem()
    config = resolve(TrainingConfig(learning_rate=0.3, momentum=0.8, weight_decay=1e-3), problem)
    model = new_classifier(config, problem, 0)
    optimizer = new_optimizer(model, config)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.3, 0.8, 1e-3)
    assert {id(p) for p in group["params"]} == {id(p) for p in model.parameters()}


def test_an_encoder_may_have_a_lower_learning_rate_than_the_heads():
    config = TrainingConfig(epochs=10, learning_rate=0.5, encoder_learning_rate_factor=0.01)
    model = new_classifier(resolve(config, toy_problem()), toy_problem(), 0)
    optimizer = new_optimizer(model, config)
    set_learning_rate(optimizer, config.learning_rate_in(7))
    rates = {id(weight): group["lr"] for group in optimizer.param_groups for weight in group["params"]}
    assert len(rates) == len(list(model.parameters()))
    for name, weight in model.named_parameters():
        assert rates[id(weight)] == pytest.approx(0.0005 if name.startswith("encoder.") else 0.05)
    plain = new_optimizer(model, TrainingConfig())
    assert len(plain.param_groups) == 1  # as every stored run had it
    with pytest.raises(UsageError, match="encoder_learning_rate_factor must not be negative"):
        TrainingConfig(encoder_learning_rate_factor=-1)
