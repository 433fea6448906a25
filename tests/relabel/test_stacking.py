"""The convex combination: the weights of Eq. 5, both inequalities of Proposition 1, and EM as an independent oracle."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelloop.errors import UsageError
from labelloop.relabel import stacking as combination
from labelloop.relabel.stacking import (
    TINY,
    clean_loss,
    combine,
    fit_simplex_weights,
    mixture_gradient,
    mixture_loss,
    newest_alone,
    with_prior,
)

KINDS = ("random", "sharp", "saturated", "one-hot", "right", "wrong", "uniform", "same as first")
CHECKED = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def component(kind: str, labels: np.ndarray, num_classes: int, rng: np.random.Generator) -> np.ndarray:
    shape = (len(labels), num_classes)
    if kind == "random":
        rows = rng.dirichlet(np.ones(num_classes), len(labels))
    elif kind == "sharp":
        rows = rng.dirichlet(np.full(num_classes, 0.01), len(labels))
    elif kind == "saturated":  # probabilities down to 1e-40 and to zero
        logits = rng.normal(size=shape) * 40
        rows = np.exp(logits - logits.max(axis=1, keepdims=True))
        rows /= rows.sum(axis=1, keepdims=True)
    elif kind == "one-hot":
        rows = np.eye(num_classes)[rng.integers(num_classes, size=len(labels))]
    elif kind == "right":
        rows = np.eye(num_classes)[labels]
    elif kind == "wrong":
        rows = np.eye(num_classes)[(labels + 1) % num_classes]
    else:
        rows = np.full(shape, 1 / num_classes)
    return rows.astype(np.float32)


@st.composite
def mixtures(draw, max_components: int = 13):
    """Components and labels, degenerate ones among them."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=max_components))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_classes = draw(st.integers(2, 7))
    labels = rng.integers(num_classes, size=draw(st.integers(1, 200)))
    components = [component(kind, labels, num_classes, rng) for kind in kinds]
    return [components[0] if kind == "same as first" else c for kind, c in zip(kinds, components, strict=True)], labels


def reference_loss(components, labels, weights) -> float:
    """Eq. 5 written out, row by row."""
    total = 0.0
    for i, label in enumerate(labels):
        mixed = sum(w * float(c[i, label]) for w, c in zip(weights, components, strict=True))
        total -= np.log(max(mixed, TINY))
    return total / len(labels)


def em_weights(true_class: np.ndarray, steps: int = 20_000) -> np.ndarray:
    """Expectation-maximisation for the weights of a mixture: each weight becomes its mean responsibility."""
    weights = np.full(len(true_class), 1 / len(true_class))
    for _ in range(steps):
        responsibility = weights[:, None] * true_class
        new = (responsibility / responsibility.sum(axis=0)).mean(axis=1)
        if np.abs(new - weights).max() < 1e-12:
            break
        weights = new
    return weights


def test_the_hand_example_gives_equal_weights_and_log_two():
    first = np.array([[0.9, 0.1], [0.1, 0.9]])
    second = np.array([[0.1, 0.9], [0.9, 0.1]])
    labels = np.array([0, 0])
    weights = fit_simplex_weights([first, second], labels)
    np.testing.assert_allclose(weights, [0.5, 0.5], atol=1e-6)
    assert clean_loss([first, second], labels, weights) == pytest.approx(0.693147, abs=1e-6)
    for vertex in np.eye(2):
        assert clean_loss([first, second], labels, vertex) == pytest.approx(1.203973, abs=1e-6)


@given(mixtures())
@CHECKED
def test_the_loss_is_the_cross_entropy_of_the_mixture(mixture):
    components, labels = mixture
    weights = np.random.default_rng(len(labels)).dirichlet(np.ones(len(components)))
    expected = reference_loss(components, labels, weights)
    assert clean_loss(components, labels, weights) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [1, 2, 5, 13])
def test_the_gradient_agrees_with_finite_differences(count):
    rng = np.random.default_rng(count)
    true_class = rng.uniform(0.01, 1, (count, 50))
    weights = rng.dirichlet(np.full(count, 5.0))
    step = 1e-6
    numeric = [
        (mixture_loss(weights + step * e, true_class) - mixture_loss(weights - step * e, true_class)) / (2 * step)
        for e in np.eye(count)
    ]
    np.testing.assert_allclose(mixture_gradient(weights, true_class), numeric, rtol=1e-6)


