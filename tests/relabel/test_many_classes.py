"""Many classes with few rows: a matrix of noise has more numbers than there are rows to tell them."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.relabel.calibration import Observations, side_by_side
from labelloop.relabel.noise_posterior import estimate_noise
from labelloop.relabel.relabel import correct_scores, relabel
from labelloop.relabel.stacking import ValidationRows

pytestmark = pytest.mark.slow

CLASSES = 60


def weak_scores(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities that are right for one row in six, given labels of which a third is wrong, and the truth."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, CLASSES, rows)
    wrong = rng.random(rows) < 1 / 3
    given = np.where(wrong, (true + rng.integers(1, CLASSES, rows)) % CLASSES, true)
    logits = rng.normal(size=(rows, CLASSES))
    logits[np.arange(rows), true] += 1.2
    return np.log(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)), given, true


def test_labels_are_not_worse_than_given():
    scores, given, true = weak_scores(1500, 0)
    clean = np.where(np.arange(1500) < 150, true, -1)
    hidden = np.where(clean >= 0, -1, given)
    found = correct_scores(side_by_side([scores], np.float32), hidden, clean, CLASSES)
    noisy = clean < 0
    assert (found.targets.argmax(axis=1) == true)[noisy].mean() >= (given == true)[noisy].mean() - 0.005


def test_with_fewer_rows_than_entries_one_rate_is_estimated():
    """Every class then has the same share of right labels."""
    for rows, whole in ((1500, False), (5000, True)):  # 60² is 3,600
        scores, given, true = weak_scores(rows, 1)
        clean = np.where(np.arange(rows) < 60, true, -1)
        sample = np.flatnonzero(clean < 0)
        scores_32 = side_by_side([scores], np.float32)
        observed = Observations(scores_32, np.where(clean >= 0, -1, given), clean, sample, CLASSES)
        noise = estimate_noise(ValidationRows.all_clean(observed, np.random.default_rng(0)), np.exp(scores))
        assert (noise.by_row is not None) == whole
        same = np.ptp(noise.transition.diagonal()) < 1e-9
        assert same == (not whole)
        assert noise.transition.diagonal().min() > 0.3  # two thirds are right


def test_with_enough_rows_a_matrix_is_estimated_for_many_classes_too():
    """75 classes have 5,625 entries, more than the rows that are usually sampled."""
    rng, classes = np.random.default_rng(2), 75
    true = rng.integers(0, classes, 7000)
    given = np.where(rng.random(7000) < 0.4, (true + 1) % classes, true)  # every class is taken for the next one
    logits = rng.normal(size=(7000, classes))
    logits[np.arange(7000), true] += 3.5
    scores = side_by_side([np.log(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))], np.float32)
    clean = np.where(np.arange(7000) < 200, true, -1)
    answer = relabel(scores, np.where(clean >= 0, -1, given), clean, classes)
    assert len(answer.noise.validation.observed.sample) == classes**2
    next_one = answer.noise.transition[np.arange(classes), (np.arange(classes) + 1) % classes]
    assert next_one.mean() > 0.25  # 0.4 of the labels
    noisy = clean < 0
    assert (answer.posterior.final.argmax(axis=1) == true)[noisy].mean() > (given == true)[noisy].mean() + 0.1
