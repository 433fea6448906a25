"""The guard worked by hand: margins, bounds of classes, what is kept, and what confidence a few rows can speak for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta
from worlds import NUM_CLASSES, class_conditional

from labelloop.relabel import correct_labels
from labelloop.relabel.guard import BROKEN_BEFORE, Guard, Z, guard_line, margins, set_guard
from labelloop.relabel.noise_posterior import flatten, least_sharp

pytestmark = pytest.mark.slow

COUNTS = np.array([50, 50])


def changes(*outcomes: tuple[float, float, float]) -> Guard:
    lead, fixed, broken = (np.array(part) for part in zip(*outcomes, strict=True))
    return set_guard(lead, fixed, broken, COUNTS)


def test_the_bound_by_hand():
    three = changes((0.9, 1, 0), (0.5, 1, 0), (0.3, 1, 0))
    assert 3 - BROKEN_BEFORE - np.sqrt(3 + BROKEN_BEFORE) > 0
    assert (three.margin, three.fixed, three.broken) == (0.0, 3.0, 0.0)
    assert 2 - BROKEN_BEFORE - np.sqrt(2 + BROKEN_BEFORE) < 0
    assert changes((0.9, 1, 0), (0.5, 1, 0)).margin == 1.0, "two changes are not enough: every label is kept"
    assert changes((0.9, 1, 0), (0.9, 1, 0), (0.9, 1, 0), (0.9, 0, 1)).margin == 1.0, "equal margins stand together"


def test_only_margins_that_do_good_are_taken():
    good = [(0.8 + 0.01 * k, 1, 0) for k in range(8)]
    bad = [(0.2 + 0.01 * k, 0, 1) for k in range(8)]
    found = changes(*good, *bad)
    assert found.margin == pytest.approx(0.27), "just above the changes that break labels"
    assert (found.fixed, found.broken) == (8, 0)


def test_how_sure_it_is():
    assert Guard(COUNTS, 0.0, 8.0, 1.0).sure == pytest.approx(beta.sf(0.5, 9, 2.5))
    assert Guard(COUNTS).sure < 0.5


def test_a_class_that_nobody_verified_needs_six_times_the_odds():
    bounds = Guard(np.array([0, 10, 90])).bounds
    assert bounds[0] == pytest.approx(np.exp(Z * np.sqrt(1 / 0.5 + 1 / 100.5)))
    assert 6 < bounds[0] < 6.5
    assert bounds[0] > bounds[1] > 1
    assert Guard(np.array([0, 2000, 8000])).bounds[2] < 1.05, "the bound goes with the rows"


def test_what_is_kept_and_what_is_changed_by_hand():
    posterior = np.array([[0.9, 0.1], [0.9, 0.1], [0.55, 0.45], [0.2, 0.8]], np.float32)
    given = np.array([1, -1, 1, 1])
    guard = Guard(np.array([500, 500]), margin=0.2)
    np.testing.assert_allclose(margins(posterior, given)[[0, 2, 3]], [0.8, 0.1, 0.0], atol=1e-6)
    np.testing.assert_array_equal(guard.changes(posterior, given), [True, True, False, False])
    out = guard.apply(posterior, given)
    np.testing.assert_array_equal(out.argmax(axis=1), [0, 0, 1, 1])
    np.testing.assert_allclose(out[[0, 1, 3]], posterior[[0, 1, 3]], atol=1e-6)
    np.testing.assert_allclose(out[2], [0.5, 0.5], atol=1e-3), "nobody knows which of the two"


def test_nothing_is_changed_where_no_margin_is_good_enough():
    rng = np.random.default_rng(0)
    posterior, given = rng.dirichlet(np.full(5, 0.3), 300).astype(np.float32), rng.integers(5, size=300)
    out = Guard(np.full(5, 3)).apply(posterior, given)
    np.testing.assert_array_equal(out.argmax(axis=1), given)
    np.testing.assert_allclose(out.sum(axis=1), 1, atol=1e-5)
    without = Guard(np.full(5, 3)).apply(posterior, np.full(300, -1))
    np.testing.assert_array_equal(without.argmax(axis=1), posterior.argmax(axis=1))


def test_a_class_is_not_erased_by_hand():
    posterior = np.tile(np.array([[0.7, 0.3]], np.float32), (10, 1))
    posterior[3] = [0.6, 0.4]
    given = np.array([1] * 10)
    guard = Guard(np.array([500, 500]), margin=0.0)
    out = guard.apply(posterior, given)
    assert (out.argmax(axis=1) == 0).all(), "none of ten is kept, though three are right"
    # At odds 1.084 times as high, 9 * 0.317 + 0.420 = 3.28 are right; half of them are believed broken: two come back.
    back = guard.give_back(out, posterior, given, np.array([0.5, 0.5]))
    np.testing.assert_array_equal(np.flatnonzero(back.argmax(axis=1) == 1), [0, 3])
    np.testing.assert_allclose(back[3], [0.5, 0.5], atol=1e-3)
    known = guard.give_back(out, posterior, given, np.array([0.0, 0.0]))
    np.testing.assert_allclose(known, out, atol=1e-6)


def test_a_label_of_a_rare_class_counts_for_more_by_hand():
    guard = Guard(np.array([99, 1]), margin=0.0).for_rare_classes(np.array([98.0, 2.0]), np.array([0.01, 0.5]))
    assert guard.worth is not None
    np.testing.assert_allclose(guard.worth, [1.0, 0.5 + 0.5 / (2 * 0.02)])  # 13
    posterior = np.array([[0.93, 0.07], [0.92, 0.08], [0.92, 0.08], [0.99, 0.01], [0.07, 0.93]], np.float32)
    given = np.array([1, 1, -1, 1, 0])
    np.testing.assert_array_equal(guard.changes(posterior, given), [True, False, True, True, True])
    noise_only = posterior.copy()
    noise_only[3] = [0.80, 0.20]  # a mean of 0.105: above 1 / (1 + 13)
    np.testing.assert_array_equal(guard.changes(posterior, given, noise_only), [True, False, True, False, True])
    np.testing.assert_array_equal(guard.apply(posterior, given, noise_only).argmax(axis=1), [0, 1, 0, 1, 1])


def test_a_class_that_many_clean_rows_miss_is_not_held_on_to_by_hand():
    sizes, erased = np.array([59.0, 40.0, 1.0]), np.array([0.01, 0.01, 0.5])
    few, many, seen = (
        Guard(np.array(counts)).for_rare_classes(sizes, erased).worth
        for counts in ([6, 4, 0], [600, 400, 0], [600, 399, 1])
    )
    chance = 0.5 * 0.99**10
    np.testing.assert_allclose(few, [1, 1, 1 - chance + chance / 0.03])
    assert many[2] == pytest.approx(1, abs=0.01)
    assert seen[2] == pytest.approx(0.5 + 0.5 / 0.03)


def test_a_given_label_that_is_no_class_is_corrected():
    """Three real classes; 2% of the rows are given a fourth, such as a spelling error, which no clean row has."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 3000)
    given = np.where(rng.random(3000) < 0.2, (true + 1) % 3, true)
    given[rng.random(3000) < 0.02] = 3
    scores = rng.normal(size=(3000, 4))
    scores[np.arange(3000), true] += 4
    scores[:, 3] -= 2
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    clean = np.full(3000, -1)
    clean[:600] = true[:600]
    labels = correct_labels(given, clean, 4, pred_probs=p.astype(np.float32)).targets.argmax(axis=1)
    phantom = (given == 3) & (clean < 0)
    assert phantom.sum() > 30
    assert (labels[phantom] == 3).mean() < 0.1
    assert (labels == true)[clean < 0].mean() > 0.95


