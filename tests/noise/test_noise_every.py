"""What holds for every noise by its name: nothing at rate 0, the same twice, and no other random state touched."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

from labelloop.errors import DataError, UsageError
from labelloop.noise import NOISES, Noisy, realised_rate
from labelloop.seeds import stream

ROWS = 400


@pytest.fixture(scope="module")
def human_labels(tmp_path_factory):
    true = np.arange(ROWS) % 10
    file = tmp_path_factory.mktemp("recorded") / "human.npy"
    np.save(file, {"clean_label": true, "human_label": np.roll(true, 3)}, allow_pickle=True)
    return file


@pytest.fixture(params=NOISES)
def call(request, human_labels):
    """Calls the noise: (rate, seed, labels) -> Noisy, with what this noise needs beside."""
    name = request.param
    classes = 100 if name == "asymmetric-cifar100" else 10
    options = {"matrix": {"matrix": np.full((10, 10), 0.1)}, "recorded": {"path": human_labels}}.get(name, {})
    images = stream(0, "images").integers(0, 256, (ROWS, 4, 4, 3), dtype=np.uint8)

    def run(rate=None, seed=1, labels=None):
        labels = np.arange(ROWS) % 10 if labels is None else labels
        rate = (1 if name in ("matrix", "recorded") else 0.6) if rate is None else rate
        return NOISES[name](labels, classes, rate, stream(seed, "noise"), images=images, **options)

    return run


def test_every_noise_is_named():
    names = "symmetric asymmetric-cifar10 asymmetric-cifar100 pair matrix instance recorded"
    assert set(names.split()) <= set(NOISES)


def test_a_noise_returns_labels_and_law(call):
    true = np.arange(ROWS) % 10
    noisy = call(labels=true)
    assert isinstance(noisy, Noisy)
    assert noisy.labels.shape == (ROWS,)
    assert noisy.labels.dtype == np.int64
    assert realised_rate(true, noisy.labels) > 0.1
    assert 0 < noisy.rate <= 1
    np.testing.assert_array_equal(true, np.arange(ROWS) % 10)  # the argument is left as it was


def test_rate_zero_changes_nothing(call):
    true = np.arange(ROWS) % 10
    true[7] = -1
    noisy = call(rate=0, labels=true)
    np.testing.assert_array_equal(noisy.labels, true)
    assert noisy.rate == 0
    assert noisy.labels is not true


def test_missing_labels_stay_missing(call):
    true = np.arange(ROWS) % 10
    missing = stream(0, "missing").random(ROWS) < 0.3
    with_gaps = np.where(missing, -1, true)
    noisy = call(labels=with_gaps).labels
    assert (noisy[missing] == -1).all()
    np.testing.assert_array_equal(noisy[~missing], call(labels=true).labels[~missing])  # gaps move no other label


def test_the_same_seed_gives_the_same_labels(call, request):
    first, again = call(seed=5), call(seed=5)
    np.testing.assert_array_equal(first.labels, again.labels)
    if first.probabilities is not None:
        np.testing.assert_array_equal(first.probabilities, again.probabilities)
    same = np.array_equal(first.labels, call(seed=6).labels)
    assert same == (request.node.callspec.params["call"] == "recorded")  # a record is not drawn


def test_the_global_random_states_are_untouched(call):
    before, python_before = np.random.get_state(), random.getstate()  # noqa: NPY002
    call()
    after = np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    np.testing.assert_array_equal(before[1], after[1])
    assert before[2:] == after[2:]
    assert random.getstate() == python_before


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "0.4", True])
def test_rates_outside_zero_to_one_are_refused(call, rate):
    with pytest.raises(UsageError, match=r"noise rate is .*: give a number from 0 to 1"):
        call(rate=rate)


def test_labels_outside_the_classes_are_refused(call):
    labels = np.zeros(ROWS, dtype=int)
    labels[33] = 100
    with pytest.raises(DataError, match="row 33: label 100 is outside"):
        call(labels=labels)


@pytest.mark.parametrize("name", ["symmetric", "instance"])
@pytest.mark.parametrize("rng", [0, None, np.random])
def test_only_a_generator_is_taken_as_rng(name, rng):
    with pytest.raises(UsageError, match="give a generator"):
        NOISES[name]([0, 1], 2, 0.4, rng, images=np.ones((2, 3)))


def test_no_rows_give_no_rows():
    assert NOISES["symmetric"](np.array([], dtype=int), 3, 0.4, stream(0, "noise")).labels.shape == (0,)
    empty = NOISES["instance"](np.array([], dtype=int), 3, 0.4, stream(0, "noise"), images=np.zeros((0, 5)))
    assert empty.probabilities.shape == (0, 3)


def test_realised_rate_by_hand():
    assert realised_rate([0, 1, 2, 3, -1, 4], [0, 2, 2, 1, 3, -1]) == 0.5  # two of the four rows that have both
    assert np.isnan(realised_rate([-1, 0], [0, -1]))
    with pytest.raises(DataError, match="one of each per row"):
        realised_rate([0, 1], [0])


def test_importing_the_noises_does_not_import_torch():
    code = "import sys, labelloop.noise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
