"""Weakly labelled text: the majority of the votes is the given label, and a row without a vote has none."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.bench.experiment import Experiment
from labelloop.data.datasets import load_dataset
from labelloop.data.datasets.embeddings import majority
from labelloop.errors import DataError, UsageError
from labelloop.workflows.compose import load_data, noisy_problem


def write(folder, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.normal(size=(40, 4)).astype(np.float16),
        "y_train": np.arange(40) % 2,
        "votes_train": rng.integers(-1, 2, (40, 3)),
        "x_test": np.zeros((6, 4)),
        "y_test": np.arange(6) % 2,
        "class_names": np.array(["ham", "spam"]),
    } | changes
    (folder / "weak-text").mkdir(exist_ok=True)
    path = folder / "weak-text" / "youtube.npz"
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return arrays


def test_the_majority_wins_the_first_class_wins_a_draw_and_no_vote_is_no_label():
    votes = np.array([[1, 1, 0], [0, 1, -1], [-1, -1, -1], [-1, 1, -1]])
    assert majority(votes, 2).tolist() == [1, 0, -1, 1]


def test_a_vote_for_no_class_is_refused():
    with pytest.raises(DataError, match=r"votes of row 1: \[0, 2\]; expected -1 or a class below 2"):
        majority(np.array([[0, 1], [0, 2]]), 2)


def test_the_parts_of_the_file_arrive(tmp_path):
    arrays = write(tmp_path)
    data = load_dataset("weak-text", tmp_path, clean=10, limit=30)
    assert data.inputs.shape == (30, 4)
    assert data.labels.tolist() == arrays["y_train"][:30].tolist()
    assert data.given_labels.tolist() == majority(arrays["votes_train"][:30], 2).tolist()
    assert len(data.clean_index) == 10
    assert data.class_names == ("ham", "spam")


def test_what_is_missing_is_named(tmp_path):
    write(tmp_path, votes_train=None)
    with pytest.raises(DataError, match="has no votes_train"):
        load_dataset("weak-text", tmp_path)
    write(tmp_path, class_names=None)
    with pytest.raises(DataError, match="has no class_names"):
        load_dataset("weak-text", tmp_path)
    with pytest.raises(UsageError, match="unknown texts 'youtub'; did you mean 'youtube'"):
        load_dataset("weak-text", tmp_path, texts="youtub")


def test_an_experiment_draws_its_clean_rows_by_the_seed_and_keeps_the_given_labels(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.setenv("LABELLOOP_DATA", str(tmp_path))
    drawn = []
    for seed in (0, 1):
        experiment = Experiment(
            dataset="weak-text", dataset_options={"clean": 10}, clean=0, noise="none", seed=seed, config={"epochs": 30}
        )
        data = load_data(experiment)
        problem, truth, _ = noisy_problem(experiment, data)
        assert (len(problem.train), len(problem.clean)) == (30, 10)
        assert problem.train.labels.tolist() == data.given_labels[problem.train.index].tolist()
        assert truth.train_labels.tolist() == data.labels[problem.train.index].tolist()
        drawn.append(problem.clean.index.tolist())
    assert drawn[0] != drawn[1]


def test_the_real_youtube_comments(shared_data):
    if not (shared_data / "weak-text").is_dir():
        pytest.skip(f"no weak-text here: {shared_data}")
    data = load_dataset("weak-text", shared_data)
    voted = data.given_labels >= 0
    assert (data.given_labels != data.labels)[voted].mean() == pytest.approx(0.21, abs=0.005)
    assert 1 - voted.mean() == pytest.approx(0.107, abs=0.001)
