"""Forests: how much they do, where they are left out, and that their library's notes stay with developers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from labelloop.relabel.calibration import Observations, families_without_given
from labelloop.relabel.learners import trees as forests
from labelloop.relabel.learners.trees import DRAWN, FEWEST, MOST_WORK, TREES, forest_scores, grow, tree_count, votes


def test_the_work_of_a_forest_is_bounded_and_ten_classes_are_within_the_bound():
    assert tree_count(TREES, 20_000, 10) == TREES
    assert tree_count(TREES, 5_000, 500) * 5_000 * 500 <= DRAWN * MOST_WORK
    assert tree_count(TREES, 20_000, 10_000) == FEWEST


def test_many_classes_grow_fewer_trees_and_say_nothing_of_it(monkeypatch):
    rng = np.random.default_rng(0)
    given = np.concatenate([np.arange(300), rng.integers(0, 300, 100)])  # a class for nearly every row
    inputs = rng.normal(size=(len(given), 3)).astype(np.float32)
    monkeypatch.setattr(forests, "MOST_WORK", 6 * len(given) * 300)
    grown = []
    monkeypatch.setattr(
        "labelloop.relabel.learners.trees.grow",
        lambda inputs, labels, trees, seed, **how: grown.append(trees) or grow(inputs, labels, trees, seed, **how),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = forest_scores(inputs, given, 300, seed=0)
    assert grown == [12]
    assert np.isfinite(scores).all()
    assert np.allclose(np.exp(scores).sum(axis=1), 1)


@pytest.mark.parametrize("leaf", [1, 3])
@pytest.mark.parametrize("by", ["its own trees", "scikit-learn", "scikit-learn, for holes"])
def test_it_is_the_forest_of_scikit_learn_bit_for_bit(by, leaf, monkeypatch):
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(150, 5)), rng.choice([1, 4, 7], 150)
    inputs[:, 0] += labels
    if by == "scikit-learn, for holes":
        inputs[3, 2] = np.nan
    elif by == "scikit-learn":
        monkeypatch.setattr(forests, "_grown", lambda *_: int("a tree of a later version"))
    else:
        monkeypatch.setattr(forests, "_grown_by_scikit_learn", None)
    found = grow(inputs, labels, 40, 5, leaf=leaf, oob=True)
    forest = RandomForestClassifier(40, min_samples_leaf=leaf, oob_score=True, random_state=5).fit(inputs, labels)
    assert found.classes.tolist() == [1, 4, 7]
    assert (votes(found, inputs) == forest.predict_proba(inputs)).all()
    assert (found.oob == forest.oob_decision_function_).all()
    assert grow(inputs, labels, 40, 5, leaf=leaf, oob=False).oob is None


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize(("classes", "kind"), [(30, RandomForestClassifier), (31, ExtraTreesClassifier)])
def test_with_many_classes_splits_are_drawn(holes, classes, kind):
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 200)])
    inputs = rng.normal(size=(len(labels), 5)) + labels[:, None]
    if holes:
        inputs[3, 2] = np.nan
    forest = kind(10, min_samples_leaf=3, bootstrap=True, random_state=5).fit(inputs, labels)
    assert (votes(grow(inputs, labels, 10, 5, leaf=3, oob=False), inputs) == forest.predict_proba(inputs)).all()


def test_drawn_splits_say_no_less_with_many_classes(monkeypatch):
    rng = np.random.default_rng(0)
    centres, labels = rng.normal(size=(60, 16)), rng.integers(0, 60, 1800)
    inputs = centres[labels] + rng.normal(size=(1800, 16))

    def right():
        posterior = grow(inputs[:600], labels[:600], 60, 5, leaf=1, oob=False)
        return (posterior.classes[votes(posterior, inputs[600:]).argmax(axis=1)] == labels[600:]).mean()

    drawn = right()
    monkeypatch.setattr(forests, "MANY", 1000)
    assert drawn >= right() - 0.005


def test_no_forest_of_clean_rows_for_hundreds_of_classes():
    def names(classes):
        labels = np.arange(classes)
        empty = np.zeros((classes, classes + 1))
        observed = Observations(empty, labels, labels, labels, classes, inputs=np.zeros((classes, 2)), table=True)
        return set(families_without_given(observed))

    assert "clean rows, forest" in names(3)
    assert "clean rows, forest" not in names(500)


def test_the_notes_of_the_library_are_not_shown():
    inputs, labels = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32), np.arange(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filters.clear()  # as where nobody set a filter: scikit-learn then speaks of `delayed`
        warnings.simplefilter("error")
        posterior = votes(grow(inputs, labels, 3, 0, leaf=1, oob=False), inputs)
    assert posterior.shape == (40, 40)
