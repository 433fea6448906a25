"""What holds for every learner by its name. A new one is picked up by itself."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.relabel.learners import LEARNERS


@pytest.fixture(params=LEARNERS)
def make(request):
    return LEARNERS[request.param]


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three clouds of points, soft targets that lean to the right class, and the classes."""
    rng = np.random.default_rng(seed)
    true = np.arange(240) % 3
    inputs = (np.random.default_rng(9).normal(size=(3, 5)) * 3)[true] + rng.normal(size=(240, 5))
    soft = 0.7 * np.eye(3)[true] + 0.3 * rng.dirichlet(np.ones(3), 240)
    return inputs.astype(np.float32), soft.astype(np.float32), true


def test_a_learner_predicts_rows_that_it_has_not_seen(make):
    inputs, soft, _ = rows()
    unseen, _, true = rows(1)
    found = make().fit(inputs, soft).log_proba(unseen)
    assert found.shape == (240, 3)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, atol=1e-4)
    assert (found.argmax(axis=1) == true).mean() > 0.9


def test_a_learner_gives_the_same_again_and_leaves_its_arguments_alone(make):
    inputs, soft, _ = rows()
    kept = inputs.copy(), soft.copy()
    first, second = (make().fit(inputs, soft).log_proba(inputs) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(inputs, kept[0])
    np.testing.assert_array_equal(soft, kept[1])


def test_a_learner_leaves_the_random_state_alone(make):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    make().fit(*rows()[:2]).log_proba(rows(1)[0])
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_a_learner_bears_a_class_without_rows_and_a_constant_column(make):
    inputs, soft, _ = rows()
    inputs[:, 0] = 1.0
    found = make().fit(inputs, np.pad(soft, ((0, 0), (0, 1)))).log_proba(inputs)
    assert found.shape == (240, 4)
    assert np.isfinite(np.exp(found)).all()
    assert (found.argmax(axis=1) < 3).all()


def test_a_class_without_rows_stays_possible(make):
    inputs, soft, _ = rows()
    found = make().fit(inputs, np.hstack([soft, np.zeros((len(soft), 1), np.float32)])).log_proba(inputs)
    assert found.shape == (240, 4)
    assert np.isfinite(found).all()
