"""Clean rows as a sample: copies count once, a difference from the noisy rows is named, and a random sample is not."""

from __future__ import annotations

import numpy as np
import pytest

import labelloop
from labelloop.relabel.calibration import Observations
from labelloop.relabel.sample import copies, differ, first_alike, largest_if_absent, largest_share, paired_once


def observed(values, clean, given=None, seed=0):
    given = np.where(clean >= 0, -1, 0) if given is None else given
    return Observations(
        scores=np.zeros((len(values), 2), np.float32), given=given, clean=clean, sample=np.flatnonzero(clean < 0),
        num_classes=2, inputs=values, table=True, seed=seed,
    )  # fmt: skip


def test_copies_by_hand():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 3))
    clean = np.where(np.arange(200) < 8, np.arange(200) % 2, -1)
    values[4], values[6], values[7] = values[2], values[2], values[3]
    here, rows = observed(values, clean), np.arange(8)
    assert first_alike(here, rows).tolist() == [0, 1, 2, 3, 2, 5, 2, 3]
    assert copies(here, rows).tolist() == [False] * 4 + [True, False, True, True]
    values[4] += 1e-9
    assert copies(observed(values, clean), rows)[4], "nearly the same"
    clean[4] = 1
    assert not copies(observed(values, clean), rows)[4], "another label"


def test_rows_of_a_small_table_are_no_copies():
    values = np.random.default_rng(1).integers(2, size=(400, 2)).astype(float)
    clean = np.where(np.arange(400) < 40, 0, -1)
    assert not copies(observed(values, clean), np.arange(40)).any(), "noisy rows are as much alike"


def test_a_random_sample_is_hardly_ever_said_to_differ():
    said = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(900, 8))
        clean = np.full(900, -1)
        clean[rng.permutation(900)[:100]] = 0
        said += differ(observed(values, clean, seed=seed), np.flatnonzero(clean >= 0)) is not None
    assert said == 0


def test_a_chosen_sample_is_said_to_differ():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(900, 8))
    clean = np.full(900, -1)
    clean[np.argsort(-values[:, 0])[:100]] = 0
    found = differ(observed(values, clean), np.flatnonzero(clean >= 0))
    assert found is not None
    assert "clean rows differ from the others" in found
    assert differ(observed(values, clean), np.flatnonzero(clean >= 0)[:10]) is None, "too few to tell"


def test_a_copy_is_no_pair():
    values = np.random.default_rng(0).normal(size=(20, 2))
    clean = np.where(np.arange(20) < 4, 0, -1)
    values[3] = values[1]
    here = observed(values, clean, given=np.arange(20) % 2)
    assert paired_once(here).tolist() == [0, 1, 0, -1, *[0, 1] * 8]
    assert here.given[3] == 1, "what is observed stays as it is"


@pytest.mark.slow
@pytest.mark.real_relabelling
def test_pairs_that_are_copied_correct_labels_and_break_none():
    """Three rings, 30% wrong: trees that learn the copies of a pair repeat its wrong label, but not those of others."""
    for seed in (1, 3):
        rng = np.random.default_rng(seed)
        true = rng.integers(3, size=900)
        angle = 6.28 * rng.random(900)
        x = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 + true[:, None]) + 0.25 * rng.normal(size=(900, 2))
        given = np.where(rng.random(900) < 0.3, (true + rng.integers(1, 3, 900)) % 3, true)
        rows = np.concatenate([np.repeat(np.arange(30), 4), np.arange(30, 900)])
        clean = np.where(np.arange(900) < 30, true, -1)[rows]
        found = labelloop.correct(given[rows], clean, embeddings=x[rows])
        noisy = clean < 0
        right, before = (
            np.mean(labels[noisy] == true[rows][noisy]) for labels in (found.corrected_labels, given[rows])
        )
        assert right > before + 0.15, "else none is changed, or most changes are wrong"


@pytest.mark.slow
def test_copies_count_once_in_a_run():
    """12 unpaired clean rows, five times each, are no more than 12."""
    rng = np.random.default_rng(3)
    true = rng.integers(2, size=400)
    x = rng.normal(size=(400, 4)) + 1.5 * true[:, None]
    given = np.where(rng.random(400) < 0.2, 1 - true, true)
    y_clean = np.where(np.arange(400) < 12, true, -1)
    rows = np.concatenate([np.repeat(np.arange(12), 5), np.arange(12, 400)])
    with pytest.warns(UserWarning, match="clean rows have a given label"):
        found = labelloop.correct(np.where(y_clean >= 0, -1, given)[rows], y_clean[rows], embeddings=x[rows])
    assert found.estimate["corrected_label_accuracy"]["rows"] == 12
    assert any("48 clean rows are copies" in note for note in found.estimate["notes"])


def test_the_largest_share_of_a_class_that_no_clean_row_has():
    """(1 - share)^22 = 0.05: with this share, 22 random rows miss the class in one case of twenty."""
    assert (1 - largest_share(0, 22)) ** 22 == pytest.approx(0.05)
    share = largest_share(1, 22)
    assert (1 - share) ** 22 + 22 * share * (1 - share) ** 21 == pytest.approx(0.1), "of a class that was checked: 90%"
    assert largest_share(0, 22) > largest_share(0, 44)
    assert largest_share(5, 5) == 1.0
    assert largest_share(0, 0) == 1.0


def test_pairs_show_how_rare_a_class_is_only_if_they_were_not_chosen_by_their_label():
    """A quarter of the noisy rows has label 1; so must about a quarter of the pairs, P(X <= n) >= 0.1."""
    clean = np.where(np.arange(440) < 40, 0, -1)
    given = (np.arange(440) % 4 == 0).astype(np.int64)

    def shares(pairs_with_label, rows=40, given=given):
        labels = np.where(clean >= 0, np.arange(440) < pairs_with_label, given)
        return largest_if_absent(observed(np.zeros((440, 1)), clean, labels), np.arange(rows))

    np.testing.assert_allclose(shares(10), largest_share(0, 40))
    np.testing.assert_allclose(shares(7)[1], largest_share(0, 40))  # P(X <= 7) = 0.18
    assert shares(5)[1] == 1.0, "P(X <= 5) = 0.04"
    np.testing.assert_allclose(shares(10, rows=30), largest_share(0, 30), err_msg="a fold is left out")
    unpaired = np.where(clean >= 0, -1, given)
    assert (largest_if_absent(observed(np.zeros((440, 1)), clean, unpaired), np.arange(40)) == 1).all()
