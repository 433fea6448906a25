"""Bounds of shares: against enumeration for small counts, against scipy, and against every joint distribution."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import hypergeom

from labelloop.relabel.bounds import InputsAlone, at_most, finite_interval, interval


def test_the_tail_is_the_hypergeometric_one():
    for total, good, n in product((7, 40, 1000), (0, 1, 5, 7), (1, 3, 7)):
        for k in range(-1, n + 1):
            assert at_most(k, n, good, total) == pytest.approx(hypergeom.cdf(k, total, good, n), abs=1e-10)


@pytest.mark.parametrize(("rows", "others"), [(3, 5), (4, 4), (5, 3)])
@pytest.mark.parametrize("level", [0.95, 0.7])
def test_each_end_holds_in_every_finite_population(rows, others, level):
    """All samples of all populations: an end of the interval fails in at most (1 - level) / 2 of the samples."""
    total = rows + others
    for good in range(total + 1):
        population = np.arange(total) < good
        below = above = count = 0
        for sample in combinations(range(total), rows):
            hits = int(population[list(sample)].sum())
            truth = (good - hits) / others
            low, high = finite_interval(hits, rows, others, level)
            below, above, count = below + (truth < low - 1e-12), above + (truth > high + 1e-12), count + 1
        assert max(below, above) <= (1 - level) / 2 * count + 1e-9


def test_of_many_others_it_is_clopper_and_pearsons():
    for hits, rows in ((9, 10), (50, 200), (0, 30), (30, 30)):
        assert finite_interval(hits, rows, 10**7) == pytest.approx(interval(hits, rows), abs=1e-4)
    narrow, wide = finite_interval(90, 100, 10**7), finite_interval(90, 100, 100)
    assert wide[1] - wide[0] > 1.2 * (narrow[1] - narrow[0]), "as many others as rows: their own luck counts too"


def alone(predicted, confidence, labels, clean=(), clean_confidence=()):
    """Noisy rows with these labels; clean rows are given only where sampling error matters."""
    as_array = [np.asarray(values) for values in (predicted, confidence, clean, clean_confidence, labels, labels)]
    return InputsAlone(*as_array)


def test_the_bounds_hold_for_every_joint_distribution_and_are_reached():
    """Two levels of confidence, labels that agree with h or not, and every way to make h right or wrong in them."""
    cells = list(product((0.9, 0.6), (True, False)))  # confidence, r = h
    counts = dict(zip(cells, (6, 2, 3, 4), strict=True))
    confidence = np.concatenate([np.full(counts[cell], cell[0]) for cell in cells])
    agree = np.concatenate([np.full(counts[cell], cell[1]) for cell in cells])
    h = np.zeros(15, int)
    found = alone(h, confidence, np.where(agree, 0, 1))
    for wrong_high, wrong_low in product(range(9), range(8)):
        accuracies = []
        for a, b in product(range(wrong_high + 1), range(wrong_low + 1)):
            # a of the wrong predictions of high confidence, b of those of low, are in rows where r = h
            if a > 6 or wrong_high - a > 2 or b > 3 or wrong_low - b > 4:
                continue
            least = (6 - a) + (3 - b)  # where h is wrong and r ≠ h, r is right or wrong
            accuracies += [least, least + (wrong_high - a) + (wrong_low - b)]
        wrong = {0.9: wrong_high / 15, 0.6: wrong_low / 15}
        low, high = _exact(found, wrong)
        assert low <= min(accuracies) / 15 + 1e-12
        assert high >= max(accuracies) / 15 - 1e-12


def _exact(found, wrong):
    """The bounds with the errors of h known exactly, in place of clean rows."""

    class Known(InputsAlone):
        def _wrong(self, inside, ignored, level):
            share = sum(value for at, value in wrong.items() if inside(np.array(at)))
            return share, share

    known = Known(*(getattr(found, name) for name in found.__dataclass_fields__))
    return known.accuracy(found.given, np.zeros(0, int))


def test_heavy_noise_by_hand():
    """h agrees with 6 of 10 labels and is never wrong: exactly 6 of 10 labels are right."""
    found = alone(np.zeros(10, int), np.full(10, 0.99), np.array([0] * 6 + [1] * 4))
    assert _exact(found, {0.99: 0.0}) == pytest.approx((0.6, 0.6))
    assert _exact(found, {0.99: 0.1}) == pytest.approx((0.5, 0.7)), "one wrong prediction may help or harm"


@pytest.mark.parametrize("seed", range(3))
def test_the_interval_without_pairs_holds_where_noise_follows_the_row(seed):
    """400 samples of 60 clean rows; labels go wrong where h does, or only where it is right, or anywhere."""
    rng = np.random.default_rng(seed)
    n = 4000
    true, confidence = rng.integers(3, size=n), rng.beta(4, 1, size=n)
    h = np.where(rng.random(n) < confidence, true, (true + 1) % 3)
    spoilt = [h != true, (h == true) & (rng.random(n) < 0.3), rng.random(n) < 0.2][seed]
    labels = np.where(spoilt, (true + 2 if seed else true + 1) % 3, true)
    held = 0
    for _ in range(400):
        rows = rng.permutation(n)
        clean, noisy = rows[:60], rows[60:]
        found = alone(h[noisy], confidence[noisy], labels[noisy], h[clean], confidence[clean])
        low, high = found.accuracy(labels[noisy], true[clean])
        held += low <= (labels == true)[noisy].mean() <= high
    assert held >= 0.95 * 400
