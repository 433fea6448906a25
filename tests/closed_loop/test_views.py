"""What the loop shows to whom, for all four kinds of rows."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import tiny_config
from toys import toy

from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import CorrectorConfig
from labelloop.methods.closed_loop.views import columns, noisy_view, rows_to_train_on
from labelloop.splits import one_hot, together
from labelloop.types import MISSING, Extracted


def extracted(n: int, seed: int = 0) -> Extracted:
    rng = np.random.default_rng(seed)
    return Extracted(
        rng.normal(size=(n, 4)).astype(np.float32),
        rng.normal(size=(n, 3)).astype(np.float32) * 50,
        rng.dirichlet(np.ones(3), n).astype(np.float32),
    )


def test_a_given_label_is_shown_as_it_is_and_a_missing_one_as_the_posterior():
    labels = np.array([2, MISSING, 0, MISSING])  # noisy or paired, unpaired or unlabelled, and again
    seen = extracted(4)
    view = noisy_view(labels, seen)
    assert view.dtype == np.float32
    np.testing.assert_array_equal(view[0], [0, 0, 1])
    np.testing.assert_array_equal(view[2], [1, 0, 0])
    np.testing.assert_array_equal(view[[1, 3]], seen.noisy_posterior[[1, 3]])


@pytest.mark.parametrize(("paired", "unlabelled"), [(0, 0), (15, 0), (0, 20), (15, 20)])
def test_all_four_kinds_of_rows(paired, unlabelled):
    problem, _ = toy(paired=paired, unlabelled=unlabelled)
    n, m = len(problem.train), len(problem.clean)
    on_train, on_clean = extracted(n), extracted(m, 1)
    train, clean = noisy_view(problem.train.labels, on_train), noisy_view(problem.clean.labels, on_clean)
    np.testing.assert_array_equal(train[: n - unlabelled], np.eye(3)[problem.train.labels[: n - unlabelled]])
    np.testing.assert_array_equal(train[n - unlabelled :], on_train.noisy_posterior[n - unlabelled :])
    np.testing.assert_array_equal(clean[:paired], np.eye(3)[problem.clean.labels[:paired]])
    np.testing.assert_array_equal(clean[paired:], on_clean.noisy_posterior[paired:])
    np.testing.assert_allclose(np.concatenate([train, clean]).sum(axis=1), 1, atol=1e-6)


def test_the_verified_label_is_never_shown_as_the_noisy_one():
    problem, _ = toy(paired=40, noise=0.5)
    view = noisy_view(problem.clean.labels, extracted(40))
    assert (view.argmax(axis=1) != problem.clean.clean_labels).any()


def test_the_columns_are_what_the_network_says():
    seen, extra = extracted(5), np.ones((5, 2), np.float32)
    config = Config(corrector=CorrectorConfig(inputs=("features+logits", "probabilities")))
    named = columns(seen, extra, config)
    assert set(named) == {"features", "logits", "probabilities", "extra"}
    assert named["features"] is seen.features
    assert named["logits"] is seen.logits
    assert named["extra"] is extra
    exponentials = np.exp(seen.logits.astype(np.float64) - seen.logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        named["probabilities"], exponentials / exponentials.sum(axis=1, keepdims=True), atol=1e-6
    )
    assert named["probabilities"].dtype == np.float32
    assert set(columns(seen, None, Config())) == {"features"}


def test_a_missing_label_is_a_row_of_zeros():
    np.testing.assert_array_equal(one_hot(np.array([1, MISSING, 0]), 3), [[0, 1, 0], [0, 0, 0], [1, 0, 0]])
    assert one_hot(np.array([1]), 3).dtype == np.float32


def test_rows_are_put_together_in_order():
    problem, _ = toy(paired=3)
    both = together(problem.train, problem.clean)
    assert both.inputs is problem.train.inputs
    for name in ("index", "labels", "clean_labels"):
        parts = getattr(problem.train, name), getattr(problem.clean, name)
        np.testing.assert_array_equal(getattr(both, name), np.concatenate(parts))


@pytest.mark.parametrize(
    ("value", "with_clean"),
    [("never", {2: False, 3: False, 4: False}), ("always", {1: True, 4: True}), ("after_warm_up", {3: False, 4: True})],
)
def test_clean_rows_are_trained_on_only_when_asked(value, with_clean):
    problem, _ = toy(paired=5)
    noisy = one_hot(problem.train.labels, 3)
    targets = np.full_like(noisy, 1 / 3)
    config = tiny_config(problem, clean_rows_train=value, warm_up=3, noisy_loss_weight=0.7)
    for epoch, expected in with_clean.items():
        rows, row_targets, row_noisy, weight = rows_to_train_on(problem, targets, noisy, config, epoch)
        assert weight == 0.7
        if not expected:
            assert rows is problem.train
            assert row_targets is targets
            assert row_noisy is noisy
            continue
        np.testing.assert_array_equal(rows.index, np.concatenate([problem.train.index, problem.clean.index]))
        np.testing.assert_array_equal(row_targets[: len(noisy)], targets)
        np.testing.assert_array_equal(row_targets[len(noisy) :], np.eye(3)[problem.clean.clean_labels])
        np.testing.assert_array_equal(row_noisy[len(noisy) :][:5], np.eye(3)[problem.clean.labels[:5]])
        np.testing.assert_array_equal(row_noisy[len(noisy) :][5:], 0)
