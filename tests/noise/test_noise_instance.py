"""Instance-dependent noise: the law of every row against its formula, its own rates, and what depends on what."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest, truncnorm

from labelloop.errors import DataError, UsageError
from labelloop.noise import realised_rate
from labelloop.noise.instance_dependent import instance
from labelloop.seeds import stream

N = 45_000
MEAN_OWN_RATE = {0.2: 0.205525, 0.4: 0.400013, 0.6: 0.599987}


def problem(rows=N, side=4, classes=10):
    labels = np.arange(rows) % classes
    images = stream(0, "images").integers(0, 256, (rows, side, side, 3), dtype=np.uint8)
    return labels, images


def corrupt(labels, images, rate=0.4, classes=10, seed=1, **options):
    return instance(labels, classes, rate, stream(seed, "noise"), images=images, **options)


def own_rates(noisy, labels):
    return 1 - noisy.probabilities[np.arange(len(labels)), labels]


@pytest.fixture(scope="module", params=MEAN_OWN_RATE)
def corrupted(request):
    labels, images = problem()
    return request.param, labels, corrupt(labels, images, request.param)


def test_every_law_sums_to_one(corrupted):
    _, _, noisy = corrupted
    assert noisy.matrix is None
    assert noisy.probabilities.shape == (N, 10)
    assert (noisy.probabilities >= 0).all()
    np.testing.assert_allclose(noisy.probabilities.sum(axis=1), 1, atol=1e-12)


def test_own_rates_have_the_mean_of_the_truncated_normal(corrupted):
    rate, labels, noisy = corrupted
    q = own_rates(noisy, labels)
    assert truncnorm(-rate / 0.1, (1 - rate) / 0.1, rate, 0.1).mean() == pytest.approx(MEAN_OWN_RATE[rate], abs=1e-6)
    assert abs(q.mean() - MEAN_OWN_RATE[rate]) < 4 * 0.1 / np.sqrt(N)


def test_own_rates_are_truncated_normal(corrupted):
    rate, labels, noisy = corrupted
    q = own_rates(noisy, labels)
    law = truncnorm(-rate / 0.1, (1 - rate) / 0.1, rate, 0.1)
    assert kstest(q, law.cdf).pvalue > 1e-3
    assert kstest(q + 0.005, law.cdf).pvalue < 1e-6  # the test would notice a shift of half a point


def test_realised_rate_is_the_expected_one(corrupted):
    rate, labels, noisy = corrupted
    r = MEAN_OWN_RATE[rate]
    assert abs(realised_rate(labels, noisy.labels) - r) < 4 * np.sqrt(r * (1 - r) / N)
    assert noisy.rate == rate


def test_labels_follow_the_laws(corrupted):
    _, labels, noisy = corrupted
    for true in range(10):
        rows = labels == true
        drawn = np.bincount(noisy.labels[rows], minlength=10) / rows.sum()
        assert np.abs(drawn - noisy.probabilities[rows].mean(axis=0)).max() < 0.03


def test_laws_equal_the_formula_sample_by_sample():
    labels, features = np.array([2, 0, 1, 2]), stream(0, "features").normal(size=(4, 3))
    noisy = corrupt(labels, features, classes=3)
    rate_rng, projection_rng, _ = stream(1, "noise").spawn(3)
    q = truncnorm.ppf(rate_rng.random(4), -0.4 / 0.1, 0.6 / 0.1, loc=0.4, scale=0.1)
    projections = [rng.standard_normal((3, 3)) for rng in projection_rng.spawn(3)]
    for n, true in enumerate(labels):
        others = [noisy_label for noisy_label in range(3) if noisy_label != true]
        exponentials = np.exp((features[n] @ projections[true])[others])
        law = np.zeros(3)
        law[true] = 1 - q[n]
        law[others] = q[n] * exponentials / exponentials.sum()
        np.testing.assert_allclose(noisy.probabilities[n], law, atol=1e-9)


def test_laws_are_log_linear_in_the_input():
    """log(P_a / P_b) must be x (W_a - W_b) for one W, whatever stream it came from."""
    features = stream(0, "features").normal(size=(200, 3)) * 0.5
    labels = np.full(200, 2)
    noisy = corrupt(labels, features, classes=4)
    ratios = np.log(noisy.probabilities[:, [0, 1]] / noisy.probabilities[:, [3]])  # [N, 2] = x (W_a - W_3)
    weights, _, rank, _ = np.linalg.lstsq(features, ratios, rcond=None)
    assert rank == 3
    np.testing.assert_allclose(features @ weights, ratios, atol=1e-9)
    assert np.abs(weights).max() > 0.1


def test_two_classes_leave_no_choice():
    labels, images = problem(50, classes=2)
    noisy = corrupt(labels, images, classes=2)
    q = own_rates(noisy, labels)
    np.testing.assert_allclose(noisy.probabilities[np.arange(50), 1 - labels], q, atol=1e-12)


def test_each_class_has_its_own_projection():
    image = np.full((1, 4, 4, 3), 200, dtype=np.uint8)
    targets = {
        int(corrupt([true], image).probabilities[0, 3:].argmax()) for true in (0, 1, 2)
    }  # the same image as three classes
    assert len(targets) > 1


def test_the_first_rows_get_the_laws_and_labels_of_the_whole():
    labels, images = problem(3000, side=8)
    rows = slice(100)
    whole = corrupt(labels, images)
    part = corrupt(labels[rows], images[rows])
    np.testing.assert_allclose(part.probabilities, whole.probabilities[rows], atol=1e-9)
    np.testing.assert_array_equal(part.labels, whole.labels[rows])


def test_chunks_do_not_matter(monkeypatch):
    labels, images = problem(300)
    whole = corrupt(labels, images)
    monkeypatch.setattr("labelloop.noise.instance_dependent._CHUNK", 7 * 48)
    np.testing.assert_allclose(corrupt(labels, images).probabilities, whole.probabilities, atol=1e-9)


def test_rate_zero_is_short_circuited():
    labels, images = problem(1000)
    noisy = corrupt(labels, images, rate=0)
    np.testing.assert_array_equal(noisy.labels, labels)
    np.testing.assert_array_equal(noisy.probabilities, np.eye(10)[labels])


def test_rate_one_stays_a_law():
    labels, images = problem(1000)
    noisy = corrupt(labels, images, rate=1)
    assert own_rates(noisy, labels).mean() == pytest.approx(1 - 0.0798, abs=0.01)  # half of the normal is cut off
    np.testing.assert_allclose(noisy.probabilities.sum(axis=1), 1, atol=1e-12)


def test_a_missing_label_has_no_law():
    _, images = problem(3)
    noisy = corrupt([4, -1, 2], images)
    assert noisy.labels[1] == -1
    np.testing.assert_array_equal(noisy.probabilities[1], 0)


def test_features_serve_where_there_are_no_pixels():
    labels = np.arange(2000) % 5
    features = stream(0, "features").normal(size=(2000, 16)).astype(np.float32)
    noisy = corrupt(labels, features, classes=5)
    assert abs(realised_rate(labels, noisy.labels) - 0.4) < 4 * np.sqrt(0.24 / 2000)


def most_common_share(labels, noisy, classes=10):
    """How much of a class's flips goes to its most common target, averaged over classes."""
    shares = []
    for true in range(classes):
        flips = np.bincount(noisy.labels[(labels == true) & (noisy.labels != true)], minlength=classes)
        shares.append(flips.max() / flips.sum())
    return np.mean(shares)


