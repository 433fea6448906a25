"""The guard worked by hand: margins, bounds of classes, what is kept, and what confidence a few rows can speak for."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from scipy.stats import binom, hypergeom, norm
from scipy.stats import t as student
from worlds import NUM_CLASSES, class_conditional

from labelloop.relabel import correct_labels
from labelloop.relabel.evidence import Bound, Evidence, as_sure, few_wrong, guard_line
from labelloop.relabel.gains import BROKEN_BEFORE, Counts, Sample, cross_fit, gain_test, sign_test, uninformed
from labelloop.relabel.guard import KEEP_ALL, MOST_RANK, Guard, Z, _is_variant, keep_given, margins
from labelloop.relabel.simulated_labels import Trial
from labelloop.types import DIFFER

pytestmark = pytest.mark.slow

COUNTS = np.array([50, 50])


def counts(*outcomes: tuple[float, float, float]) -> Counts:
    lead, fixed, broken = (np.array(part, float) for part in zip(*outcomes, strict=True))
    return of_rows(lead, fixed, broken, np.arange(len(lead)))


def of_rows(lead: np.ndarray, fixed: np.ndarray, broken: np.ndarray, row: np.ndarray) -> Counts:
    """Changes under one noise model."""
    return Counts(lead, fixed * 1.0, broken * 1.0, row, np.zeros(len(row), int), np.zeros(len(row)))


def test_the_margin_by_hand():
    three = counts((0.9, 1, 0), (0.5, 1, 0), (0.3, 1, 0))
    assert three.best_margin() == 0.0
    assert three.above(np.full(3, 0.4)) == (2.0, 0.0)
    assert three.among(np.array([False, True, True])).above(np.full(3, 0.4)) == (1.0, 0.0)
    nothing = np.zeros(0)
    none = of_rows(nothing, nothing, nothing, nothing.astype(int))
    assert none.best_margin() == none.margin_of_gains(of_pairs(5)) == KEEP_ALL


def test_counts_of_real_labels_contradict_changes_that_break_more_than_they_fix():
    some = counts((0.9, 1, 0), (0.5, 0, 1), (0.3, 0, 1))
    assert [some.contradict(np.full(3, margin)) for margin in (0.6, 0.4, 0.2)] == [0.0, 0.0, 1.0]
    assert some.among(np.zeros(3, bool)).contradict(np.zeros(3)) == 0.0, "no pairs say nothing"


def test_predictions_are_compared_with_class_frequencies_by_hand():
    """Four rows of two classes; without itself and with one prior row, a row sees its own class in 3 of 8."""
    labels = np.array([0, 0, 1, 1])
    right = np.eye(2)[labels] * 0.8 + 0.1
    differs = 2 * (5 / 8) ** 2 - 2 * 0.1**2
    off = right.copy()
    off[0] = [0.4, 0.6]
    told = np.array([2 * (5 / 8) ** 2 - 2 * 0.6**2, differs, differs, differs])
    t = told.mean() / (told.std(ddof=1) / 2)
    assert uninformed(off, labels) == pytest.approx(student.sf(t, 3))
    assert uninformed(right, labels) == pytest.approx(0, abs=1e-9), "always better"
    assert uninformed(np.full((4, 2), 0.5), labels) == pytest.approx(0, abs=1e-9), (
        "these classes are even, and others' rows say uneven"
    )
    assert uninformed(right[:1], labels[:1]) == 1


def test_predictions_that_know_nothing_change_nothing_without_pairs():
    """Features are random, and 40 clean rows may be predicted well by chance."""
    changed = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        inputs, true = rng.normal(size=(400, 6)), rng.integers(0, 3, 400)
        rng = np.random.default_rng(seed + 1000)
        given = np.where(rng.random(400) < 0.2, (true + 1) % 3, true)
        chosen = rng.permutation(400)[:40]
        clean = np.full(400, -1)
        clean[chosen] = true[chosen]
        given[chosen] = -1
        found = correct_labels(given, clean, 3, embeddings=inputs, table=True)
        changed.append(int((found.targets.argmax(axis=1) != given)[clean < 0].sum()))
    assert changed == [0] * 6


def of_pairs(rows: int, error: float = 0.0, chance: float = 0.0) -> Sample:
    return Sample(np.ones(rows, bool), chance, error)


def test_only_margins_that_do_good_are_taken():
    good = [(0.8 + 0.01 * k, 1, 0) for k in range(8)]
    bad = [(0.2 + 0.01 * k, 0, 1) for k in range(8)]
    found = counts(*good, *bad)
    assert found.best_margin() == pytest.approx(0.27), "just above the changes that break labels"
    assert 8 - BROKEN_BEFORE - np.sqrt(8 + BROKEN_BEFORE) > 0
    assert found.above(np.full(16, 0.27)) == (8, 0)


def test_the_sign_test_is_the_binomial_mid_p_value():
    for fixed in range(9):
        for broken in range(9):
            n = fixed + broken
            exact = binom.sf(fixed, n, 0.5) + binom.pmf(fixed, n, 0.5) / 2
            assert sign_test(fixed, broken) == pytest.approx(exact if n else 0.5)
    assert sign_test(3, 0) == 0.0625
    assert sign_test(5, 1) < 0.1 < sign_test(2, 0)


def test_the_bound_counts_wrong_predictions_among_the_noisy_rows_that_there_are():
    for wrong, rows, changed, noisy, others in ((0, 13, 43, 100, 22), (2, 30, 20, 50, 11), (5, 6, 7, 400, 4)):
        exact = hypergeom.cdf(wrong, rows + noisy, wrong + others, rows)
        assert few_wrong(wrong, rows, changed, noisy) == pytest.approx(exact)
    assert few_wrong(0, 10, 0.0, 100) == 1.0, "no change, no gain"


@pytest.mark.parametrize(
    ("changed", "alpha", "before"), [(9, 0.05, 0.0544), (20, 0.1, 0.1275), (20, 0.05, 0.0631), (4, 0.1, 0.0)]
)
def test_the_bound_is_seldom_passed_by_changes_that_do_harm(changed, alpha, before):
    """Exact: 30 clean rows among 70, of which K have a confident wrong prediction, for every K.

    In the worst case a wrong prediction breaks a good label, so changes do harm if it is in more than half of them.
    With predictions as wrong in noisy rows as in any number of rows, the test was passed too often.
    """
    rows, noisy, worst, many = 30, 40, 0.0, 0.0
    for wrong in range(rows + noisy + 1):
        seen = np.arange(min(rows, wrong) + 1)
        chance = hypergeom.pmf(seen, rows + noisy, wrong, rows)
        harm = 2 * (wrong - seen) > changed
        passed = np.array([few_wrong(int(k), rows, changed, noisy) <= alpha for k in seen])
        worst = max(worst, float(chance[harm & passed].sum()))
        many = max(many, float(chance[harm & (binom.cdf(seen, rows, changed / noisy / 2) <= alpha)].sum()))
    assert worst <= alpha
    assert many == pytest.approx(before, abs=1e-4)


def test_confidences_are_raised_to_those_of_rows_that_models_learnt_from():
    many = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    np.testing.assert_allclose(as_sure(np.array([0.6, 0.4]), many), [1.0, 0.8])  # ranks 2 of 2 and 1 of 2
    np.testing.assert_allclose(as_sure(np.array([0.9, 0.2]), many * 0.5), [0.9, 0.4])
    assert as_sure(np.array([0.3]), many[:0]).tolist() == [0.3]
    assert not len(as_sure(many[:0], many))
    rng = np.random.default_rng(0)
    few, many = rng.random(50) ** 2, rng.random(200)
    for threshold in rng.random(20):
        assert (as_sure(few, many) > threshold).mean() >= (many > threshold).mean()


def passes(found: Counts, fold) -> bool:
    """Whether changes are made."""
    result = cross_fit(fold, lambda rows: found.among(rows).best_margin(), lambda t: sign_test(*found.above(t)))
    return result.all < KEEP_ALL


def test_expected_gains_by_hand():
    """Gains of ½, ½ and 0 and the row that loses a label: the sum is 0, then 1 for two further halves."""
    assert gain_test(np.array([0.5, 0.5, 0.0])) == pytest.approx(0.5)
    halves = np.full(4, 0.5)  # mean 0.2, squares 4 * 0.09 + 1.44
    assert gain_test(halves) == pytest.approx(norm.sf(1 / np.sqrt(1.8)))
    assert gain_test(halves, variance=2.2) == pytest.approx(norm.sf(1 / 2))
    assert gain_test(np.zeros(50)) > 0.8, "nothing gained"
    assert gain_test(np.full(10, 0.9)) < 0.01 < gain_test(np.full(2, 0.9)), "a few rows show little"


def test_changes_must_help_under_every_noise_model():
    lead, one = np.full(12, 0.9), np.ones(12) / 2  # each row twice, with half of its weight under each model
    model, good, row = np.arange(12) % 2, np.arange(12) % 2 == 0, np.arange(12) // 2
    both = Counts(lead, one, 0 * one, row, model, 0 * one)
    assert both.p_of_gains(np.zeros(6), 2, of_pairs(6)) == gain_test(np.ones(6))
    either = Counts(lead, one * good, one * ~good, row, model, 0 * one)
    assert either.p_of_gains(np.zeros(6), 2, of_pairs(6)) == gain_test(-np.ones(6))


def test_what_is_not_known_widens_the_test_of_gains():
    """Rows that gain ½ each; how many labels are right is known up to 0.1, and the gain falls twice as fast."""
    row = np.arange(8)
    found = Counts(np.full(8, 0.9), np.full(8, 0.6), np.full(8, 0.1), row, 0 * row, np.full(8, -2.0))
    gains, margin = np.full(8, 0.5), np.zeros(8)
    assert found.p_of_gains(margin, 1, of_pairs(8)) == gain_test(gains)
    assert found.p_of_gains(margin, 1, of_pairs(8, error=0.1)) == pytest.approx(gain_test(gains, 1.6**2))
    assert found.p_of_gains(margin, 1, of_pairs(8, chance=0.5)) == pytest.approx(gain_test(gains, 0.5 * 8 * 0.7))
    seven = Sample(row > 0, 0.0, 0.0)
    assert found.p_of_gains(margin, 1, seven) == gain_test(gains[1:]), "a copy does not count"


def test_the_margin_of_expected_gains_is_the_best_bound_of_all_margins():
    """Against the definition: the sum of gains above a margin and the losing row, less one standard error."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        rows, changes = 12, 60
        lead, row = rng.random(changes).round(1), rng.integers(0, rows, changes)
        fixed, broken = 0.2 * rng.random(changes), 0.12 * rng.random(changes)
        sample = of_pairs(rows, chance=0.3)

        def bound(margin: float, lead=lead, row=row, fixed=fixed, broken=broken, rows=rows) -> float:
            mine = lead > margin
            gains = np.append(np.bincount(row[mine], (fixed - broken)[mine], rows), -1.0)
            spread = ((gains - gains.mean()) ** 2).sum() + 0.3 * (fixed + broken)[mine].sum()
            return float(gains.sum() - np.sqrt(spread))

        margins_tried = np.unique(np.append(lead, 0.0))[:-1]
        bounds = np.array([bound(margin) for margin in margins_tried])
        expected = margins_tried[bounds >= bounds.max() - 1][0]
        assert of_rows(lead, fixed, broken, row).margin_of_gains(sample) == pytest.approx(expected)