@given(mixtures())
@CHECKED
def test_the_weights_lie_on_the_simplex(mixture):
    components, labels = mixture
    weights = fit_simplex_weights(components, labels)
    assert weights.shape == (len(components),)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@given(mixtures())
@CHECKED
def test_proposition_1_the_mixture_is_no_worse_than_its_best_component(mixture):
    components, labels = mixture
    loss = clean_loss(components, labels, fit_simplex_weights(components, labels))
    for c in components:
        assert loss <= clean_loss([c], labels, np.ones(1)) + 1e-12


@given(mixtures())
@CHECKED
def test_proposition_1_a_further_component_never_raises_the_loss(mixture):
    components, labels = mixture
    weights, loss = None, np.inf
    for count in range(1, len(components) + 1):
        weights = fit_simplex_weights(components[:count], labels, weights)
        new_loss = clean_loss(components[:count], labels, weights)
        assert new_loss <= loss + 1e-12
        assert new_loss <= min(clean_loss([c], labels, np.ones(1)) for c in components[:count]) + 1e-12
        loss = new_loss


@pytest.mark.parametrize(
    "answer",
    [[np.nan] * 3, [-1.0, -2.0, 0.0], [0.0, 0.0, 1.0], [np.inf, 0.0, 0.0]],
    ids=["not a number", "negative", "the components vertex", "infinite"],
)
def test_proposition_1_holds_whatever_the_solver_returns(monkeypatch, answer):
    monkeypatch.setattr(combination, "minimize", lambda *_, **__: SimpleNamespace(x=np.array(answer)))
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=60)
    components = [component(kind, labels, 4, rng) for kind in ("random", "random", "wrong")]
    previous = np.array([0.4, 0.6])
    weights = fit_simplex_weights(components, labels, previous)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    loss = clean_loss(components, labels, weights)
    assert loss <= min(clean_loss([c], labels, np.ones(1)) for c in components)
    assert loss <= clean_loss(components[:2], labels, previous)


@pytest.mark.parametrize("count", [2, 5, 13])
@pytest.mark.parametrize("sharpness", [1.0, 0.1])
def test_em_finds_the_same_minimum(count, sharpness):
    rng = np.random.default_rng(count)
    labels = rng.integers(6, size=1000)
    components = []
    for k in range(count):  # each good on a part of the rows, so that the minimum lies inside the simplex
        rows = rng.dirichlet(np.full(6, sharpness), 1000) * 0.98 + 0.02 / 6
        part = rng.random(1000) < 0.2 + 0.4 * k / count
        rows[part] = 0.3 * rows[part] + 0.7 * np.eye(6)[labels[part]]
        components.append(rows)
    true_class = np.stack([c[np.arange(1000), labels] for c in components])
    expected = em_weights(true_class)
    assert (expected > 1e-3).sum() >= 2, "the example must not have its minimum at a vertex"
    weights = fit_simplex_weights(components, labels)
    assert mixture_loss(weights, true_class) == pytest.approx(mixture_loss(expected, true_class), abs=1e-7)
    np.testing.assert_allclose(weights, expected, atol=2e-3)


def test_a_component_that_is_always_right_takes_all_the_weight():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=40)
    components = [component(kind, labels, 3, rng) for kind in ("wrong", "right", "random")]
    weights = fit_simplex_weights(components, labels)
    assert clean_loss(components, labels, weights) == pytest.approx(0, abs=1e-6)
    assert weights[1] == pytest.approx(1, abs=1e-5)


def test_the_newest_component_takes_all_the_weight_where_nothing_is_combined():
    components = [np.array([[0.9, 0.1]]), np.array([[0.2, 0.8]])]
    assert newest_alone(components, np.array([0])).tolist() == [0, 1]
    np.testing.assert_allclose(fit_simplex_weights(components, np.array([0])), [1, 0], atol=1e-6)


def test_one_row_does_not_outweigh_the_rows_of_the_prior():
    components = [np.array([[0.9, 0.1]]), np.array([[0.2, 0.8]])]
    weights = with_prior(fit_simplex_weights(components, np.array([0])), 1, np.array([0.0, 9.0]))
    np.testing.assert_allclose(weights, [0.1, 0.9], atol=1e-6)  # (1 · 1 + 0) / 10 and (1 · 0 + 9) / 10


