"""Clean rows without a given label: what estimates of how good the labels are keep from harm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from labelloop.relabel import correct_labels
from labelloop.relabel.calibration import side_by_side
from labelloop.relabel.relabel import Relabelled, relabel
from labelloop.relabel.simulated_labels import RightShare, Simulated

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Law:
    """Predictions that are as right as they say, and labels that are right in a share of the rows, whatever these are.

    Attributes:
        classes: C.
        noisy: Noisy rows.
        clean_rows: Clean rows without a given label, the first ones.
        right: The share of given labels that are right.
        sharp: How certain the predictions are.
    """

    classes: int
    noisy: int
    clean_rows: int
    right: float
    sharp: float


def rows(seed: int, law: Law) -> tuple[np.ndarray, ...]:
    """Predictions, given labels, those that are shown, clean labels and true ones."""
    rng, classes, count = np.random.default_rng(seed), law.classes, law.noisy + law.clean_rows
    logits = law.sharp * rng.normal(size=(count, classes))
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    true = (rng.random((count, 1)) > q.cumsum(axis=1)).sum(axis=1).clip(max=classes - 1)
    given = np.where(rng.random(count) < law.right, true, (true + rng.integers(1, classes, count)) % classes)
    clean = np.where(np.arange(count) < law.clean_rows, true, -1)
    return q.astype(np.float32), given, np.where(clean >= 0, -1, given), clean, true


def outcomes(draws: int, law: Law) -> list[tuple[float, dict]]:
    """What labels gained in every draw, and what the guard says."""
    found = []
    for seed in range(draws):
        q, given, shown, clean, true = rows(seed, law)
        result = correct_labels(shown, clean, q.shape[1], pred_probs=q, seed=seed)
        rest = clean < 0
        gained = (result.targets.argmax(axis=1) == true)[rest].mean() - (given == true)[rest].mean()
        found.append((float(gained), result.guard))
    return found


def test_weak_predictions_and_few_noisy_rows_do_no_harm():
    """Labels three quarters right, predictions a half: drawn labels alone let a third of such runs lose points."""
    found = outcomes(24, Law(6, 200, 200, 0.75, 1.0))
    assert sum(gained < 0 for gained, _ in found) <= 2
    assert np.mean([gained for gained, _ in found]) > -0.002


def test_heavy_noise_still_opens_and_no_probability_is_given():
    found = outcomes(12, Law(4, 200, 100, 0.6, 2.5))
    assert all(gained > 0.08 for gained, _ in found)
    ways = {guard["how"] for _, guard in found}
    assert "assumed" in ways
    for _, guard in found:
        assert (guard["sure"] is None) == (guard["how"] == "assumed")
        assert ("no probability is given" in guard["line"]) == (guard["how"] == "assumed")


@pytest.fixture(scope="module")
def relabelled() -> Relabelled:
    q, given, shown, clean, _ = rows(0, Law(3, 150, 60, 0.7, 1.5))
    shown = np.where(np.arange(len(given)) < 5, given, shown)  # five pairs
    scores = side_by_side([np.log(q)], np.float32)
    return relabel(scores, shown, clean, 3)


def test_careful_labels_are_right_as_often_as_they_may_be(relabelled):
    noise, labels = relabelled.noise, relabelled.noise.validation.labels
    missing = noise.validation.given == -1
    assert (missing.sum(), (~missing).sum()) == (55, 5)

    def posterior(given: np.ndarray) -> np.ndarray:
        return noise.posterior_given(noise.validation.rows, relabelled.q.oof, given)

    for most in (0.9, 1.0, 0.0):
        found = Simulated.of(noise, posterior, most, np.random.default_rng(0))
        for trials in (found.likely, found.careful):
            assert sum(trial.share for trial in trials) == pytest.approx(1)
            assert any((trial.given != noise.validation.given)[~missing].any() for trial in trials), "pairs as well"
        for k, law in enumerate(noise.label_probs(noise.validation.rows, labels)):
            estimated = law[np.arange(60), labels].mean()
            mine = [trial for trial in found.careful if trial.model == k]
            assert sum(trial.share for trial in mine) == pytest.approx(1 / 2)
            right = 2 * sum(trial.share * (trial.given == labels).mean() for trial in mine)
            assert right == pytest.approx(max(most, estimated), abs=0.03), "20 drawn labels for each row"


def test_the_slope_of_a_trial_is_the_derivative_of_its_weight(relabelled):
    """The gain changes with the share of right labels as the weights of all trials together do."""
    noise, labels = relabelled.noise, relabelled.noise.validation.labels

    def weights(share: float) -> tuple[np.ndarray, np.ndarray]:
        found = Simulated.of(
            noise, lambda given: np.eye(3, dtype=np.float32)[given], share, np.random.default_rng(0)
        ).careful
        return np.array([trial.share for trial in found]), np.array([trial.slope for trial in found])

    before, slope = weights(0.94)
    np.testing.assert_allclose((weights(0.95)[0] - before) / 0.01, slope, rtol=1e-6)
    assert slope.sum() == pytest.approx(0)
    assert len(labels) == 60


def test_the_share_of_a_world_is_about_right(relabelled):
    found = RightShare.of(relabelled.noise.validation, relabelled.q, relabelled.noise.transition)
    assert abs(found.value - 0.7) < 2.5 * found.error < 0.25


def test_a_few_pairs_change_as_much_as_rows_without_a_given_label():
    """Eighteen clean rows are too few for a sign test; whether they kept their given label must not cost changes."""
    gained = []
    for seed in range(4):
        q, given, shown, clean, true = rows(seed, Law(4, 800, 18, 0.45, 6.0))
        rest = clean < 0
        before = (given == true)[rest].mean()
        for known in (shown, given):
            found = correct_labels(known, clean, 4, pred_probs=q, seed=seed)
            gained.append(float((found.targets.argmax(axis=1) == true)[rest].mean() - before))
            assert found.guard["how"] == "assumed"
            assert found.guard["sure"] is None
    without, pairs = np.reshape(gained, (4, 2)).T
    assert without.mean() > 0.2
    assert (pairs > without - 0.05).all()
