"""DivideMix: dividing, guessing, mixing, and whole runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_settings import small_config
from torch.nn import functional as F
from toys import digits_accuracy, noisy_digits, quiet, same, toy_problem

from labelloop.errors import UsageError
from labelloop.methods import dividemix
from labelloop.models import Outputs
from labelloop.types import MISSING

pytestmark = pytest.mark.slow


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- dividing --------------------------------------------------------------------------------------------------------


def test_small_losses_are_trusted_and_large_ones_are_not():
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.normal(0.2, 0.05, 60), rng.normal(3, 0.5, 40)]).astype(np.float32)
    trust = dividemix.lower_component(losses, 0)
    assert (trust[:60] > 0.99).all()
    assert (trust[60:] < 0.01).all()
    np.testing.assert_array_equal(trust, dividemix.lower_component(losses, 0))


def test_equal_losses_do_not_stop_it():
    assert np.isfinite(dividemix.lower_component(np.full(20, 0.5, np.float32), 0)).all()


def test_a_row_without_a_label_is_not_trusted():
    labels = np.array([0, 1, MISSING, 1, MISSING, 0])
    logits = (4 * np.eye(2)[[0, 1, 0, 0, 1, 0]]).astype(np.float32)  # sure of another label than row 3's
    trust = dividemix.trusted(labels, logits, 0)
    assert (trust[[2, 4]] == 0).all()
    assert (trust[[0, 1, 5]] > 0.9).all()
    assert trust[3] < 0.1


# --- guessing and mixing ---------------------------------------------------------------------------------------------


def test_sharpening_by_hand():
    sharp = dividemix.sharpened(torch.tensor([[0.6, 0.3, 0.1]]), 0.5)
    np.testing.assert_allclose(sharp, [[0.36 / 0.46, 0.09 / 0.46, 0.01 / 0.46]], rtol=1e-6)
    torch.testing.assert_close(dividemix.sharpened(torch.tensor([[0.6, 0.4]]), 1.0), torch.tensor([[0.6, 0.4]]))


def test_a_label_counts_as_far_as_it_is_trusted():
    given, posterior = torch.tensor([[1.0, 0.0]] * 3), torch.tensor([[0.2, 0.8]] * 3)
    mixed = dividemix.mixed(given, posterior, torch.tensor([1.0, 0.0, 0.5]))
    torch.testing.assert_close(mixed, torch.tensor([[1.0, 0.0], [0.2, 0.8], [0.6, 0.4]]))


class Fixed(torch.nn.Module):
    """A network that says what the input is, times a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.modes: list[bool] = []

    def forward(self, x):
        self.modes.append(self.training)
        return Outputs(x, self.factor * x, self.factor * x)


def test_labels_are_refined_by_one_network_and_guessed_by_both():
    x1, x2, u1, u2 = (random(4, 3, seed=seed) for seed in range(4))
    given, trust = torch.eye(3)[[0, 1, 2, 0]], torch.tensor([0.9, 0.6, 0.7, 1.0])
    model, peer = Fixed(1.0), Fixed(2.0)
    inputs, targets = dividemix.guessed(model, peer, dividemix.Batch((x1, x2), (u1, u2), given, trust), 0.5)
    assert torch.equal(inputs, torch.cat([x1, x2, u1, u2]))
    own = (x1.softmax(dim=1) + x2.softmax(dim=1)) / 2
    refined = (trust[:, None] * given + (1 - trust[:, None]) * own) ** 2
    guess = (u1.softmax(dim=1) + u2.softmax(dim=1) + (2 * u1).softmax(dim=1) + (2 * u2).softmax(dim=1)) ** 2
    expected = [part / part.sum(dim=1, keepdim=True) for part in (refined, refined, guess, guess)]
    torch.testing.assert_close(targets, torch.cat(expected))
    assert (model.modes, peer.modes, peer.training) == ([True], [False], True)


def test_the_loss_by_hand():
    logits, targets = random(10, 3), torch.softmax(random(10, 3, seed=1), dim=1)
    p = logits.softmax(dim=1)
    on_labelled = F.cross_entropy(logits[:6], targets[:6])
    on_others = ((p[6:] - targets[6:]) ** 2).sum() / 12
    prior = (torch.log(1 / 3 / p.mean(dim=0)) / 3).sum()
    torch.testing.assert_close(dividemix.mix_loss(logits, targets, 6, 25.0), on_labelled + 25 * on_others + prior)


def test_pixels_are_scaled_as_the_network_scales_them_and_columns_get_noise():
    pixels = torch.arange(12, dtype=torch.uint8).view(1, 3, 2, 2)
    assert torch.equal(dividemix.as_floats(pixels, torch.tensor(0.1)), pixels / 255)
    columns = torch.zeros(2000, 2)
    torch.manual_seed(0)
    noise = dividemix.as_floats(columns, torch.tensor([0.1, 0.5]))
    np.testing.assert_allclose(noise.std(dim=0), [0.1, 0.5], rtol=0.1)
    assert torch.equal(dividemix.as_floats(columns, torch.zeros(2)), columns)


