"""The estimate of the corrected labels' accuracy: its numbers, its words, and how often its interval is right."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binom
from small_rows import QUICK_LOOP, quick_fit, small_rows

import labelloop
from labelloop.relabel.bounds import InputsAlone, interval
from labelloop.relabel.estimate import (
    ASSUMED,
    BOUNDED,
    NO_PAIRS,
    RANDOM_SAMPLE,
    WITHOUT_LABEL,
    by_class,
    cross_fitted,
    estimate,
    estimate_lines,
    expected_share,
    reliability,
)

pytestmark = pytest.mark.slow

CLASSES = 4


def correction(x, given):
    """A cheap corrector: class means of the inputs and counts of the given label, both from the clean rows alone."""

    def correct(clean):
        rows = np.flatnonzero(clean >= 0)
        hot = np.eye(CLASSES)[clean[rows]]  # [M, C]
        means = (hot.T @ x[rows]) / np.maximum(hot.sum(axis=0), 1)[:, None]
        matrix = hot.T @ np.eye(CLASSES)[given[rows]] + 0.5  # [true, given]
        matrix /= matrix.sum(axis=1, keepdims=True)
        logits = -0.5 * ((x[:, None] - means) ** 2).sum(axis=2) + np.log(matrix[:, given].T)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    return correct


@pytest.mark.parametrize(
    ("spread", "noise", "low", "high"),
    [(0.5, 0.5, 0.6, 0.7), (1.0, 0.3, 0.78, 0.85), (1.6, 0.2, 0.9, 0.95), (2.2, 0.1, 0.96, 0.99)],
)
def test_the_interval_holds_the_true_accuracy_in_95_of_100_draws(spread, noise, low, high):
    """200 draws of 200 clean rows; the truth is the accuracy of what all 200 teach, on the rows that nobody saw."""
    rng = np.random.default_rng(0)
    true = rng.integers(CLASSES, size=2000)
    x = (np.random.default_rng(1).normal(size=(CLASSES, 5)) * spread)[true] + rng.normal(size=(2000, 5))
    given = np.where(rng.random(2000) < noise, rng.integers(CLASSES, size=2000), true)
    correct = correction(x, given)
    held, truths = 0, []
    for draw in range(200):
        rng = np.random.default_rng(draw + 1)
        rows = rng.permutation(2000)[:200]
        clean = np.full(2000, -1)
        clean[rows] = true[rows]
        said = cross_fitted(correct, clean, given, rng)
        assert np.isnan(said).all(axis=1).sum() == 1800, "only clean rows judge"
        found = estimate(said[rows], given[rows], clean[rows])["corrected_label_accuracy"]
        truths.append((correct(clean).argmax(axis=1) == true)[clean < 0].mean())
        held += found["low"] <= truths[-1] <= found["high"]
    assert low < np.mean(truths) < high
    assert 0.92 <= held / 200 <= 0.98


def test_no_row_judges_what_it_taught():
    clean = np.array([0, 1, 0, 1, -1, 0, 1, -1, 1, 0])
    shown = []

    def correct(clean_rows):
        shown.append(clean_rows.copy())
        return np.full((10, 2), 0.5)

    said = cross_fitted(correct, clean, np.zeros(10, int), np.random.default_rng(0))
    assert len(shown) == 5
    hidden = np.array([(clean_rows < 0) & (clean >= 0) for clean_rows in shown])
    assert (hidden.sum(axis=0) == (clean >= 0)).all(), "every clean row is hidden once, and nothing else changes"
    assert np.isnan(said[clean < 0]).all()
    assert not np.isnan(said[clean >= 0]).any()


def test_the_interval_is_clopper_and_pearsons():
    for hits, rows in ((9, 10), (50, 200), (1, 7)):
        low, high = interval(hits, rows)  # so far apart that what was seen, or more, has a chance of 2.5% at either end
        assert binom.sf(hits - 1, rows, low) == pytest.approx(0.025)
        assert binom.cdf(hits, rows, high) == pytest.approx(0.025)
    assert interval(0, 7)[0] == 0.0
    assert interval(7, 7)[1] == 1.0


def test_the_shares_worked_by_hand():
    given = np.array([0, 0, 1, 1, 1] * 4 + [-1] * 5)
    clean = np.array([0, 1, 1, 0, 1] * 4 + [0] * 5)
    corrected = np.array([0, 1, 0, 1, 1] * 4 + [1] * 5)
    found = estimate(np.eye(2)[corrected], given, clean)
    assert found["corrected_label_accuracy"]["rows"] == 20, "with 20 pairs, only pairs count"
    assert found["corrected_label_accuracy"]["value"] == pytest.approx(12 / 20)
    assert (found["good_labels_broken"]["value"], found["good_labels_broken"]["rows"]) == (pytest.approx(4 / 12), 12)
    assert (found["wrong_labels_fixed"]["value"], found["wrong_labels_fixed"]["rows"]) == (pytest.approx(4 / 8), 8)
    assert found["notes"] == [RANDOM_SAMPLE]
    before = found["given_label_accuracy"]
    assert (before["value"], before["rows"], before["how"]) == (pytest.approx(12 / 20), 20, "measured")
    first = found["by_class"][0]
    assert (first["good"], first["broken"], first["wrong"], first["fixed"], first["clean_rows"]) == (4, 0, 4, 0, 13)
    assert (first["recall"]["value"], first["given_recall"]["value"]) == (0.5, 0.5)
    assert (first["precision"]["value"], first["given_precision"]["value"]) == (0.5, 0.5)
    assert (first["precision"]["rows"], first["given_precision"]["rows"]) == (8, 8)
    few = estimate(np.eye(2)[corrected[10:]], given[10:], clean[10:])
    assert few["corrected_label_accuracy"]["rows"] == 15
    assert few["notes"] == [WITHOUT_LABEL.format(unpaired=5, rows=15), RANDOM_SAMPLE]


def test_without_pairs_it_says_what_cannot_be_known():
    found = estimate(np.eye(3)[[0, 1, 2, 2]], np.full(4, -1), np.array([0, 1, 2, 1]))
    assert found["good_labels_broken"] is None
    assert found["wrong_labels_fixed"] is None
    assert found["corrected_label_accuracy"]["value"] == 0.75
    assert found["notes"][:2] == [WITHOUT_LABEL.format(unpaired=4, rows=4), NO_PAIRS]
    text = "\n".join(estimate_lines(found))
    assert "75.0% (95% interval" in text
    assert "how many good labels were broken is unknown" in text
    assert "random sample" in text


def test_simulated_labels_by_hand():
    said, clean = np.eye(2)[[0, 1, 1, 0]], np.array([0, 1, 0, 0])
    expected = np.array([[1.0, 0.5], [1.0, 1.0], [0.0, 0.5], [np.nan, np.nan]])
    found = estimate(said, np.array([-1, -1, -1, 1]), clean, expected=expected)
    accuracy = found["corrected_label_accuracy"]
    assert accuracy["value"] == pytest.approx((3 + 3) / 8), "the paired row is right; 3 of 4 under either estimate"
    assert (accuracy["low"], accuracy["high"]) == interval(3, 4)
    assert accuracy["how"] == "assumed"
    wider = expected_share(np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert (wider["low"], wider["high"]) == (interval(1, 2)[0], 1.0)


def test_the_bins_of_the_reliability():
    said = np.array([[0.95, 0.05], [0.91, 0.09], [0.3, 0.7], [1.0, 0.0]])
    bins = reliability(said, np.array([0, 1, 1, 0]))
    assert [(b["from"], b["rows"], b["value"]) for b in bins] == [(0.7, 1, 1.0), (0.9, 3, pytest.approx(2 / 3))]
    assert bins[1]["confidence"] == pytest.approx((0.95 + 0.91 + 1) / 3)


def test_fit_stores_it(tmp_path):
    rows = small_rows()
    result = quick_fit(rows, method="closed-loop", output_dir=tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["estimate"]
    assert stored == result.estimate
    assert stored["corrected_label_accuracy"]["rows"] == 18
    assert stored["good_labels_broken"]["rows"] + stored["wrong_labels_fixed"]["rows"] == 9
    assert any("first correction" in note for note in stored["notes"])
    assert any("not calibrated" in note for note in stored["notes"]), "9 pairs do not show what a given label adds"
    assert quick_fit(rows, method="closed-loop").estimate == result.estimate


def test_a_resumed_run_has_the_same_estimate(tmp_path):
    rows, folder = small_rows(), tmp_path / "run"
    whole = quick_fit(rows, method="closed-loop")
    calls = 0

    class Stop(Exception):
        pass

    def stop(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Stop
        return train_epoch(*args, **kwargs)

    from labelloop.methods.closed_loop import loop

    train_epoch = loop.train_epoch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_epoch", stop)
        with pytest.raises(Stop):
            quick_fit(rows, method="closed-loop", output_dir=folder)
    again = quick_fit(rows, method="closed-loop", output_dir=folder, resume=True)
    assert again.estimate == whole.estimate


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("noisy-and-clean", "cannot tell how good it is"),
        ("cross-entropy", "cannot tell how good the labels are"),
    ],
)
def test_where_there_is_none_it_says_why(method, says):
    loop = {"warm_up", "correct_every", "corrector"}
    quick = {key: value for key, value in QUICK_LOOP.items() if key not in loop}
    found = quick_fit(small_rows(), method=method, config=quick).estimate
    assert found["corrected_label_accuracy"] is None
    assert says in " ".join(found["notes"])
    assert (method == "cross-entropy") == ("classifier_accuracy" in found)


def test_correct_has_one_too():
    rows = small_rows(300)
    y_clean = np.where(np.arange(300) < 100, rows.true, -1)
    given = np.where(np.arange(300) % 4 == 0, (rows.true + 1) % 3, rows.true)
    found = labelloop.correct(given, y_clean, embeddings=rows.X).estimate
    assert found["corrected_label_accuracy"]["rows"] == 100
    assert found["wrong_labels_fixed"]["rows"] == 25
    assert found["corrected_label_accuracy"]["low"] > 0.5
    assert sum(part["rows"] for part in found["reliability"]) == 100


def test_rows_whose_label_is_not_simulated_count_as_they_are():
    """Where enough pairs exist beside the judges, nothing is simulated: what is expected is not a number."""
    clean, said = np.array([0, 1, 0, 1]), np.eye(2, dtype=np.float32)[[0, 1, 0, 0]]
    found = estimate(said, np.full(4, -1), clean, expected=np.full((4, 2), np.nan, np.float32))
    assert found["corrected_label_accuracy"]["value"] == 0.75
    simulated = estimate(said, np.full(4, -1), clean, expected=np.full((4, 2), 0.5, np.float32))
    assert simulated["corrected_label_accuracy"]["value"] == 0.5


def test_without_pairs_the_accuracy_is_bounded_and_the_noise_model_is_an_assumption():
    clean, said = np.array([0, 1, 0, 1] * 10), np.eye(2, dtype=np.float32)[[0, 1, 0, 1] * 10]
    h = np.array([0, 1] * 500)
    given = np.where(np.arange(1000) % 5 == 0, 1 - h, h)
    alone = InputsAlone(h, np.full(1000, 0.99), clean, np.full(40, 0.99), given, h)
    expected = np.full((40, 1), 0.9, np.float32)
    found = estimate(said, np.full(40, -1), clean, expected=expected, alone=alone)
    before, after = found["given_label_accuracy"], found["corrected_label_accuracy"]
    none_wrong = alone.accuracy(h, clean)[0]
    assert none_wrong == pytest.approx(interval(40, 40)[0], abs=0.01), "0 wrong of 40, at 97.5%"
    assert (before["how"], after["how"]) == ("bounded", "bounded")
    assert (after["low"], after["high"]) == (none_wrong, 1.0)
    assert (before["low"], before["high"]) == pytest.approx((none_wrong - 0.2, 0.8 + 1 - none_wrong))
    assert after["value"] == pytest.approx(max(0.9, none_wrong)), "what the noise model says, within the bounds"
    assert after["if_noise_model_holds"]["how"] == "assumed"
    words = ASSUMED.format(
        **{key: f"{100 * after['if_noise_model_holds'][key]:.1f}%" for key in ("value", "low", "high")}
    )
    assert found["notes"][:3] == [BOUNDED.format(unpaired=40, rows=40), NO_PAIRS, words]
    assert any("95% bounds without pairs" in line for line in estimate_lines(found))


def test_a_few_pairs_narrow_the_bounds():
    clean = np.array([0, 1] * 30)
    given = np.where(np.arange(60) < 15, clean, -1)
    h, said = np.array([0, 1] * 500), np.eye(2, dtype=np.float32)[clean]
    alone = InputsAlone(h, np.full(1000, 0.6), 1 - clean, np.full(60, 0.6), h, h)
    without = estimate(said, np.full(60, -1), clean, alone=alone)["given_label_accuracy"]
    few = estimate(said, given, clean, alone=alone)["given_label_accuracy"]
    assert (without["low"], without["high"]) == (0.0, pytest.approx(0.06, abs=0.01)), "h is always wrong, and agrees"
    assert few["how"] == "bounded"
    assert few == without | {"low": few["low"], "high": few["high"], "value": few["value"]}, (
        "they contradict each other"
    )
    helped = InputsAlone(h, np.full(1000, 0.6), clean, np.full(60, 0.6), np.where(np.arange(1000) < 300, 1 - h, h), h)
    assert (
        estimate(said, given, clean, alone=helped)["given_label_accuracy"]["low"]
        > estimate(said, np.full(60, -1), clean, alone=helped)["given_label_accuracy"]["low"]
    )


def test_classes_at_risk_stand_first():
    clean, said = np.array([0] * 30 + [1] * 2), np.eye(3, dtype=np.float32)[[0] * 32]
    given = np.array([0] * 28 + [1] * 4)
    returned, labels = np.zeros(90, int), np.array([0] * 50 + [1] * 30 + [2] * 10)
    alone = InputsAlone(returned, np.full(90, 0.9), clean, np.full(32, 0.9), labels, returned)
    found = estimate(said, given, clean, alone=alone)["at_risk"]
    assert [(one["class"], one["verify"]) for one in found] == [(1, 5), (2, 5)]
    assert found[0]["why"] == (
        "on its clean rows changes broke 2 good labels and fixed 0 wrong ones; on balance it loses 30 of 30 labels"
    )
    assert found[1]["why"].startswith("no clean row is of this class")


def test_intervals_of_classes_are_of_the_noisy_rows_and_hold_there():
    """Half of 400 rows are clean: what is not known about the other half is wider than what 200 rows show of a law."""
    held = {"finite": 0, "law": 0}
    draws = 300
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        true = rng.integers(2, size=400)
        returned = np.where(rng.random(400) < 0.2, 1 - true, true)
        clean = np.arange(400) < 200
        soft = np.eye(2, dtype=np.float32)[returned]
        noisy = InputsAlone(*[np.zeros(200, int)] * 4, returned[~clean], returned[~clean])
        truth = (returned == 0)[~clean & (true == 0)].mean()
        for name, alone in (("finite", noisy), ("law", None)):
            found = by_class(soft[clean], returned[clean], true[clean], alone)[0]["recall"]
            held[name] += found["low"] <= truth <= found["high"]
    assert held["finite"] / draws > 0.93
    assert held["law"] / draws < 0.9