def test_classes_of_about_one_size_are_left_to_the_other_rules():
    guard = Guard(np.array([20, 10]), margin=0.1)
    posterior = np.random.default_rng(0).dirichlet([1, 1], 500).astype(np.float32)
    given = np.random.default_rng(1).integers(0, 2, 500)
    for_rare_classes = guard.for_rare_classes(np.array([70.0, 30.0]), np.array([0.5, 0.5]))
    np.testing.assert_array_equal(for_rare_classes.changes(posterior, given), guard.changes(posterior, given))
    rare = guard.for_rare_classes(np.array([80.0, 20.0]), np.array([0.5, 0.5]))
    assert rare.changes(posterior, given).sum() < guard.changes(posterior, given).sum()


def test_few_rows_leave_open_how_sure_the_inputs_are():
    q = np.tile(np.array([[0.9, 0.1]], np.float32), (400, 1))
    right = np.zeros(400, int)
    often = np.where(np.arange(400) % 10 == 0, 1, 0)  # nine of ten are right, as q says
    few, many = least_sharp(q[:10], often[:10]), least_sharp(q, often)
    assert few < many < 1
    # Of ten rows that are all right, the loss may be 10 log(1 + e^-t) = 10 log(1 + 1/9) + 1.645² / 2 at log-odds t.
    t = -np.log(np.expm1(np.log1p(1 / 9) + 1.645**2 / 20))
    assert least_sharp(q[:10], right[:10]) == pytest.approx(t / np.log(9), rel=0.1)
    np.testing.assert_allclose(flatten(q[:1], 0.5), [[3 / 4, 1 / 4]], atol=1e-6)


