"""The rule that chooses settings: on clean rows alone, the same for every method."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from choose_settings import MOST_CANDIDATES, SEED, best_of, held_out_right, read_choices, without_some_clean

from labelloop.bench.experiment import Experiment
from labelloop.errors import UsageError
from labelloop.workflows import compose
from labelloop.workflows.compose import load_data, noisy_problem

TINY = {"epochs": 2, "network": "mlp", "network_options": {"hidden": [16]}}


def digits(**changes) -> Experiment:
    settings: dict[str, Any] = {"clean": 100, "method": "cross-entropy", "config": TINY, "seed": 100}
    return Experiment(**(settings | changes))


def test_the_most_right_answers_win_and_the_published_settings_win_a_tie():
    assert best_of([70, 74, 71]) == 1
    assert best_of([74, 74]) == 0


def test_more_than_three_candidates_are_refused():
    with pytest.raises(UsageError, match="4 candidates; the rule allows from 1 to 3"):
        best_of([1, 2, 3, 4])


def test_a_fifth_of_the_clean_rows_judges_and_is_not_trained_on():
    experiment = digits()
    problem, _, _ = noisy_problem(experiment, load_data(experiment))
    shown, judges = without_some_clean(problem, 100)
    assert (len(shown.clean), len(judges)) == (80, 20)
    assert not set(shown.clean.index) & set(judges.index)
    assert set(shown.clean.index) | set(judges.index) == set(problem.clean.index)
    assert np.array_equal(shown.train.labels, problem.train.labels)


def test_neither_test_rows_nor_true_labels_are_looked_at(monkeypatch):
    seen = []

    class Watched(compose.Runtime):
        def __init__(self, seed, device, folder, truth, *others):
            seen.append(truth)
            super().__init__(seed, device, folder, truth, *others)

    monkeypatch.setattr(compose, "Runtime", Watched)
    experiment = digits()
    right, of = held_out_right(experiment)
    problem, _, _ = noisy_problem(experiment, load_data(experiment))
    (truth,) = seen
    assert truth.train_labels is None
    assert set(truth.test.index) < set(problem.clean.index)
    assert truth.test.inputs is not load_data(experiment).test_inputs
    assert 0 <= right <= of == 20


def test_the_oracle_has_nothing_to_choose():
    with pytest.raises(UsageError, match="given the true labels"):
        held_out_right(digits(method="oracle"))


def test_every_choice_of_the_tables_keeps_to_the_budget_and_sets_the_same_keys():
    choices = read_choices()
    assert {choice.row for choice in choices} >= {"L2B", "MW-Net", "FasTEN", "fine-tune on clean"}
    for choice in choices:
        assert 2 <= len(choice.candidates) <= MOST_CANDIDATES, choice
        assert len({frozenset(each) for each in choice.candidates}) == 1, choice
        assert choice.now.seed == SEED