def test_raw_pixels_flip_to_few_targets_and_standardised_ones_to_many():
    labels, images = problem(6000, side=8)
    shared = images // 8 + 100  # like photographs: what the images share outweighs what tells them apart
    raw = most_common_share(labels, corrupt(labels, shared, rate=0.6))
    unit = most_common_share(labels, corrupt(labels, shared, rate=0.6, scale="unit"))
    standard = most_common_share(labels, corrupt(labels, shared, rate=0.6, scale="standard"))
    assert raw > 0.6
    assert unit > 0.6
    assert standard < 0.4


def test_real_images_flip_to_few_targets(shared_data):
    parquet, image = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("PIL.Image")
    import io

    files = sorted((shared_data / "cifar10").glob("train*.parquet"))
    if not files:
        pytest.skip(f"no CIFAR-10 here: {shared_data / 'cifar10'}")
    batch = next(parquet.ParquetFile(files[0]).iter_batches(batch_size=1500))
    column, labels = batch["img"].field("bytes"), batch["label"].to_numpy()
    pixels = np.stack([np.asarray(image.open(io.BytesIO(cell.as_py()))) for cell in column])
    assert pixels.shape == (1500, 32, 32, 3)
    raw = most_common_share(labels, corrupt(labels, pixels, rate=0.6))
    standard = most_common_share(labels, corrupt(labels, pixels, rate=0.6, scale="standard"))
    assert 0.5 < raw < 0.9
    assert standard < 0.45


def test_a_scale_is_the_same_as_scaling_the_images_first():
    labels, images = problem(60)
    channels = images.reshape(-1, 3)
    table, grey = images[:, 0, 0, :].astype(float), images[..., 0]
    pairs = [
        (corrupt(labels, images, scale="unit"), images / 255),
        (corrupt(labels, images, scale="standard"), (images - channels.mean(axis=0)) / channels.std(axis=0)),
        (corrupt(labels, table, scale="standard"), (table - table.mean(axis=0)) / table.std(axis=0)),
        (corrupt(labels, grey, scale="standard"), (grey - grey.mean()) / grey.std()),
    ]
    for scaled, by_hand in pairs:
        np.testing.assert_allclose(scaled.probabilities, corrupt(labels, by_hand).probabilities, atol=1e-9)


def test_standard_copes_with_a_constant_column():
    features = np.ones((100, 4))
    features[:, 0] = np.arange(100)
    noisy = corrupt(np.arange(100) % 3, features, classes=3, scale="standard")
    np.testing.assert_allclose(noisy.probabilities.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize(
    ("images", "options", "error", "message"),
    [
        (None, {}, UsageError, "give images="),
        (np.zeros((2, 4)), {}, DataError, "3 labels but 2 images"),
        (np.zeros(3), {}, DataError, r"shape \(3,\)"),
        (np.array([["a"], ["b"], ["c"]]), {}, DataError, "give pixels"),
        (np.array([[1.0], [np.nan], [1.0]]), {}, DataError, "row 1: the input holds NaN"),
        (np.zeros((3, 4)), {"scale": "units"}, UsageError, "did you mean 'unit'"),
        (np.zeros((3, 4)), {"scale": "unit"}, UsageError, "for uint8 pixels, not float64"),
    ],
)
def test_bad_inputs_are_refused(images, options, error, message):
    with pytest.raises(error, match=message):
        corrupt([0, 1, 2], images, classes=3, **options)
