"""Changes that do more good than harm whatever the noise: the bound by hand, as a property, and what it brings."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.datasets import load_digits

from labelloop.methods.closed_loop.instant import any_noise, correct_labels
from labelloop.methods.closed_loop.instant.any_noise import guard_against_any_noise, worst_of_each
from labelloop.methods.closed_loop.instant.guard import Guard


def stub(q: np.ndarray, labels: np.ndarray, given: np.ndarray, weight: float):
    """Noise of one rate: a given label multiplies its odds by `weight`. The last rows are noisy, the others judge."""

    def believed(some, labels, among=slice(None)):
        odds = np.where(np.eye(q.shape[1], dtype=bool)[labels], weight, 1.0) * some
        return (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32)

    judges = len(labels)
    evidence = SimpleNamespace(given=given, sample=np.arange(judges, len(q)))
    noise = SimpleNamespace(
        judges=SimpleNamespace(labels=labels, rows=np.arange(judges), evidence=evidence), believed=believed
    )
    return noise, believed(q, given), q[:judges]


def many(*shares: float) -> Guard:
    """Counts so large that the rule for unknown classes has no effect."""
    return Guard(np.array([10**7] * len(shares)))


def test_the_bound_by_hand():
    """Ten clean rows and twenty noisy ones; a label loses where another class has 3 times its odds and more."""
    sure, unsure = [0.9, 0.1], [0.6, 0.4]
    q = np.array([sure] * 9 + [unsure] + [sure] * 12 + [unsure] * 8)
    labels = np.array([0] * 10)
    given = np.array([0] * 10 + [1] * 8 + [0] * 4 + [1] * 8)
    noise, said, unseen = stub(q, labels, given, weight=3.0)
    wrong, broken = worst_of_each(noise, unseen, np.arange(10), many(1, 1))
    np.testing.assert_array_equal(wrong, 0)
    np.testing.assert_array_equal(broken, 0)
    found = guard_against_any_noise(noise, said, unseen, many(1, 1))
    assert 10 * 8 / 20 > 0 + 0 + 1  # M c > E + B + 1
    assert found.margin == 0
    assert found.at_worst == pytest.approx(norm.cdf((4 - 1) / 1))

    labels = np.array([1, 1, 0, 0, 0, 0, 0, 0, 0, 0])  # two clean rows that would lose their true label
    noise, said, unseen = stub(q, labels, given, weight=3.0)
    wrong, broken = worst_of_each(noise, unseen, np.arange(10), many(1, 1))
    np.testing.assert_array_equal(np.flatnonzero(wrong), [0, 1])
    np.testing.assert_allclose(broken[:2], 0.75 - 0.25, atol=1e-6)  # odds 9 : 3
    assert 10 * 8 / 20 < 2 + 2 + 1
    assert guard_against_any_noise(noise, said, unseen, many(1, 1)).keeps_all


def test_the_margin_stops_before_the_changes_that_may_do_harm():
    q = np.array([[0.99, 0.01]] * 20 + [[0.8, 0.2]] * 20 + [[0.99, 0.01]] * 20 + [[0.8, 0.2]] * 20)
    labels = np.array([0] * 20 + [1] * 6 + [0] * 14)
    given = np.array([0] * 40 + [1] * 20 + [1] * 5 + [0] * 15)
    noise, said, unseen = stub(q, labels, given, weight=2.0)
    found = guard_against_any_noise(noise, said, unseen, many(1, 1))
    safe, doubtful = (99 - 2) / 101, (4 - 2) / 6  # margins: odds 99 : 2 and 4 : 2
    assert found.margin == pytest.approx(doubtful, abs=1e-6)
    assert found.margin < safe
    assert found.at_worst == pytest.approx(norm.cdf((40 * 20 / 40 - 1) / 1))


@examples(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([0.0, 0.1, 0.3]))
def test_no_noise_gains_less(seed, classes, margin):
    """Where clean and noisy rows are the same ones: right labels gained >= changed - E - B, with any given labels."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(classes, 0.4), size=60)
    labels, given = rng.integers(classes, size=60), rng.integers(classes, size=60)
    noise, said, _ = stub(q, labels, given, weight=float(rng.uniform(1, 8)))
    guard = Guard(np.full(classes, 15), margin=margin)
    wrong, broken = worst_of_each(noise, q, np.arange(60), guard)
    changed = guard.changes(said, given)
    gained = int((said.argmax(axis=1) == labels)[changed].sum()) - int((given == labels)[changed].sum())
    assert gained >= changed.sum() - (wrong > margin).sum() - (broken > margin).sum()


def test_with_many_classes_fewer_clean_rows_are_asked(monkeypatch):
    q = np.array([[0.9, 0.1]] * 60)
    noise, said, unseen = stub(q, np.zeros(40, int), np.append(np.zeros(40, int), np.ones(20, int)), weight=3.0)
    asked = []
    inner = any_noise.worst_of_each
    monkeypatch.setattr(any_noise, "worst_of_each", lambda *arguments: asked.append(arguments[2]) or inner(*arguments))
    guard_against_any_noise(noise, said, unseen, many(1, 1))
    monkeypatch.setattr(any_noise, "MOST_NUMBERS", 4 * 10)
    found = guard_against_any_noise(noise, said, unseen, many(1, 1))
    assert [len(rows) for rows in asked] == [40, 10]
    assert (asked[1][0], asked[1][-1]) == (0, 39)  # spread over all of them
    assert found.at_worst == pytest.approx(norm.cdf((10 - 1) / 1))


def test_nothing_changes_where_no_row_is_noisy():
    noise, said, unseen = stub(np.array([[0.9, 0.1]] * 5), np.zeros(5, int), np.zeros(5, int), weight=3.0)
    assert guard_against_any_noise(noise, said, unseen, many(1, 1)).keeps_all


@pytest.mark.parametrize("paired", [True, False])
def test_thirty_rows_may_correct_what_counts_of_changes_do_not_show(paired, monkeypatch):
    """Digits with 5% of the labels wrong: about one of thirty clean rows would change."""
    inputs, true = load_digits(return_X_y=True)
    rng = np.random.default_rng(2)
    rows = rng.permutation(len(true))[:900]
    inputs, true = inputs[rows].astype(np.float32), true[rows]
    given = np.where(rng.random(900) < 0.06, rng.integers(10, size=900), true)
    clean = np.where(np.arange(900) < 30, true, -1)
    shown = given if paired else np.where(clean >= 0, -1, given)
    noisy = clean < 0

    def labels():
        return correct_labels(shown, clean, 10, embeddings=inputs, table=True)

    found = labels()
    right = (found.targets.argmax(axis=1) == true)[noisy].mean()
    assert right > (given == true)[noisy].mean() + 0.02
    assert found.guard["any_noise"]
    assert 0.5 < found.guard["sure"] < 1
    assert "at least, whatever the noise" in found.guard["line"]
    monkeypatch.setattr(any_noise, "BEFORE", 10.0)  # nothing can be shown
    found = labels()
    np.testing.assert_array_equal(found.targets.argmax(axis=1)[noisy], given[noisy])
    assert not found.guard["any_noise"]
