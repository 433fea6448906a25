"""Noises that are one matrix: their exact matrices, their statistics at N = 45,000, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from labelloop.errors import DataError, UsageError
from labelloop.noise import NOISES, realised_rate
from labelloop.noise.class_conditional import CIFAR100_COARSE
from labelloop.seeds import stream

N = 45_000
RATES = (0.2, 0.4, 0.6)


def balanced(num_classes, rows=N):
    return np.arange(rows) % num_classes


def corrupt(name, labels, num_classes, rate, seed=1, **options):
    return NOISES[name](labels, num_classes, rate, stream(seed, "noise"), **options)


def counts(true, noisy, num_classes):
    table = np.zeros((num_classes, num_classes))  # [C, C]
    np.add.at(table, (true, noisy), 1)
    return table


def uneven_matrix():
    rows = stream(3, "matrix").random((10, 10)) + 4 * np.eye(10)
    return rows / rows.sum(axis=1, keepdims=True)


# name, classes, options, expected wrong rate for a rate on balanced labels
KINDS = [
    ("symmetric", 10, {}, lambda rate: rate * 9 / 10),
    ("symmetric", 100, {}, lambda rate: rate * 99 / 100),
    ("symmetric", 10, {"convention": "others"}, lambda rate: rate),
    ("symmetric", 100, {"convention": "others"}, lambda rate: rate),
    ("asymmetric-cifar10", 10, {}, lambda rate: 0.4 * rate),
    ("asymmetric-cifar10", 10, {"flips": "five"}, lambda rate: 0.5 * rate),
    ("asymmetric-cifar100", 100, {}, lambda rate: rate),
    ("pair", 10, {}, lambda rate: rate),
]
EVERY_KIND = pytest.mark.parametrize(("name", "classes", "options", "expected"), KINDS)


@EVERY_KIND
@pytest.mark.parametrize("rate", RATES)
def test_realised_rate_is_the_expected_one(name, classes, options, expected, rate):
    true = balanced(classes)
    noisy = corrupt(name, true, classes, rate, **options)
    r = expected(rate)
    assert np.mean(1 - np.diag(noisy.matrix)) == pytest.approx(r)
    assert abs(realised_rate(true, noisy.labels) - r) < 4 * np.sqrt(r * (1 - r) / N)
    assert noisy.rate == rate


@EVERY_KIND
@pytest.mark.parametrize("rate", RATES)
def test_labels_follow_the_matrix(name, classes, options, expected, rate):
    true = balanced(classes)
    noisy = corrupt(name, true, classes, rate, **options)
    assert noisy.probabilities is None
    np.testing.assert_allclose(noisy.matrix.sum(axis=1), 1)
    table = counts(true, noisy.labels, classes)
    frequencies = table / table.sum(axis=1, keepdims=True)
    assert np.abs(frequencies - noisy.matrix).max() < (0.03 if classes == 10 else 0.12)  # 4,500 or 450 rows per class
    assert (table[noisy.matrix == 0] == 0).all()
    drawn = noisy.matrix > 0
    expected_table = noisy.matrix * table.sum(axis=1, keepdims=True)
    test = chisquare(table[drawn], expected_table[drawn], ddof=classes - 1)
    assert test.pvalue > 1e-4


def test_matrix_noise_follows_any_matrix():
    true, transition = balanced(10), uneven_matrix()
    noisy = corrupt("matrix", true, 10, 1, matrix=transition)
    np.testing.assert_array_equal(noisy.matrix, transition)
    frequencies = counts(true, noisy.labels, 10) / (N / 10)
    assert np.abs(frequencies - transition).max() < 0.03
    assert noisy.rate == pytest.approx(1 - np.diag(transition).mean())
    assert abs(realised_rate(true, noisy.labels) - noisy.rate) < 4 * np.sqrt(noisy.rate * (1 - noisy.rate) / N)


def test_symmetric_matrices_by_hand():
    every = corrupt("symmetric", [0], 4, 0.4).matrix
    np.testing.assert_allclose(every[0], [0.7, 0.1, 0.1, 0.1])  # the diagonal is 1 - 0.4 + 0.4 / 4
    others = corrupt("symmetric", [0], 4, 0.3, convention="others").matrix
    np.testing.assert_allclose(others[1], [0.1, 0.7, 0.1, 0.1])


def test_cifar10_flips_by_hand():
    rules = {9: 1, 2: 0, 4: 7, 3: 5}
    four = corrupt("asymmetric-cifar10", balanced(10), 10, 1.0)
    assert four.labels[:10].tolist() == [rules.get(label, label) for label in range(10)]
    five = corrupt("asymmetric-cifar10", balanced(10), 10, 1.0, flips="five")
    assert five.labels[:10].tolist() == [0, 1, 0, 5, 7, 3, 6, 7, 8, 1]


@pytest.mark.parametrize(("flips", "ruled"), [("four", [2, 3, 4, 9]), ("five", [2, 3, 4, 5, 9])])
def test_cifar10_classes_without_a_rule_never_flip(flips, ruled):
    true = balanced(10)
    noisy = corrupt("asymmetric-cifar10", true, 10, 0.6, flips=flips).labels
    assert sorted(set(true[noisy != true])) == ruled


def test_pair_by_hand():
    assert corrupt("pair", [0, 1, 2, -1], 3, 1.0).labels.tolist() == [1, 2, 0, -1]
    np.testing.assert_allclose(
        corrupt("pair", [0], 3, 0.25).matrix, [[0.75, 0.25, 0], [0, 0.75, 0.25], [0.25, 0, 0.75]]
    )


def test_cifar100_stays_inside_the_super_class():
    true, coarse = balanced(100), np.array(CIFAR100_COARSE)
    noisy = corrupt("asymmetric-cifar100", true, 100, 0.6)
    assert (noisy.labels != true).sum() > 1000
    assert (coarse[noisy.labels] == coarse[true]).all()
    off_diagonal = noisy.matrix - np.diag(np.diag(noisy.matrix))
    assert ((off_diagonal > 0).sum(axis=1) == 4).all()
    np.testing.assert_allclose(off_diagonal[off_diagonal > 0], 0.6 / 4)


def test_cifar100_table_has_twenty_blocks_of_five():
    assert len(CIFAR100_COARSE) == 100
    assert np.bincount(CIFAR100_COARSE).tolist() == [5] * 20


def test_cifar100_table_is_that_of_the_data(shared_data):
    parquet = pytest.importorskip("pyarrow.parquet")
    file = shared_data / "cifar100-subset" / "train-00000-of-00001.parquet"
    if not file.is_file():
        pytest.skip(f"no CIFAR-100 here: {file}")
    table = parquet.read_table(file, columns=["fine_label", "coarse_label"])
    fine, coarse = table["fine_label"].to_numpy(), table["coarse_label"].to_numpy()
    assert set(fine) == set(range(100))
    np.testing.assert_array_equal(np.array(CIFAR100_COARSE)[fine], coarse)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("convention", ["all", "others"])
def test_symmetric_works_for_any_number_of_classes(classes, convention):
    noisy = corrupt("symmetric", balanced(classes), classes, 1.0, convention=convention)
    np.testing.assert_allclose(noisy.matrix.sum(axis=1), 1)
    assert set(noisy.labels) == set(range(classes))


def test_the_first_rows_get_the_labels_of_the_whole():
    true = balanced(10, 2000)
    rows = slice(300)
    whole = corrupt("symmetric", true, 10, 0.6).labels
    part = corrupt("symmetric", true[rows], 10, 0.6).labels
    assert (whole != true).any()
    np.testing.assert_array_equal(part, whole[rows])


def test_extreme_uniforms_never_draw_a_class_of_probability_zero():
    class Extreme(np.random.Generator):
        def random(self, size):
            return np.where(np.arange(size) % 2 == 0, 0.0, np.nextafter(1.0, 0.0))

    rng = Extreme(np.random.PCG64(0))
    transition = [[0, 0.1, 0.2, 0.7, 0], [0, 0.3, 0.3, 0.4, 0], [0, 0.6, 0.3, 0.1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]
    noisy = NOISES["matrix"](np.repeat([0, 1, 2, 3, 4], 2), 5, 1, rng, matrix=transition).labels
    assert noisy.tolist() == [1, 3, 1, 3, 1, 3, 1, 1, 3, 3]


BAD_MATRICES = [
    (None, "needs a matrix"),
    ([[1, 0], [0, 1]], r"shape \(2, 2\), but there are 3 classes"),
    ([[1, 0, 0], [0, 1, 0], [0.5, 0.4, 0]], "row 2: give probabilities that sum to 1"),
    ([[1, 0, 0], [1.5, -0.5, 0], [0, 0, 1]], "row 1: give probabilities"),
    ([[1, 0, 0], [0, 1, 0], [0, float("nan"), 1]], "row 2: give probabilities"),
    ([[1, 0, 0], [0, 1], [0, 0, 1]], "not a table of numbers"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_MATRICES)
def test_bad_matrices_are_refused(bad, message):
    with pytest.raises(UsageError, match=message):
        corrupt("matrix", [0, 1, 2], 3, 1, matrix=bad)


def test_a_rate_beside_a_matrix_is_refused():
    with pytest.raises(UsageError, match="the matrix sets the rate"):
        corrupt("matrix", [0, 1], 2, 0.4, matrix=np.eye(2))
    assert corrupt("matrix", [0, 1], 2, None, matrix=[[0, 1], [1, 0]]).labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "classes", "options", "message"),
    [
        ("symmetric", 10, {"convention": "other"}, "did you mean 'others'"),
        ("asymmetric-cifar10", 10, {"flips": 5}, "known: four, five"),
        ("asymmetric-cifar10", 100, {}, "made for the 10 classes of CIFAR-10, but there are 100"),
        ("asymmetric-cifar100", 10, {}, "made for the 100 classes of CIFAR-100, but there are 10"),
        ("pair", 1, {}, "at least 2 classes"),
    ],
)
def test_bad_options_are_refused(name, classes, options, message):
    with pytest.raises(UsageError, match=message):
        corrupt(name, [0, 0, 0], classes, 0.4, **options)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 3], "row 2: label 3 is outside 0..2"),
        ([0, -2, 3], r"row 1: label -2 is outside 0..2 \(2 such rows\)"),
        ([0.0, 1.0], "one whole number per row"),
        ([[0, 1]], "one whole number per row"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises(DataError, match=message):
        corrupt("symmetric", labels, 3, 0.4)