@pytest.mark.parametrize("fixed_share", [0.5, 0.45])
@pytest.mark.parametrize("changes", [20, 50])
def test_changes_that_do_no_good_are_seldom_made(fixed_share, changes):
    """Rows choose the margin that they test, and at most one trial in ten passes; without cross-fitting more do."""
    rng, passed, tuned = np.random.default_rng(changes), 0, 0
    for _ in range(1000):
        right = rng.random(changes) < fixed_share
        found = of_rows(rng.random(changes), right, ~right, np.arange(changes))
        fold = rng.permutation(changes) % 5
        result = cross_fit(
            fold, lambda rows, c=found: c.among(rows).best_margin(), lambda t, c=found: sign_test(*c.above(t))
        )
        passed += result.all < KEEP_ALL
        best = np.full(changes, found.best_margin())
        tuned += sign_test(*found.above(best)) <= 0.1
    assert passed / 1000 <= 0.1 + 2 * np.sqrt(0.09 / 1000)
    assert tuned / 1000 > 0.15, "a margin tested on the rows that chose it"


def test_changes_that_do_good_are_mostly_made():
    rng, passed = np.random.default_rng(0), 0
    for _ in range(200):
        right = rng.random(20) < 0.85
        found = of_rows(rng.random(20), right, ~right, np.arange(20))
        fold = rng.permutation(20) % 5
        result = cross_fit(
            fold, lambda rows, c=found: c.among(rows).best_margin(), lambda t, c=found: sign_test(*c.above(t))
        )
        passed += result.all < KEEP_ALL
    assert passed > 180