def test_rows_repeat_only_after_all_have_come():
    rows = dividemix.repeated(np.array([3, 5, 8]), 7, np.random.default_rng(0))
    assert sorted(rows[:3]) == sorted(rows[3:6]) == [3, 5, 8]
    assert len(rows) == 7


# --- whole runs ------------------------------------------------------------------------------------------------------

QUICK = {"warm_up": 2}


def test_clean_rows_are_not_read():
    problem = toy_problem(unlabelled=7)
    config = small_config("dividemix", problem, **QUICK)
    other = replace(problem, clean=replace(problem.clean, clean_labels=(problem.clean.clean_labels + 1) % 3))
    assert same(dividemix.fit(problem, config, quiet()), dividemix.fit(other, config, quiet()))


def test_every_row_gets_a_label_and_the_unlabelled_ones_a_guess():
    problem = toy_problem(unlabelled=7)
    fitted = dividemix.fit(problem, small_config("dividemix", problem, epochs=6, **QUICK), quiet())
    np.testing.assert_allclose(fitted.targets.sum(axis=1), 1, rtol=1e-5)


def test_each_network_is_divided_by_the_other(monkeypatch):
    problem, seen = toy_problem(unlabelled=7), []
    trusts = []
    original_trusted, original_epoch = dividemix.trusted, dividemix.mix_epoch

    def note_trust(*arguments):
        trusts.append(original_trusted(*arguments))
        return trusts[-1]

    def note_epoch(learner, peer, train, *rest):
        seen.append((train.trust, learner.number))
        return original_epoch(learner, peer, train, *rest)

    monkeypatch.setattr(dividemix, "trusted", note_trust)
    monkeypatch.setattr(dividemix, "mix_epoch", note_epoch)
    dividemix.fit(problem, small_config("dividemix", problem, epochs=3, **QUICK), quiet())
    assert [k for _, k in seen] == [0, 1]
    assert seen[0][0] is trusts[1]
    assert seen[1][0] is trusts[0]


@pytest.mark.parametrize("trust", [0.0, 1.0])
def test_it_goes_on_when_all_labels_are_trusted_or_none(monkeypatch, trust):
    problem = toy_problem(unlabelled=0)
    monkeypatch.setattr(dividemix, "lower_component", lambda losses, seed: np.full(len(losses), trust, np.float32))
    fitted = dividemix.fit(problem, small_config("dividemix", problem, **QUICK), quiet())
    assert np.isfinite(fitted.targets).all()


def test_the_networks_differ_and_see_different_batches(monkeypatch):
    problem, orders = toy_problem(unlabelled=7), []
    original = dividemix.augmented_batches

    def note(rows, order, *rest):
        orders.append(order)
        return original(rows, order, *rest)

    monkeypatch.setattr(dividemix, "augmented_batches", note)
    dividemix.fit(problem, small_config("dividemix", problem, epochs=3, **QUICK), quiet())
    assert not np.array_equal(orders[0], orders[1])
    assert len(orders) == 2 * 2 + 2 * 4


@pytest.mark.parametrize(
    "changes",
    [
        {"warm_up": 0}, {"warm_up": 100}, {"ramp_up": 0}, {"temperature": 0.0}, {"mixup": 0.0}, {"threshold": 1.0},
        {"unlabelled_weight": -1.0}, {"jitter": -0.1}, {"confidence_penalty": -1.0},
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(changes):
    with pytest.raises(UsageError, match=next(iter(changes))):
        dividemix.Config(**changes)


def test_a_confidence_penalty_softens_the_warm_up():
    problem = toy_problem(unlabelled=7)
    plain, soft = (
        dividemix.fit(problem, small_config("dividemix", problem, **QUICK, confidence_penalty=weight), quiet())
        for weight in (0.0, 1.0)
    )
    assert not same(plain, soft)


def test_without_noise_it_loses_only_the_hardest_digits():
    """The mixture always doubts some rows, so it does not quite reach cross-entropy."""
    assert digits_accuracy("dividemix", 0.0) > digits_accuracy("cross-entropy", 0.0) - 0.06


def test_with_noise_it_is_better_and_mends_labels():
    problem, truth = noisy_digits(0.4)
    assert digits_accuracy("dividemix", 0.4) > digits_accuracy("cross-entropy", 0.4) + 0.15
    runtime = quiet(truth=truth)
    config = small_config("dividemix", problem, epochs=20, network_options={"hidden": [64]}, learning_rate=0.1)
    dividemix.fit(problem, config, runtime)
    assert runtime.history[-1]["corrected_label_accuracy"] > runtime.history[-1]["given_label_accuracy"] + 0.25