def test_laplaces_rule_bounds_every_confidence():
    posterior = np.array([[1.0, 0.0, 0.0], [0.5, 0.3, 0.2]], np.float32)
    out = Guard(np.array([3, 2, 0])).apply(posterior, np.array([0, 0]))
    np.testing.assert_allclose(out[0], [6 / 7, 1 / 14, 1 / 14], atol=1e-6)
    np.testing.assert_allclose(out[1], posterior[1], atol=1e-6)


def test_the_line():
    found = {"rows": 90, "changed": 20, "held_back": 4, "clean_rows": 30, "given_right": 0.7, "corrected_right": 0.9}
    posterior = guard_line({**found, "sure": 0.987, "labels_simulated": False})
    assert posterior == (
        "20 of 90 given labels changed; 4 changes held back for lack of evidence; on 30 clean rows with a given label,"
        " 90.0% are right after correction and 70.0% as given; the probability that changes fix more than they break is"
        " 98.7%"
    )
    kept = guard_line({**found, "changed": 0, "sure": None, "labels_simulated": True})
    assert kept.startswith("all 90 given labels kept: 30 clean rows with simulated given labels do not show")
    one = guard_line({**found, "changed": 0, "held_back": 1, "sure": None, "labels_simulated": True})
    assert one.endswith("; 1 change held back for lack of evidence")


@pytest.mark.parametrize("paired", [True, False])
def test_five_clean_rows_do_no_harm(paired):
    world = class_conditional(600)
    clean = world.clean(5)
    given = world.given if paired else np.where(clean >= 0, -1, world.given)
    found = correct_labels(given, clean, NUM_CLASSES, pred_probs=world.probabilities)
    assert world.accuracy(found.targets.argmax(axis=1), clean) >= world.accuracy(world.given, clean) - 0.005
    assert found.targets.max() <= 6 / 7 + 1e-6
    assert "kept" in found.guard["line"]