def test_the_bound_that_needs_no_pairs_by_hand():
    """43% of noisy rows disagree with h; 0 wrong of 13 suffice at 95%, of 10 they do not."""
    changed = np.full(43, 0.9)
    for rows, enough in ((13, True), (10, False)):
        found = Bound(changed, 100, np.zeros(rows), np.full(rows, np.nan)).p_value(np.zeros(rows))
        assert found == pytest.approx(comb(100 + rows - 22, rows) / comb(100 + rows, rows))
        assert (found <= 0.05) == enough
    strict = Bound(np.array([0.5] * 20 + [0.9] * 30), 100, np.array([0.5] * 10 + [0.0] * 40), np.full(50, np.nan))
    assert strict.share(0.5) == 0.3
    assert strict.best_threshold(np.ones(50, bool)) == 0.5, "above all wrong predictions"


def test_pairs_that_change_unlike_noisy_rows_bound_nothing():
    """h differs from 70% of the noisy labels. Ten pairs with two or fewer changes are not like them, at 1%."""
    for often, alike in ((0, False), (2, False), (3, True), (7, True), (10, True)):
        pairs = np.where(np.arange(30) < 10, np.where(np.arange(30) < often, 0.9, 0.0), np.nan)
        found = Bound(np.full(70, 0.9), 100, np.zeros(30), pairs).p_value(np.zeros(30))
        assert (found < 0.05) == alike, often
    assert sum(comb(10, k) * 0.7**k * 0.3 ** (10 - k) for k in range(3)) < 0.01