@given(st.integers(1, 50), st.integers(2, 5), st.floats(0.1, 30), st.integers(0, 2**31))
def test_a_prior_costs_no_more_than_its_bound(rows, count, strength, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=rows)
    components = list(rng.dirichlet(np.ones(3), size=(count, rows)))
    best = fit_simplex_weights(components, labels)
    prior = strength * rng.dirichlet(np.ones(count))
    weights = with_prior(best, rows, prior)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    lost = clean_loss(components, labels, weights) - clean_loss(components, labels, best)
    assert lost <= np.log1p(strength / rows) + 1e-9


def test_without_a_prior_the_weights_are_the_same_bits():
    weights = np.array([0.1, 0.2, 0.7])
    assert with_prior(weights, 3, np.zeros(3)) is weights


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_single_weight_gives_back_that_component_exactly(which):
    rng = np.random.default_rng(0)
    components = [rng.dirichlet(np.ones(4), 30).astype(np.float32) for _ in range(3)]
    combined = combine(components, np.eye(3)[which])
    assert combined.dtype == np.float32
    np.testing.assert_array_equal(combined, components[which])


def test_a_component_without_weight_is_not_read():
    rng = np.random.default_rng(0)
    first, second = rng.dirichlet(np.ones(4), (2, 30)).astype(np.float32)
    broken = np.full_like(first, np.nan)
    combined = combine([first, broken, second], np.array([0.25, 0.0, 0.75]))
    np.testing.assert_allclose(combined, 0.25 * first + 0.75 * second, rtol=1e-6)


@given(mixtures())
@CHECKED
def test_combined_rows_are_the_weighted_sum_and_sum_to_one(mixture):
    components, labels = mixture
    weights = np.random.default_rng(len(labels)).dirichlet(np.ones(len(components)))
    combined = combine(components, weights)
    assert combined.dtype == np.float32
    assert combined.shape == components[0].shape
    assert (combined >= 0).all()
    np.testing.assert_allclose(combined.sum(axis=1), 1, atol=1e-6)
    expected = sum(w * c.astype(np.float64) for w, c in zip(weights, components, strict=True))
    np.testing.assert_allclose(combined, expected, atol=2e-6)


GOOD = np.full((4, 3), 1 / 3, np.float32)
LABELS = np.array([0, 1, 2, 0])
BROKEN = np.where(np.arange(12).reshape(4, 3) == 7, np.nan, GOOD)


@pytest.mark.parametrize(
    ("components", "labels", "words"),
    [
        ([], LABELS, "no components"),
        ([GOOD[:0]], LABELS[:0], "no clean rows"),
        ([GOOD, GOOD[:, :2]], LABELS, "component 1 has the shape"),
        ([GOOD, BROKEN], LABELS, "component 1, row 2 holds a value that is not a number"),
        ([GOOD], LABELS[:3], "one clean label for every row"),
        ([GOOD], np.array([0, -1, 2, 0]), "the label of row 1 is missing"),
        ([GOOD], np.array([0, 1, 3, 0]), "the label of row 2 is 3"),
        ([GOOD], np.array([0.0, 1.0, 2.0, 0.0]), "whole numbers"),
    ],
)
def test_what_cannot_be_weighed_is_refused_in_words(components, labels, words):
    with pytest.raises(UsageError, match=words):
        fit_simplex_weights(components, labels)


@pytest.mark.parametrize(
    ("components", "weights", "words"),
    [
        ([], [], "0 components and 0 weights"),
        ([GOOD], [0.5, 0.5], "1 components and 2 weights"),
        ([GOOD, GOOD], [0.5, 0.6], "sum to 1"),
        ([GOOD, GOOD], [1.5, -0.5], "not be negative"),
        ([GOOD, GOOD], [np.nan, 1.0], "sum to 1"),
        ([GOOD, BROKEN], [0.5, 0.5], "component 1, row 2"),
        ([GOOD, GOOD[:2]], [0.5, 0.5], "component 1 has the shape"),
    ],
)
def test_what_cannot_be_combined_is_refused_in_words(components, weights, words):
    with pytest.raises(UsageError, match=words):
        combine(components, np.array(weights))
