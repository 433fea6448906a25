"""The forward-corrected loss and the transition matrix, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from labelloop.errors import DataError
from labelloop.training.epoch import class_mean, forward_corrected_nll, need_every_class
from labelloop.types import MISSING, Problem, Rows


def test_the_identity_gives_cross_entropy_exactly():
    logits = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)) * 30
    labels = torch.arange(20) % 5
    expected = F.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(forward_corrected_nll(logits, labels, torch.eye(5)), expected, rtol=1e-6, atol=1e-6)
    with_eps = forward_corrected_nll(logits / 30, labels, torch.eye(5), eps=1e-7)
    torch.testing.assert_close(with_eps, F.cross_entropy(logits / 30, labels, reduction="none"), rtol=0, atol=1e-4)


def test_the_identity_has_the_gradient_of_cross_entropy_even_where_a_probability_underflows():
    logits = torch.tensor([[200.0, 0.0, -200.0]], requires_grad=True)
    loss = forward_corrected_nll(logits, torch.tensor([2]), torch.eye(3))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.item() == pytest.approx(400)
    torch.testing.assert_close(gradient, torch.tensor([[1.0, 0.0, -1.0]]))


def test_a_matrix_that_says_nothing_gives_log_c_and_no_gradient():
    logits = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = forward_corrected_nll(logits, torch.arange(6) % 4, torch.full((4, 4), 0.25, dtype=torch.float64))
    np.testing.assert_allclose(loss.detach(), math.log(4), atol=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)


def test_by_hand():
    transition = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    logits = torch.log(torch.tensor([[0.8, 0.2]]))
    loss = forward_corrected_nll(logits, torch.tensor([1]), transition)
    assert math.exp(-loss.item()) == pytest.approx(0.22)
    assert loss.item() == pytest.approx(1.514128, abs=1e-6)
    assert forward_corrected_nll(logits, torch.tensor([1]), transition, eps=0.1).item() == pytest.approx(
        -math.log(0.32)
    )


def test_eps_bounds_the_loss_of_a_label_that_the_matrix_rules_out():
    logits = torch.tensor([[50.0, -50.0]])
    loss = forward_corrected_nll(logits, torch.tensor([1]), torch.eye(2), eps=1e-7)
    assert loss.item() == pytest.approx(-math.log(1e-7), rel=1e-6)


@pytest.mark.parametrize("true", [0.1, 0.5, 0.85])
def test_the_expected_loss_is_least_at_the_true_posterior(true):
    transition = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    grid = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    logits = torch.log(torch.stack([grid, 1 - grid], dim=1))
    noisy = torch.tensor([true, 1 - true], dtype=torch.float64) @ transition  # how often each noisy label comes
    losses = [forward_corrected_nll(logits, torch.full((999,), label), transition) for label in (0, 1)]
    expected = noisy[0] * losses[0] + noisy[1] * losses[1]
    assert grid[expected.argmin()].item() == pytest.approx(true, abs=1e-9)


def test_the_class_means_by_hand():
    posterior = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]])
    expected = torch.tensor([[0.6, 0.4], [0.5, 0.5]])
    torch.testing.assert_close(class_mean(posterior, torch.tensor([0, 1, 0])), expected)


def test_one_hot_posteriors_give_the_hard_matrix():
    labels, flips = torch.arange(12) % 4, torch.tensor([1, 1, 3, 2])
    estimate = class_mean(F.one_hot(flips[labels], 4).float(), labels)
    torch.testing.assert_close(estimate, F.one_hot(flips, 4).float())


def test_the_rows_of_the_estimate_sum_to_1():
    logits = torch.randn(50, 5, generator=torch.Generator().manual_seed(0)) * 4
    estimate = class_mean(torch.softmax(logits, dim=1), torch.arange(50) % 5)
    torch.testing.assert_close(estimate.sum(dim=1), torch.ones(5))


def test_missing_classes_are_named():
    none = np.full(3, MISSING)
    rows = Rows(np.zeros((3, 2), np.float32), np.arange(3), none, np.array([0, 2, 2]))
    with pytest.raises(DataError, match="no clean row of class 'bee', 'dog'"):
        need_every_class(Problem(rows, rows, ("ant", "bee", "cat", "dog")))
    need_every_class(Problem(rows, Rows(rows.inputs, rows.index, none, np.arange(3)), ("ant", "bee", "cat")))
