"""The contract of every learner: what relabelling relies on when it cross-fits one."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.relabel.learners import LEARNERS


def clouds(count=300, classes=3, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    inputs = rng.normal(size=(count, columns)) + 3 * np.eye(classes, columns)[labels]
    return inputs, labels, np.eye(classes)[labels]


@pytest.fixture(params=sorted(LEARNERS))
def learner(request):
    return LEARNERS[request.param]


def test_log_probabilities_are_of_all_classes_and_sum_to_one(learner):
    inputs, _, targets = clouds()
    found = learner().fit(inputs[:200], targets[:200]).log_proba(inputs[200:])
    assert found.shape == (100, 3)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, atol=1e-5)


def test_it_predicts_rows_it_has_not_seen(learner):
    inputs, labels, targets = clouds()
    found = learner().fit(inputs[:200], targets[:200]).log_proba(inputs[200:])
    assert (found.argmax(axis=1) == labels[200:]).mean() > 0.85


def test_soft_targets_count_by_their_weight(learner):
    """Rows whose target is undecided between two classes do not move the border between them to either side."""
    inputs, labels, targets = clouds()
    soft = 0.7 * targets + 0.1
    found = learner().fit(inputs, soft).log_proba(inputs)
    assert (found.argmax(axis=1) == labels).mean() > 0.85
    assert np.exp(found).max(axis=1).mean() <= 1


def test_a_class_without_rows_stays_possible(learner):
    inputs, _, targets = clouds()
    wider = np.hstack([targets, np.zeros((len(targets), 1))])
    found = learner().fit(inputs, wider).log_proba(inputs)
    assert found.shape == (300, 4)
    assert np.isfinite(found).all()


def test_the_same_rows_give_the_same_predictions(learner):
    inputs, _, targets = clouds()
    a, b = (learner().fit(inputs, targets).log_proba(inputs) for _ in range(2))
    np.testing.assert_array_equal(a, b)
