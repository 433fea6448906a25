"""MW-Net: the gradient of the weighting network, the real step, what the clean rows may touch, whole runs."""

from __future__ import annotations

import copy

import double_backward
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
from torch.nn import functional as F
from toys import digits_accuracy, quiet, same_state, state_of, toy_problem

from labelloop.errors import UsageError
from labelloop.methods import METHODS, mwnet
from labelloop.methods.mwnet import Config, WeightingNetwork, fit, row_losses, share, step, weighting_gradient
from labelloop.splits import one_hot

pytestmark = pytest.mark.slow


def weighting_network(hidden: int = 100, seed: int = 6) -> WeightingNetwork:
    torch.manual_seed(seed)
    return WeightingNetwork(hidden).double()


def adam(weighting, lr: float = 1e-3, weight_decay: float = 1e-4) -> torch.optim.Adam:
    return torch.optim.Adam(weighting.parameters(), lr=lr, weight_decay=weight_decay)


def gradient_of_shares(model, batch, shares, lr=0.1):
    torch.manual_seed(batch.draw)
    return weighting_gradient(model, row_losses(model(batch.x).logits, batch.labels), shares, lr, batch)


# --- the gradient ----------------------------------------------------------------------------------------------------


def test_the_example_by_hand():
    weights = torch.full((2,), 0.5, dtype=torch.float64)
    by_weight = gradient_of_shares(TwoByOne(), by_hand(), share(weights, "mean")) / 2  # a weight is twice its share
    torch.testing.assert_close(by_weight, torch.tensor([-0.025, 0.025], dtype=torch.float64), rtol=0, atol=1e-15)


@pytest.mark.parametrize("lr", [0.01, 0.1, 1.0])
def test_it_equals_a_backward_through_a_backward(lr):
    model, batch = conv_model(), conv_batch()
    shares = torch.rand(len(batch.x), dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / len(batch.x)
    torch.manual_seed(batch.draw)
    losses = row_losses(model(batch.x).logits, batch.labels)
    found = weighting_gradient(model, losses, shares, lr, batch)
    expected = double_backward.weighting_gradient(model, losses, shares, lr, batch)
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("weight_norm", ["mean", "sum"])
def test_a_whole_step_equals_one_by_double_backward(weight_norm, monkeypatch):
    results = []
    for form in (mwnet.weighting_gradient, double_backward.weighting_gradient):
        monkeypatch.setattr(mwnet, "weighting_gradient", form)
        model, weighting, batch = conv_model(), weighting_network(), conv_batch()
        optimizer, weighting_optimizer = with_velocity(model), adam(weighting)
        for _ in range(2):
            step(model, weighting, optimizer, weighting_optimizer, batch, weight_norm)
        results.append((state_of(model), state_of(weighting)))
    assert_close(results[0][0], results[1][0], 1e-10)
    assert_close(results[0][1], results[1][1], 1e-10)


@pytest.mark.parametrize("weight_norm", ["mean", "sum"])
def test_the_weighting_network_gets_the_gradient_of_the_clean_loss_after_the_step(weight_norm):
    """By finite differences on one live entry, through the whole virtual step."""
    model, weighting, batch, lr, h = conv_model(), weighting_network(), conv_batch(), 0.1, 1e-5
    losses = row_losses(model(batch.x).logits, batch.labels)
    entry = int((weighting.hidden.weight[:, 0] * losses.mean() + weighting.hidden.bias).argmax())  # its ReLU is live

    def clean_loss_after() -> float:
        parameters = dict(model.named_parameters())
        loss = (share(weighting(losses.detach()), weight_norm).detach() * losses).sum()
        grads = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True, allow_unused=True)
        other = copy.deepcopy(model)
        with torch.no_grad():
            for value, grad in zip(other.parameters(), grads, strict=True):
                if grad is not None:
                    value -= lr * grad
            return float(F.cross_entropy(other(batch.clean_x).logits, batch.clean_labels))

    shares = share(weighting(losses.detach()), weight_norm)
    (weighting_gradient(model, losses, shares.detach(), lr, batch) * shares).sum().backward()
    found = float(weighting.hidden.weight.grad[entry])
    weighting.hidden.weight.data[entry] += h
    above = clean_loss_after()
    weighting.hidden.weight.data[entry] -= 2 * h
    below = clean_loss_after()
    assert abs(found) > 1e-7
    assert found == pytest.approx((above - below) / (2 * h), rel=1e-5)


def test_equal_losses_that_pull_apart_do_not_move_the_weighting_network():
    weighting = weighting_network()
    before = state_of(weighting)
    model = TwoByOne()
    step(model, weighting, sgd(model), adam(weighting, weight_decay=0), by_hand(), "mean")
    assert_close(before, state_of(weighting), 1e-12)


def test_weights_stay_between_zero_and_one_and_shares_are_what_their_norm_says():
    losses = torch.linspace(0, 50, 20, dtype=torch.float64)
    weights = weighting_network()(losses).detach()
    assert bool(((weights > 0) & (weights < 1)).all())
    torch.testing.assert_close(share(weights, "mean"), weights / 20)
    assert float(share(weights, "sum").sum()) == pytest.approx(1)
    assert share(torch.zeros(3), "sum").tolist() == [0, 0, 0]
    assert sum(value.numel() for value in WeightingNetwork(100).parameters()) == 301


