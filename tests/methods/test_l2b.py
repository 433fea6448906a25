"""L2B: gains, the three norms, the real step, what the clean rows may touch, whole runs."""

from __future__ import annotations

import copy

import double_backward
import numpy as np
import pytest
import torch
from bilevel_toys import (
    TwoByOne,
    assert_close,
    buffers_of,
    by_hand,
    configure,
    conv_batch,
    conv_model,
    count_passes,
    permuted_clean,
    relabelled_clean,
    sgd,
    train,
    with_velocity,
)
from torch import nn
from toys import digits_accuracy, quiet, same_state, state_of, toy_problem

from labelloop.errors import UsageError
from labelloop.methods import METHODS, l2b
from labelloop.methods.l2b import Config, both_losses, fit, gains, implied_targets, step, to_weights, virtual_parameters
from labelloop.types import MISSING

pytestmark = pytest.mark.slow

THIRD = 1 / 3


# --- gains and weights -----------------------------------------------------------------------------------------------


def test_the_example_by_hand():
    model = TwoByOne()
    found = gains(model, sgd(model, lr=0.1), by_hand())
    expected = 0.1 * torch.tensor([[0.5, -0.5], [0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)
    weights = torch.tensor([[THIRD, 0], [THIRD, THIRD]], dtype=torch.float64)
    torch.testing.assert_close(to_weights(found, Config()), weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("running", [True, False], ids=["in the middle", "before the first step"])
def test_gains_equal_a_backward_through_a_backward(running):
    model, batch = conv_model(), conv_batch()
    optimizer = with_velocity(model) if running else sgd(model)
    found, expected = gains(model, optimizer, batch), double_backward.gains(model, optimizer, batch)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_a_whole_step_equals_one_by_double_backward(monkeypatch):
    states = []
    for form in (l2b.gains, double_backward.gains):
        monkeypatch.setattr(l2b, "gains", form)
        model = conv_model()
        optimizer = with_velocity(model)
        for _ in range(2):
            step(model, optimizer, conv_batch(), Config())
        states.append(state_of(model))
    assert_close(*states, 1e-10)


@pytest.mark.parametrize("running", [True, False])
def test_virtual_parameters_are_where_the_optimiser_goes_without_a_gradient(running):
    model = conv_model()
    optimizer = with_velocity(model) if running else sgd(model)
    found = virtual_parameters(model, optimizer)
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    optimizer.step()
    assert_close(found, dict(model.named_parameters()), 1e-15)


def test_the_learning_rate_cancels_in_the_published_norm():
    weights = []
    for lr in (0.1, 0.001):
        model = conv_model()
        weights.append(to_weights(gains(model, sgd(model, lr=lr, weight_decay=0.0), conv_batch()), Config()))
    torch.testing.assert_close(*weights, rtol=0, atol=1e-12)


def test_where_both_labels_agree_both_weights_do():
    model, batch = conv_model(), conv_batch(rows=40)
    own = copy.deepcopy(model)(batch.x).logits.argmax(dim=1)
    agree = own == batch.labels
    assert 0 < int(agree.sum()) < 40
    weights = to_weights(gains(model, with_velocity(model), batch), Config())
    assert torch.equal(weights[0, agree], weights[1, agree])
    assert not torch.equal(weights[0, ~agree], weights[1, ~agree])


@pytest.mark.parametrize("weight_norm", ["org", "softmax", "sigmoid"])
def test_weights_are_never_negative_and_sum_to_one(weight_norm):
    gain = torch.randn(2, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = to_weights(gain, Config(weight_norm=weight_norm))
    assert bool((weights >= 0).all())
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
    assert torch.equal(weights.flatten().argsort()[-3:], gain.flatten().argsort()[-3:])
    assert bool((weights[gain < 0] == 0).all()) is (weight_norm == "org")


def test_the_three_norms_by_hand():
    gain = torch.tensor([[1.0, -1.0], [3.0, 0.0]], dtype=torch.float64)
    np.testing.assert_allclose(to_weights(gain, Config()), [[0.25, 0], [0.75, 0]])
    softmax = to_weights(gain, Config(weight_norm="softmax", temperature=2.0))
    np.testing.assert_allclose(softmax, (gain / 2).exp() / (gain / 2).exp().sum())
    raw = 1 / (1 + (-gain).exp())
    np.testing.assert_allclose(to_weights(gain, Config(weight_norm="sigmoid")), raw / raw.sum())


@pytest.mark.parametrize("tiny", [0.0, 1e-30])
def test_if_nothing_helps_all_weights_are_zero(tiny):
    gain = -torch.ones(2, 5, dtype=torch.float64)
    assert float(to_weights(gain, Config()).sum()) == 0
    gain[0, 0] = tiny
    assert float(to_weights(gain, Config()).sum()) == (1 if tiny else 0)


def test_the_labels_that_two_losses_amount_to():
    weights = torch.tensor([[0.1, 0.0, 0.2], [0.3, 0.0, 0.0]])
    weighted, towards = implied_targets(weights, torch.tensor([0, 1, 2]), torch.tensor([1, 1, 0]), 3)
    assert weighted.tolist() == [True, False, True]
    np.testing.assert_allclose(towards[weighted], [[0.25, 0.75, 0], [0, 0, 1]], atol=1e-7)


# --- the real step ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.0, 0.01, 100.0])
def test_the_step_is_sgd_on_the_weighted_losses_and_nothing_else(clip):
    """The clean rows send no gradient: the gradient is that of the noisy rows, with weights as the only trace."""
    model, batch = conv_model(), conv_batch()
    twin = copy.deepcopy(model)
    _, weights, _ = step(model, with_velocity(model), batch, Config(clip=clip))
    (weights * both_losses(twin(batch.x).logits, batch.labels)).sum().backward()
    if clip:
        norm = nn.utils.clip_grad_norm_(twin.parameters(), clip)
        assert (float(norm) > clip) is (clip == 0.01)
    for (name, value), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert (value.grad is None) == (other.grad is None) == name.startswith("noisy_head"), name
        assert value.grad is None or torch.equal(value.grad, other.grad), name


def test_if_nothing_helps_only_momentum_and_decay_move_the_network(monkeypatch):
    monkeypatch.setattr(l2b, "gains", lambda model, optimizer, batch: -torch.ones(2, len(batch.x)))
    model = conv_model()
    optimizer = with_velocity(model)
    expected = virtual_parameters(model, optimizer)
    loss, weights, _ = step(model, optimizer, conv_batch(), Config())
    assert (float(loss), float(weights.sum())) == (0, 0)
    moved = {name: value for name, value in model.named_parameters() if not name.startswith("noisy_head")}
    assert_close(moved, {name: expected[name] for name in moved}, 1e-15)


def test_steps_without_any_weight_are_counted_and_keep_the_labels(monkeypatch):
    problem, runtime = toy_problem(), quiet()
    monkeypatch.setattr(l2b, "gains", lambda model, optimizer, batch: -torch.ones(2, len(batch.x)))
    fitted = fit(problem, configure("l2b", problem, warm_up=1), runtime)
    assert [row["idle_steps"] for row in runtime.history] == [0, 6, 6, 6]
    np.testing.assert_array_equal(fitted.targets, np.eye(3)[problem.train.labels])


def test_running_statistics_are_those_of_one_plain_pass():
    model, batch = conv_model(), conv_batch()
    twin = copy.deepcopy(model)
    step(model, with_velocity(model), batch, Config())
    twin(batch.x)
    assert same_state(buffers_of(model), buffers_of(twin))


def test_the_order_of_the_clean_rows_does_not_matter():
    states = []
    for batch in (conv_batch(), permuted_clean(conv_batch())):
        model = conv_model()
        step(model, with_velocity(model), batch, Config())
        states.append(state_of(model))
    assert_close(*states, 1e-10)


def test_a_step_passes_over_the_noisy_rows_twice_and_over_the_clean_rows_once():
    model, batch = conv_model(), conv_batch(12, 9)
    passes = count_passes(model)
    step(model, with_velocity(model), batch, Config())
    assert passes == [9, 12, 12]  # clean; forward mode; real


# --- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [False, True])
def test_the_warm_up_is_cross_entropy_bit_for_bit(images):
    problem = toy_problem(images=images)
    plain = train("cross-entropy", problem).model.state_dict()
    assert same_state(plain, train("l2b", problem).model.state_dict())
    assert not same_state(plain, train("l2b", problem, warm_up=3).model.state_dict())


def test_noise_free_it_is_as_good_as_cross_entropy():
    """The difference is 0.01 to 0.05, by the machine."""
    assert digits_accuracy("l2b", 0.0, warm_up=3) > digits_accuracy("cross-entropy", 0.0) - 0.06


def test_noisy_it_is_better_than_cross_entropy():
    assert digits_accuracy("l2b", 0.4, warm_up=3) > digits_accuracy("cross-entropy", 0.4) + 0.03


def test_unlabelled_rows_play_no_part_and_clean_labels_do():
    problem = toy_problem(unlabelled=7)
    fitted = train("l2b", problem, warm_up=1)
    assert (problem.train.labels[-7:] == MISSING).all()
    assert (fitted.targets[-7:] == 0).all()
    np.testing.assert_allclose(fitted.targets[:-7].sum(axis=1), 1, atol=1e-6)
    other = train("l2b", relabelled_clean(problem), warm_up=1)
    assert not same_state(fitted.model.state_dict(), other.model.state_dict())


def test_the_defaults_are_the_published_ones():
    config = Config()
    assert (config.clean_batch_size, config.warm_up, config.clip, config.weight_norm) == (128, 10, 0.25, "org")
    assert METHODS["l2b"].fit is fit


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_norm": "soft"}, "did you mean 'softmax'"),
        ({"clean_batch_size": 0}, "clean_batch_size"),
        ({"warm_up": -1}, "warm_up"),
        ({"clip": -0.1}, "clip"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        Config(**changes)
