"""Certificates: tests by enumeration, their error rate after the choice of a threshold, words, weights, looks, size."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from labelloop.errors import UsageError
from labelloop.relabel.certificate import MORE, HeldOut, _Sets, certify_classes, certify_rows, spent


def held_out(rng, rows, clean, error_of, classes=2, **more):
    """Noisy and clean rows with scores, wrong with a probability that depends on the score; and the truth."""
    place = rng.random(rows + clean)
    score = 1 - error_of(place) + 1e-3 * place
    wrong = rng.random(rows + clean) < error_of(place)
    labels = rng.integers(classes, size=rows + clean)
    here = HeldOut(labels[:rows], score[:rows], labels[rows:], score[rows:], wrong[rows:], **more)
    return here, wrong[:rows]


@pytest.mark.parametrize(("clean", "noisy"), [(4, 5), (5, 4), (6, 6)])
@pytest.mark.parametrize("max_error", [0.15, 0.3, 0.5])
def test_the_p_value_is_valid_in_every_population(clean, noisy, max_error):
    """All ways to deal wrong labels to clean and noisy rows: P(p <= level, and too many are wrong) <= level."""
    total = clean + noisy
    allowed, p_values = int(np.floor(max_error * noisy + 1e-9)), []
    for k in range(clean + 1):
        labels, wrong = np.zeros(total, int), np.arange(clean) < k
        rows = HeldOut(labels[:noisy], np.ones(noisy), labels[noisy:], np.ones(clean), wrong)
        p_values.append(_Sets.of(rows, max_error).p_values()[0])
    for wrong in range(total + 1):
        dealt = np.array([sum(row < wrong for row in rows) for rows in combinations(range(total), clean)])
        too_many = wrong - dealt > allowed
        for level in (0.01, 0.05, 0.1, 0.3, 0.6):
            assert ((np.array(p_values)[dealt] <= level) & too_many).mean() <= level + 1e-9


def test_without_pairs_every_wrong_prediction_may_be_in_the_set():
    """Of 10 noisy rows, 4 have labels that the inputs confirm; 1 of 5 predictions of clean rows is wrong."""
    score = np.array([0.9] * 4 + [-np.inf] * 6)
    found = _Sets.of(
        HeldOut(np.zeros(10, int), score, np.zeros(5, int), np.ones(5), np.arange(5) < 1, paired=False), 0.5
    )
    assert found.noisy.tolist() == [4]
    # More than 2 of these 4 wrong: 3 wrong predictions among 10 noisy rows, 4 among 15, and at most 1 of the 5 clean.
    none, one = 11 * 10 * 9 * 8 * 7 / (15 * 14 * 13 * 12 * 11), 5 * 4 * 11 * 10 * 9 * 8 / (15 * 14 * 13 * 12 * 11)
    assert found.p_values()[0] == pytest.approx(none + one)


def certified_errors(draws, choose, seed=0):
    """How often a certificate of at most 20% fails where 21% are wrong."""
    rng, failed = np.random.default_rng(seed), 0
    for _ in range(draws):
        here, wrong = held_out(rng, 2000, 150, lambda place: np.full(len(place), 0.21))
        rows = choose(here)
        failed += rows.any() and wrong[rows].mean() > 0.2
    return failed / draws


def test_the_certificate_holds_after_the_threshold_was_chosen_and_a_tuned_one_does_not():
    """21% are wrong whatever the score, so nearly every certificate of 20% is a failure."""

    def tuned(here):
        sets = _Sets.of(here, 0.2)
        passed = np.flatnonzero(sets.p_values() <= 0.05)
        return here.score >= sets.threshold[passed[-1]] if len(passed) else np.zeros(len(here.score), bool)

    ours = certified_errors(250, lambda here: certify_rows(here, 0.2, forecast=False).rows)
    naive = certified_errors(250, tuned)
    assert ours <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 250)
    assert naive > 0.08, "the best of many tests, each at 5%, fails more often"


def test_there_is_one_where_it_should_be():
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(30):
        here, _ = held_out(rng, 3000, 300, lambda place: np.where(place > 0.4, 0.005, 0.3))
        found = certify_rows(here, 0.03, forecast=False)
        shares.append(found.rows.mean())
        assert found.wrong <= found.clean_rows
    assert np.mean(shares) > 0.35, "60% are nearly always right"


def test_classes_by_themselves():
    rng = np.random.default_rng(2)
    here, _ = held_out(rng, 4000, 800, lambda place: np.full(len(place), 0.005), classes=4)
    here = HeldOut(here.labels, here.score, here.clean_labels, here.clean_score, here.wrong | (here.clean_labels == 3))
    found = certify_classes(here, 4, 0.05, forecast=False)
    assert [one.rows.any() for one in found] == [True, True, True, False]
    for k in range(3):
        assert (here.labels[found[k].rows] == k).all()
    assert "no set of rows is shown" in found[3].reason
    unpaired = HeldOut(**{**vars(here), "paired": False})
    assert [one.rows.any() for one in certify_classes(unpaired, 4, 0.1, forecast=False)] == [True, True, True, False]


def test_only_some_of_the_rows_that_are_drawn_next_are_of_a_class():
    """40 of 140 and 240 clean rows without an error: the second number shows at most 2%, the first does not.

    If 2% of 1,400 rows and one more are wrong, 29, 140 of 1,540 rows miss them with probability 6%.
    """
    one = HeldOut(np.zeros(1500, int), np.ones(1500), np.zeros(40, int), np.ones(40), np.zeros(40, bool))
    both = HeldOut(np.arange(3000) // 1500, np.ones(3000), np.arange(80) // 40, np.ones(80), np.zeros(80, bool))
    assert certify_rows(one, 0.02).forecast[0] == {"more": 200, "rows": 1300}
    for found in certify_classes(both, 2, 0.02):
        assert found.forecast[0] == {"more": 500, "rows": 1250}, "of 200 rows, 100 are of the class"


def test_why_nothing_is_certified_and_what_would_help():
    rng = np.random.default_rng(3)
    here, _ = held_out(rng, 1000, 40, lambda place: np.full(len(place), 0.002))
    found = certify_rows(here, 0.02)
    assert not found.rows.any()
    assert (
        found.reason
        == "at most 2% wrong takes 149 clean rows with a given label or more, even if none is wrong; there are 40"
    )
    assert found.forecast
    assert all(step["more"] in MORE and step["rows"] > 0 for step in found.forecast)
    assert [step["rows"] for step in found.forecast] == sorted(step["rows"] for step in found.forecast)
    assert max(step["more"] for step in found.forecast) < 1000, "there are no more rows to verify"
    assert all(step["more"] + step["rows"] <= 1000 for step in found.forecast), "a clean row is not certified"
    nothing = certify_rows(HeldOut(*(np.zeros(0, int), np.zeros(0)) * 2, np.zeros(0, bool)), 0.02)
    assert nothing.reason == "there are no labels that could be certified"
    for bad in (0.0, 1.0, np.nan):
        with pytest.raises(UsageError, match="between 0 and 1"):
            certify_rows(here, bad)
    for look in (-1, -2, 1.5):
        with pytest.raises(UsageError, match="number the looks 1, 2, 3"):
            certify_rows(here, 0.05, look=look)


def test_looks_share_the_error_probability():
    assert spent(0.95, 0) == pytest.approx(0.05)
    assert sum(spent(0.95, look) for look in range(1, 100_000)) == pytest.approx(0.05, rel=1e-4)
    rng, failed = np.random.default_rng(4), 0
    for _ in range(60):  # 5 looks at growing numbers of clean rows, where 6% are wrong
        here, wrong = held_out(rng, 3000, 400, lambda place: np.full(len(place), 0.06))
        for look in range(1, 6):
            seen = {name: getattr(here, name)[: 80 * look] for name in ("clean_labels", "clean_score", "wrong")}
            rows = certify_rows(HeldOut(**{**vars(here), **seen}), 0.05, look=look, forecast=False).rows
            if rows.any() and wrong[rows].mean() > 0.05:
                failed += 1
                break
    assert failed / 60 <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 60)


def test_weights_undo_how_rows_were_chosen():
    """Doubtful rows were verified four times as often."""
    rng = np.random.default_rng(5)
    plain, weighted, failed = 0, 0, 0
    for _ in range(25):
        score = rng.random(8000)
        wrong = rng.random(8000) < np.where(score < 0.2, 0.3, 0.004)
        chance = np.where(score < 0.2, 0.4, 0.1)
        verified = rng.random(8000) < chance
        zeros = np.zeros(8000, int)
        parts = (zeros[~verified], score[~verified], zeros[verified], score[verified], wrong[verified])
        plain += certify_rows(HeldOut(*parts), 0.08, forecast=False).rows.mean()
        rows = certify_rows(HeldOut(*parts, weight=1 / chance[verified]), 0.08, forecast=False).rows
        weighted += rows.mean()
        failed += rows.any() and wrong[~verified][rows].mean() > 0.08
    assert failed <= 25 * 0.05 + 2 * np.sqrt(25 * 0.05)
    assert weighted / 25 > 0.7
    assert weighted > 0.9 * plain, "bets are nearly as good as exact tests"


def test_the_work_does_not_grow_with_the_rows_but_for_a_sort(monkeypatch):
    """A million rows take as many tests as a thousand: the rest is one sort and sums."""
    import labelloop.relabel.certificate as module

    calls = []
    monkeypatch.setattr(module, "at_most", lambda k, n, *more: calls.extend(n) or np.ones(len(n)))
    rng = np.random.default_rng(6)
    counts = []
    for rows in (20_000, 1_000_000):
        here, _ = held_out(rng, rows, 300, lambda place: np.full(len(place), 0.01))
        calls.clear()
        certify_rows(here, 0.05)
        counts.append(len(calls))
    assert 0 < counts[1] <= 1.1 * counts[0]


def test_weights_stay_with_their_rows_where_some_clean_rows_are_copies():
    kept = np.ones((60, 5), np.float32)
    kept[[3, 7], 4] = 0  # copies
    clean, weight = np.where(np.arange(60) < 30, 1, -1), np.arange(60.0) + 1
    for given in (np.ones(60, int), np.where(clean == 1, -1, 1)):
        found = HeldOut.of(kept, given, clean, clean == 1, 20, weight)
        assert found.weight is not None
        assert found.weight.tolist() == [k + 1 for k in range(30) if k not in (3, 7)]
        assert certify_rows(found, 0.3, 0.8).clean_rows == 28