# --- the real step ---------------------------------------------------------------------------------------------------


def test_the_step_is_sgd_on_the_losses_weighted_by_the_new_weights_and_nothing_else():
    """The clean rows send no gradient: the gradient is that of the noisy rows, with weights as the only trace."""
    model, weighting, batch = conv_model(), weighting_network(), conv_batch()
    twin = copy.deepcopy(model)
    _, weights = step(model, weighting, with_velocity(model), adam(weighting, lr=0.05), batch, "mean")
    losses = row_losses(twin(batch.x).logits, batch.labels)
    torch.testing.assert_close(weights, weighting(losses.detach()).detach(), rtol=0, atol=0)
    (share(weights, "mean") * losses).sum().backward()
    for (name, value), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert (value.grad is None) == (other.grad is None) == name.startswith("noisy_head"), name
        assert value.grad is None or torch.equal(value.grad, other.grad), name


def test_clean_rows_reach_the_classifier_only_through_the_weighting_network():
    states = {}
    for lr in (0.0, 0.1):
        for batch in (conv_batch(), conv_batch()._replace(clean_labels=(conv_batch().clean_labels + 1) % 4)):
            model, weighting = conv_model(), weighting_network()
            step(model, weighting, sgd(model), adam(weighting, lr=lr), batch, "mean")
            states.setdefault(lr, []).append(state_of(model))
    assert same_state(*states[0.0])
    assert not same_state(*states[0.1])


def test_running_statistics_are_those_of_one_plain_pass():
    model, weighting, batch = conv_model(), weighting_network(), conv_batch()
    twin = copy.deepcopy(model)
    step(model, weighting, sgd(model), adam(weighting), batch, "mean")
    twin(batch.x)
    assert same_state(buffers_of(model), buffers_of(twin))


def test_the_order_of_the_clean_rows_does_not_matter():
    states = []
    for batch in (conv_batch(), permuted_clean(conv_batch())):
        model, weighting = conv_model(), weighting_network()
        step(model, weighting, sgd(model), adam(weighting), batch, "mean")
        states.append(state_of(model) | state_of(weighting))
    assert_close(*states, 1e-10)


def test_a_step_passes_over_the_noisy_rows_twice_and_over_the_clean_rows_once():
    model, weighting, batch = conv_model(), weighting_network(), conv_batch(12, 9)
    passes = count_passes(model)
    step(model, weighting, sgd(model), adam(weighting), batch, "mean")
    assert passes == [12, 9, 12]  # with its graph; clean; forward mode


# --- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [False, True])
def test_with_all_weights_one_it_is_cross_entropy_bit_for_bit(images, monkeypatch):
    monkeypatch.setattr(WeightingNetwork, "forward", lambda self, losses: torch.ones_like(losses) + 0 * self.out.bias)
    problem = toy_problem(images=images)
    plain = train("cross-entropy", problem)
    assert same_state(plain.model.state_dict(), train("mw-net", problem).model.state_dict())


def test_noise_free_it_is_as_good_as_cross_entropy():
    assert digits_accuracy("mw-net", 0.0) > digits_accuracy("cross-entropy", 0.0) - 0.02
    assert digits_accuracy("cross-entropy", 0.0) > 0.94


def test_noisy_it_is_better_than_cross_entropy():
    assert digits_accuracy("mw-net", 0.4) > digits_accuracy("cross-entropy", 0.4) + 0.03


def test_clean_labels_are_read_and_given_labels_are_handed_back():
    problem = toy_problem(unlabelled=7)
    fitted = train("mw-net", problem)
    other = train("mw-net", relabelled_clean(problem))
    assert not same_state(fitted.model.state_dict(), other.model.state_dict())
    assert (fitted.targets == one_hot(problem.train.labels, 3)).all()
    assert (fitted.rounds, fitted.stop_reason) == ((), "epoch limit")


def test_the_record_has_the_mean_weight():
    problem, runtime = toy_problem(), quiet()
    fit(problem, configure("mw-net", problem), runtime)
    assert all(0 < row["mean_weight"] < 1 for row in runtime.history)
    assert runtime.history[-1]["loss"] < runtime.history[0]["loss"]


def test_the_defaults_are_the_published_ones():
    config = Config()
    assert (config.clean_batch_size, config.weighting_hidden, config.weight_norm) == (128, 100, "mean")
    assert (config.weighting_learning_rate, config.weighting_weight_decay) == (1e-3, 1e-4)
    assert METHODS["mw-net"].fit is fit


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_norm": "summ"}, "did you mean 'sum'"),
        ({"clean_batch_size": 0}, "clean_batch_size"),
        ({"weighting_hidden": 0}, "weighting_hidden"),
        ({"weighting_learning_rate": 0.0}, "weighting_learning_rate"),
        ({"weighting_weight_decay": -1.0}, "weighting_weight_decay"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        Config(**changes)
