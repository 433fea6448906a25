"""Mixup against the formula written out: blended inputs, losses in the same shares, and nothing at all when off."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_rows import float_rows, image_rows, make_model
from torch.nn import functional as F
from toys import quiet

from labelloop.config.base import TrainingConfig
from labelloop.errors import UsageError
from labelloop.models import Normalise
from labelloop.seeds import stream
from labelloop.splits import one_hot
from labelloop.training.augmentation import mix
from labelloop.training.epoch import train_epoch

CONFIG = TrainingConfig(epochs=4, batch_size=16, learning_rate=0.1, augment="none", weight_decay=0.0, mixup=0.5)


def test_a_blend_is_share_times_a_row_and_the_rest_its_partner():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32))
    mixed, partner, share = mix(x, 1.0, np.random.default_rng(3))
    assert 0 < share < 1
    assert sorted(partner.tolist()) == list(range(9))
    for i in range(9):
        torch.testing.assert_close(mixed[i], share * x[i] + (1 - share) * x[partner[i]])


def test_pixels_are_blended_as_the_network_would_see_them():
    x = torch.from_numpy(image_rows(6).inputs).permute(0, 3, 1, 2)
    mixed, partner, share = mix(x, 1.0, np.random.default_rng(1))
    scale = Normalise(np.array([0.4, 0.5, 0.6]), np.array([0.2, 0.2, 0.3]))
    torch.testing.assert_close(scale(mixed), share * scale(x) + (1 - share) * scale(x[partner]), rtol=1e-4, atol=1e-5)


def test_without_strength_nothing_is_drawn_and_nothing_changes():
    x, rng = torch.ones(3, 2), np.random.default_rng(0)
    mixed, partner, share = mix(x, 0.0, rng)
    assert mixed is x
    assert partner is None
    assert share == 1
    assert rng.random() == np.random.default_rng(0).random()


def test_shares_follow_the_beta_distribution():
    rng, x = np.random.default_rng(0), torch.ones(2, 1)
    shares = np.array([mix(x, 0.3, rng)[2] for _ in range(4000)])
    assert shares.mean() == pytest.approx(0.5, abs=0.02)
    assert shares.var() == pytest.approx(1 / (4 * (2 * 0.3 + 1)), abs=0.01)  # of Beta(a, a)


@pytest.mark.parametrize("noisy_loss_weight", [0.0, 0.4])
def test_an_epoch_is_that_of_the_formula_written_out(noisy_loss_weight):
    rows = float_rows(40)
    targets = np.random.default_rng(5).dirichlet(np.ones(3), 40).astype(np.float32)
    noisy = one_hot(rows.labels, 3)
    ours, theirs = make_model(), make_model()
    with torch.random.fork_rng(devices=[]):
        optimizer = torch.optim.SGD(ours.parameters(), lr=1.0, momentum=0.9)
        loss = train_epoch(ours, rows, targets, noisy, noisy_loss_weight, optimizer, CONFIG, quiet(), 2)

    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    order, blends, total = stream(0, "batches", 2).permutation(40), stream(0, "mixup", 2), 0.0
    for batch in (order[:16], order[16:32], order[32:]):
        share = blends.beta(0.5, 0.5)
        other = batch[blends.permutation(len(batch))]
        out = theirs(torch.from_numpy((share * rows.inputs[batch] + (1 - share) * rows.inputs[other]).astype("f4")))
        step_loss = torch.zeros(())
        for part, chosen in ((share, batch), (1 - share, other)):
            step_loss = step_loss + part * F.cross_entropy(out.logits, torch.from_numpy(targets[chosen]))
            on_noisy = F.cross_entropy(out.noisy_logits, torch.from_numpy(rows.labels[chosen]))
            step_loss = step_loss + part * noisy_loss_weight * on_noisy
        optimizer.zero_grad()
        step_loss.backward()
        optimizer.step()
        total += step_loss.item() * len(batch) / 40
    assert loss == pytest.approx(total, rel=1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_row_without_a_label_adds_only_its_input():
    rows, model = float_rows(16), make_model()
    targets = one_hot(rows.labels, 3)
    targets[:8] = 0
    with torch.random.fork_rng(devices=[]):
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        loss = train_epoch(model, rows, targets, targets, 0.0, optimizer, CONFIG, quiet(), 1)
    assert np.isfinite(loss)


@pytest.mark.parametrize("wrong", [{"mixup": -0.1}, {"mixup": float("inf")}])
def test_impossible_values_are_refused(wrong):
    with pytest.raises(UsageError, match="mixup"):
        TrainingConfig(**wrong)
