"""What the loop shows to whom, for all four kinds of rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toys import toy

from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import CorrectorConfig
from labelloop.methods.closed_loop.one_correction import columns, noisy_view
from labelloop.methods.closed_loop.state import History
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


def test_columns_of_earlier_rounds_come_first_and_none_is_no_column():
    now, before = extracted(5), extracted(5, 1)
    config = Config(corrector=CorrectorConfig(inputs=("all_features", "past_labels", "noisy_logits")))
    first = columns(now, None, config)
    np.testing.assert_array_equal(first["all_features"], now.features)
    assert first["past_labels"].shape == (5, 0)
    second = columns(now, None, config, History([before.features], [before.noisy_posterior]))
    np.testing.assert_array_equal(second["all_features"], np.concatenate([before.features, now.features], axis=1))
    np.testing.assert_array_equal(second["past_labels"], before.noisy_posterior)
    np.testing.assert_allclose(np.exp(second["noisy_logits"]), now.noisy_posterior, rtol=1e-5)


def test_a_probability_of_zero_has_a_finite_logit():
    seen = replace(extracted(1), noisy_posterior=np.array([[1, 0, 0]], np.float32))
    config = Config(corrector=CorrectorConfig(inputs=("noisy_logits",)))
    assert np.isfinite(columns(seen, None, config)["noisy_logits"]).all()


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