@pytest.mark.parametrize("paired", [True, False])
def test_a_rare_class_that_nobody_verified_is_not_erased(paired):
    rng = np.random.default_rng(0)
    true = (rng.random(2000) < 0.02).astype(int)
    x = np.where(true[:, None] == 1, 1.5, 0.0) + rng.normal(size=(2000, 4))
    given = np.where(rng.random(2000) < 0.02, 1 - true, true)
    rows = rng.permutation(np.flatnonzero(true == 0))[:200]
    clean = np.full(2000, -1)
    clean[rows] = 0
    shown = given if paired else np.where(clean >= 0, -1, given)
    found = correct_labels(shown, clean, 2, embeddings=x.astype(np.float32), table=True)
    positive = (true == 1) & (given == 1)
    assert positive.sum() > 25
    assert (found.targets.argmax(axis=1) == 1)[positive].mean() > 0.6
    assert (found.targets.argmax(axis=1) == true).mean() >= (given == true).mean() - 0.005


def rare_world(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """2,000 rows, 2% of them of the second class; a tenth of the labels is wrong, 150 rows are clean."""
    rng = np.random.default_rng(seed)
    true = (np.arange(2000) < 40).astype(np.int64)
    given = np.where(rng.random(2000) < 0.1, 1 - true, true)
    lean = 2.2 * (2 * true - 1) + rng.normal(0, 1.5, 2000) - 1.5
    p = 1 / (1 + np.exp(-lean))
    clean = np.full(2000, -1)
    chosen = rng.permutation(2000)[:150]
    clean[chosen] = true[chosen]
    return np.stack([1 - p, p], axis=1).astype(np.float32), given, clean, true


@pytest.mark.parametrize("paired", [True, False])
def test_a_rare_class_with_few_clean_rows_keeps_most_of_its_good_labels(paired, monkeypatch):
    def broken_and_gain() -> tuple[float, float]:
        broken, gain = [], []
        for seed in range(4):
            p, given, clean, true = rare_world(seed)
            shown = given if paired else np.where(clean >= 0, -1, given)
            labels = correct_labels(shown, clean, 2, pred_probs=p).targets.argmax(axis=1)
            rows = (shown >= 0) & (clean < 0)
            good = rows & (true == 1) & (given == 1)
            broken.append((labels[good] != 1).mean())
            gain.append((labels == true)[rows].mean() - (given == true)[rows].mean())
        return float(np.mean(broken)), float(np.mean(gain))

    broken, gain = broken_and_gain()
    monkeypatch.setattr("labelloop.relabel.guard.RARE", 0.0)
    without, _ = broken_and_gain()
    assert gain > 0.03, "labels are still corrected"
    assert broken < 0.6 * without


def test_light_noise_is_not_made_heavier():
    world = class_conditional(1200, matrix=0.96 * np.eye(NUM_CLASSES) + 0.01)
    for seed in range(3):
        clean = world.clean(60, seed)
        for given in (world.given, np.where(clean >= 0, -1, world.given)):
            found = correct_labels(given, clean, NUM_CLASSES, pred_probs=world.probabilities, seed=seed)
            assert world.accuracy(found.targets.argmax(axis=1), clean) >= world.accuracy(world.given, clean) - 0.005


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("count", [10, 60])
def test_predictions_that_are_wrong_with_certainty_do_not_beat_labels_that_are_right(count, paired):
    """Probabilities with 5% of the rows wrong, given labels with 2%: most changes would break a label."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        true = rng.integers(3, size=1200)
        posterior = np.where(rng.random(1200) < 0.05, (true + 1) % 3, true)
        given = np.where(rng.random(1200) < 0.02, (true + rng.integers(1, 3, size=1200)) % 3, true)
        clean = np.where(np.arange(1200) < count, true, -1)
        shown = given if paired else np.where(clean >= 0, -1, given)
        p = (0.999 * np.eye(3)[posterior] + 0.001 / 3).astype(np.float32)
        found = correct_labels(shown, clean, 3, pred_probs=p, seed=seed).targets.argmax(axis=1)
        noisy = clean < 0
        before, after = ((labels == true)[noisy].mean() for labels in (given, found))
        assert after > before - 1.645 * np.sqrt(before * (1 - before) / noisy.sum())