@pytest.mark.parametrize("paired", [True, False])
def test_labels_nearly_all_right_and_predictions_wrong_with_certainty(paired):
    """Labels 98% right, predictions wrong in 5% with certainty, 30 clean rows: changes would lose three points."""
    worse = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        true = rng.integers(3, size=800)
        wrong, noisy = rng.random(800) < 0.05, rng.random(800) < 0.02
        p = 0.999 * np.eye(3)[np.where(wrong, (true + 1) % 3, true)] + 0.001 / 3
        given = np.where(noisy, (true + 1) % 3, true)
        clean = np.full(800, -1)
        clean[:30] = true[:30]
        shown = given if paired else np.where(clean >= 0, -1, given)
        labels = correct_labels(shown, clean, 3, pred_probs=p.astype(np.float32), seed=seed).targets.argmax(axis=1)
        worse += (labels == true)[30:].mean() < (given == true)[30:].mean()
    assert worse <= 1


def test_heavy_noise_is_corrected_without_pairs():
    """60% of the labels are right and predictions nearly always: 30 unpaired rows show it, whatever the noise."""
    rng = np.random.default_rng(1)
    true = rng.integers(4, size=1000)
    given = np.where(rng.random(1000) < 0.4, (true + rng.integers(1, 4, 1000)) % 4, true)
    logits = rng.normal(size=(1000, 4)) * 0.4
    logits[np.arange(1000), true] += 2.5
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    clean = np.full(1000, -1)
    clean[:30] = true[:30]
    found = correct_labels(np.where(clean >= 0, -1, given), clean, 4, pred_probs=p.astype(np.float32))
    assert (found.targets.argmax(axis=1) == true)[30:].mean() > 0.95
    assert found.guard["how"] in ("bounded", "assumed")
    assert (found.guard["sure"] is None) == (found.guard["how"] == "assumed")


