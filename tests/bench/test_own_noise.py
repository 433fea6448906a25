"""Data sets that bring their own noise and clean rows, and settings that a method refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from labelloop.bench.experiment import Experiment
from labelloop.data.datasets import DATASETS
from labelloop.data.datasets.labelled import labelled
from labelloop.errors import UsageError
from labelloop.workflows.compose import load_data, noisy_problem


def own_noise(root=None, *, seed=0):
    """Six rows with a given label each, the last two of them verified; which two would follow from the seed."""
    return labelled(
        "own",
        f"seed {seed}",
        (np.arange(24, dtype=np.float32).reshape(8, 3), np.array([-1, -1, -1, -1, -1, -1, 0, 1])),
        (np.zeros((2, 3), np.float32), np.array([0, 1])),
        ("a", "b"),
        given_labels=np.array([0, 1, 0, 1, 0, 1, -1, -1]),
        clean_index=np.array([6, 7]),
    )


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setitem(DATASETS, "own", own_noise)
    return Experiment(dataset="own", noise="none", clean=0, seed=3)


def test_its_given_labels_and_clean_rows_are_taken_as_they_are(own):
    problem, _, _ = noisy_problem(own, load_data(own))
    np.testing.assert_array_equal(problem.train.labels, [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(problem.clean.clean_labels, [0, 1])


@pytest.mark.parametrize("other", [{"noise": "symmetric"}, {"clean": 1}, {"noise": "pair", "clean": 1}])
def test_no_further_noise_is_drawn_and_no_other_clean_rows(own, other):
    with pytest.raises(UsageError, match="brings its own noise and clean rows"):
        noisy_problem(dataclasses.replace(own, **other), load_data(own))


def test_it_draws_by_the_seed_of_the_experiment_unless_told_otherwise(own):
    assert load_data(own).source == "seed 3"
    assert load_data(dataclasses.replace(own, dataset_options={"seed": 5})).source == "seed 5"
