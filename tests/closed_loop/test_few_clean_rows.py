"""Where a handful of clean rows is all there is: the weights of the combination must not be left to one of them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import labelloop
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.first_labels import HeldOut, _with_given
from labelloop.methods.closed_loop.state import LoopState, rows_that_tell_as_much
from labelloop.types import Correction, HeldOutLabels, Rows


def halves(train: np.ndarray, clean: np.ndarray, labels: list[int]) -> HeldOut:
    """What half-networks might have found, with these first corrections."""
    returned = HeldOutLabels(train, clean, clean, train, clean, {})
    return HeldOut(clean, np.array(labels), train, clean, returned)


def test_the_rows_of_the_prior_speak_for_the_first_labels():
    config, said = Config(combination_prior=10.0), np.full((1, 2), 0.5, np.float32)
    state = LoopState(said)
    assert state.prior(config).tolist() == [10]
    state.past.append(Correction(said, said))
    assert state.prior(config).tolist() == [10, 0]


@pytest.mark.parametrize(("prior", "kept"), [(0.0, 1.0), (4.0, 0.6)])
def test_one_clean_row_moves_the_first_labels_by_its_share(prior, kept):
    noisy = np.array([[1, 0], [0, 1], [0, 0]], np.float32)
    theirs = np.array([[0, 1], [0, 1], [0.3, 0.7]], np.float32)  # wrong about the one clean row, label 0, given as 0
    said, given = Correction(theirs, theirs[:1]), Correction(noisy, noisy[:1])
    found = _with_given(said, given, np.array([0]), prior)
    expected = [[kept, 1 - kept], [0, 1], [0.3, 0.7]]  # (1 · 1 + prior / 2) / (1 + prior); no label: theirs
    np.testing.assert_allclose(found.train, expected, atol=1e-6)
    np.testing.assert_allclose(found.clean, expected[:1], atol=1e-6)
    assert noisy[2].tolist() == [0, 0]  # what came in is not changed


def test_five_clean_rows_do_not_ruin_the_classifier():
    inputs, true = load_digits(return_X_y=True)
    rng = np.random.default_rng(1)
    given = np.where(rng.random(len(true)) < 0.3, rng.integers(0, 10, len(true)), true)
    clean = np.where(np.arange(len(true)) < 5, true, -1)
    train, test = slice(0, 700), slice(700, None)
    settings = {"epochs": 12, "warm_up": 4, "correct_every": 2, "final_labels": "loop", "beliefs": "networks"}
    with pytest.warns(UserWarning, match="have no clean row"):
        found = labelloop.fit(
            inputs[train] / 16, given[train], clean[train], class_names=list(range(10)), config=settings, progress=False
        )
    assert (found.model.predict(inputs[test] / 16) == true[test]).mean() > 0.8


@pytest.mark.parametrize(
    ("right", "rows", "classes", "repeats"),
    [
        (98, 98, 10, 1),  # a = .99
        (849, 998, 10, 1),  # a = .85, α = (8.5 - 1) / 9 = .833, 1 / α² = 1.44
        (599, 998, 10, 3),  # a = .6, α = 5 / 9, 1 / α² = 3.24
        (499, 998, 2, 4),  # a = .5 of two classes tells nothing: as often as is allowed
        (0, 0, 3, 4),  # nothing known, a = .5, α = .25, 1 / α² = 16
        (399, 998, 2, 4),  # worse than chance
    ],
)
def test_rows_with_wrong_labels_tell_less(right, rows, classes, repeats):
    assert rows_that_tell_as_much(right, rows, classes) == repeats


def test_a_clean_row_is_shown_as_often_as_its_first_label_was_wrong():
    said = np.array([[0.9, 0.1], [0.1, 0.9]], np.float32)
    state = LoopState(said)
    clean = Rows(said, np.arange(2), np.array([-1, -1]), np.array([0, 1]))
    assert state.repeats(clean, Config(clean_row_repeats=0)) == 1  # without half-networks
    state.held_out = halves(said, said, [0, 1])
    assert state.repeats(clean, Config(clean_row_repeats=0, augment="none")) == 4  # a = 3/4, α = 1/2
    assert state.repeats(clean, Config(clean_row_repeats=0, augment="crop-flip")) == 12  # each is another view
    assert state.repeats(clean, Config(clean_row_repeats=2, augment="crop-flip")) == 2
    assert state.repeats(clean, Config()) == 1