def test_clean_rows_that_can_be_told_from_the_others_bound_nothing():
    """1% of the labels are wrong. The 30 clean rows are those given as class 1 that predictions take for class 0."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        true = rng.integers(2, size=1000)
        given = np.where(rng.random(1000) < 0.01, 1 - true, true)
        p = 1 / (1 + np.exp(-2 * rng.normal(size=1000) - 3.0 * true + 1.5))
        rows = np.argsort(np.where(given == 1, p, 1.0))[:30]
        shown, clean = given.copy(), np.full(1000, -1)
        shown[rows], clean[rows] = -1, true[rows]
        found = correct_labels(shown, clean, 2, pred_probs=np.stack([1 - p, p], axis=1).astype(np.float32))
        assert found.notes[0].startswith(DIFFER)
        assert (found.targets.argmax(axis=1) == given)[clean < 0].all(), "else most labels become class 1"


def test_a_class_that_nobody_checked_loses_no_labels_on_balance():
    """A rare class without a clean row, which predictions hardly know, keeps as many labels as it was given."""
    rng = np.random.default_rng(2)
    true = np.where(np.arange(2000) % 50 == 0, 2, rng.integers(2, size=2000))
    given = np.where(rng.random(2000) < 0.2, (true + 1) % 3, true)
    given = np.where((given == 2) & (true != 2), true, given)
    logits = rng.normal(size=(2000, 3))
    logits[np.arange(2000), true] += np.where(true == 2, 1.5, 4.0)
    logits[:, 2] -= 1.0
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    clean = np.full(2000, -1)
    chosen = rng.permutation(np.flatnonzero(true != 2))[:60]
    clean[chosen] = true[chosen]
    labels = correct_labels(given, clean, 3, pred_probs=p.astype(np.float32)).targets.argmax(axis=1)
    rest = clean < 0
    assert ((labels != given) & rest).sum() > 100, "others are corrected"
    assert (labels[rest] == 2).sum() >= (given[rest] == 2).sum()


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
    back, least = guard.given_back(out, posterior, given, np.array([0.5, 0.5]))
    assert least.tolist() == [np.inf, pytest.approx(0.3)]
    assert back.tolist() == [0, 3]
    np.testing.assert_allclose(keep_given(out, back, given)[3], [0.5, 0.5], atol=1e-3)
    assert not len(guard.given_back(out, posterior, given, np.array([0.0, 0.0]))[0]), "none is believed broken"


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
    bounded = guard_line({**found, "sure": 0.987, "labels_simulated": True, "how": "bounded"})
    assert bounded.endswith("98.7%, whatever the noise, if the clean rows are a random sample")
    assert guard_line({**found, "sure": 1.0, "labels_simulated": False}).endswith("they break is more than 99.9%")
    assumed = guard_line({**found, "sure": None, "labels_simulated": True, "how": "assumed"})
    assert assumed.endswith(
        "90.0% are right after correction and 70.0% as given; whether changes fix more than they break depends on the"
        " noise as estimated from the noisy rows, so no probability is given; clean rows that keep their given label"
        " would show it"
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
    monkeypatch.setattr("labelloop.relabel.evidence.MOST_BROKEN", 1.0)  # no class is protected
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


def looked_at(labels: np.ndarray, given: np.ndarray, returned: np.ndarray, classes: int) -> Evidence:
    """Clean rows with a given label each, and what a correction with a lead of 0.8 makes of them."""
    posterior = np.full((len(labels), classes), 0.1 / (classes - 1), np.float32)
    posterior[np.arange(len(labels)), returned] = 0.9
    trial = Trial(posterior, given, 0)
    moved = np.flatnonzero(returned != given)
    right, wrong = (returned == labels)[moved], (given == labels)[moved]
    outcome = of_rows(margins(posterior, given)[moved], right, wrong, moved)
    return Evidence(labels, np.arange(len(labels)) % 5, np.ones(len(labels)), [trial], outcome)


@pytest.mark.parametrize(("broken", "held"), [(0, False), (1, True)])
def test_a_class_with_few_clean_rows_borrows_from_the_others_unless_it_is_rare(broken, held):
    """Three clean rows of the last class cannot show by themselves that fewer than a fifth of its labels are broken."""
    labels = np.repeat([0, 1, 2], [40, 40, 3])
    returned = labels.copy()
    returned[80 : 80 + broken] = 0
    evidence, everyone, counts_of = looked_at(labels, labels, returned, 3), np.ones(83, bool), np.array([40, 40, 3])
    even = evidence.guard(0.0, counts_of, np.array([100.0, 100.0, 100.0]), everyone)[0]
    rare = evidence.guard(0.0, counts_of, np.array([100.0, 100.0, 10.0]), everyone)[0]
    assert not even.protected.any()
    assert (even.own_margin > 0).tolist() == [False, False, held], "the sixth rule"
    assert rare.protected.tolist() == [False, False, True]


@pytest.mark.parametrize(("broken", "own"), [(2, False), (3, True)])
def test_a_class_may_lose_one_label_in_twenty_by_hand(broken, own):
    """Of 40 clean rows of each class, 10 wrong labels of the second are fixed; of the first, good ones are broken."""
    labels = np.repeat([0, 1], 40)
    given, returned = labels.copy(), labels.copy()
    given[40:50] = 0
    returned[:broken] = 1
    guard = looked_at(labels, given, returned, 2).guard(0.0, np.array([40, 40]), np.full(2, 50.0), np.ones(80, bool))[0]
    assert (guard.own_margin > 0).tolist() == [own, False]


@pytest.mark.parametrize(("shift", "labels", "variant"), [(0.0, 100, True), (0.0, 12, False), (0.2, 100, False)])
def test_only_labels_that_learners_cannot_tell_from_others_are_a_spelling_variant(shift, labels, variant):
    """Ranks of the labels among 200 others are spread evenly from `shift` to 1: their mean is (1 + shift) / 2."""
    given = np.repeat([1, 0], [labels, 200])
    place = np.concatenate([np.linspace(shift, 1, labels), np.linspace(0, 1, 200)])
    log_p = np.stack([np.zeros(len(given)), place], axis=1)
    posterior = np.tile(np.array([[0.8, 0.2]], np.float32), (labels, 1))
    mine = np.arange(labels)
    assert _is_variant(1, posterior, mine, given, lambda rows: log_p[rows]) == variant
    assert ((1 + shift) / 2 + Z * np.sqrt(1 / 12 / labels) < MOST_RANK) == variant


def test_a_few_rows_of_a_class_among_many_wrong_labels_are_no_spelling_variant():
    """A fifth of the labels is right and stands out; the others are spread evenly: the mean is near a half."""
    given = np.repeat([1, 0], [100, 200])
    place = np.concatenate([np.full(20, 0.97), np.linspace(0, 0.9, 80), np.linspace(0, 1, 200)])
    log_p = np.stack([np.zeros(300), place], axis=1)
    posterior = np.tile(np.array([[0.8, 0.2]], np.float32), (100, 1))
    assert place[:100].mean() + Z * np.sqrt(1 / 12 / 100) < MOST_RANK
    assert not _is_variant(1, posterior, np.arange(100), given, lambda rows: log_p[rows])
