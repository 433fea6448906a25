"""`labelloop.correct` on arrays: types, order, ids, missing labels, and what it says of bad input."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from worlds import NUM_CLASSES, class_conditional

import labelloop
from labelloop.errors import DataError, UsageError

pytestmark = pytest.mark.slow

WORLD = class_conditional(1500)
CLEAN = WORLD.clean(200)
P = WORLD.probabilities
NAMES = np.array(["ant", "bee", "cat", "dog"])


@pytest.fixture(scope="module")
def plain() -> labelloop.CorrectionResult:
    return labelloop.correct(WORLD.given, CLEAN, pred_probs=P)


def test_what_comes_back(plain):
    n, verified = len(WORLD.true), CLEAN >= 0
    assert plain.corrected_labels.shape == (n,)
    assert plain.corrected_proba.shape == plain.predicted_proba.shape == (n, NUM_CLASSES)
    assert np.allclose(plain.corrected_proba.sum(axis=1), 1, atol=1e-5)
    assert np.array_equal(plain.corrected_labels[verified], CLEAN[verified])
    assert np.allclose(plain.label_score, plain.corrected_proba[np.arange(n), WORLD.given])
    assert plain.clean_rows == {"paired": 200, "unpaired": 0}
    assert sum(plain.weights.values()) == pytest.approx(1)
    assert np.isfinite(plain.cross_fitted_proba[verified]).all()
    differs = plain.corrected_labels != WORLD.given
    assert np.array_equal(np.asarray(plain.labels["is_label_issue"]), differs)
    assert np.array_equal(np.asarray(plain.labels["changed"]), differs & ~verified)
    assert (plain.corrected_labels == WORLD.true)[~verified].mean() > (WORLD.given == WORLD.true)[
        ~verified
    ].mean() + 0.1


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.float32])
def test_labels_come_back_in_their_type(plain, dtype):
    given = WORLD.given.astype(dtype)
    found = labelloop.correct(given, CLEAN, pred_probs=P)
    assert found.corrected_labels.dtype == dtype
    assert np.array_equal(found.corrected_labels, plain.corrected_labels)


def test_text_labels_and_lists(plain):
    verified = ["" if label < 0 else str(NAMES[label]) for label in CLEAN]
    found = labelloop.correct(NAMES[WORLD.given].tolist(), verified, pred_probs=P.tolist())
    assert np.array_equal(found.corrected_labels, NAMES[plain.corrected_labels])
    assert found.classes.tolist() == NAMES.tolist()


def test_class_names_give_the_order_of_the_columns(plain):
    order = [2, 0, 3, 1]  # columns in another order than the alphabet
    verified = np.where(CLEAN < 0, "", NAMES[CLEAN])
    found = labelloop.correct(NAMES[WORLD.given], verified, pred_probs=P[:, order], class_names=NAMES[order])
    assert (found.corrected_labels == NAMES[plain.corrected_labels]).mean() > 0.98


def test_order_of_rows_hardly_matters(plain):
    order = np.random.default_rng(0).permutation(len(P))
    found = labelloop.correct(WORLD.given[order], CLEAN[order], pred_probs=P[order])
    assert (found.corrected_labels == plain.corrected_labels[order]).mean() > 0.97  # other folds


def test_ids_stay_with_their_rows():
    ids = [f"row-{i}" for i in range(len(P))]
    assert labelloop.correct(WORLD.given, CLEAN, pred_probs=P, ids=ids).labels["id"].to_pylist() == ids
    with pytest.raises(DataError, match="more than once: row-1 in rows 0, 1"):
        labelloop.correct(WORLD.given, CLEAN, pred_probs=P, ids=["row-1", *ids[1:]])


def test_unlabelled_rows_are_labelled():
    given = WORLD.given.astype(float)
    given[CLEAN < 0] = np.where(np.arange((CLEAN < 0).sum()) < 50, np.nan, given[CLEAN < 0])
    found = labelloop.correct(given, CLEAN, pred_probs=P)
    missing = np.isnan(given)
    assert missing.sum() == 50
    assert np.isfinite(found.corrected_labels).all()
    assert np.isnan(found.label_score[missing]).all()
    assert found.labels["given_label"].null_count == 50


def test_half_precision_is_renormalised(plain):
    found = labelloop.correct(WORLD.given, CLEAN, pred_probs=P.astype(np.float16))
    assert (found.corrected_labels == plain.corrected_labels).mean() > 0.99


def test_numbers_may_skip_a_class_that_no_row_has():
    wide = np.hstack([P * 0.999, np.full((len(P), 1), 0.001)])
    with pytest.warns(UserWarning, match="have no clean row"):
        found = labelloop.correct(WORLD.given, CLEAN, pred_probs=wide)
    assert found.classes.tolist() == [0, 1, 2, 3, 4]


def test_without_pairs_the_estimate_is_a_pair_of_bounds():
    with pytest.warns(UserWarning, match="estimated from the noisy rows"):
        found = labelloop.correct(np.where(CLEAN >= 0, -1, WORLD.given), CLEAN, pred_probs=P)
    assert found.clean_rows == {"paired": 0, "unpaired": 200}
    rest = CLEAN < 0
    assert not np.array_equal(found.corrected_proba[rest], found.predicted_proba[rest])
    assert found.estimate["corrected_label_accuracy"]["rows"] == 200
    assert found.estimate["corrected_label_accuracy"]["how"] == "bounded"
    assert "keep their given label would say more" in found.estimate["notes"][0]
    truth = (found.corrected_labels == WORLD.true)[rest].mean()
    assert (
        found.estimate["corrected_label_accuracy"]["low"] <= truth <= found.estimate["corrected_label_accuracy"]["high"]
    )


@pytest.mark.parametrize(
    ("count", "message"), [(6, "6 of 6 clean rows .* estimated from the noisy rows"), (25, "only 25 clean rows")]
)
def test_few_clean_rows_are_said(count, message):
    few = np.where(np.cumsum(CLEAN >= 0) <= count, CLEAN, -1)
    names = NAMES.tolist() + [f"class {k}" for k in range(9)]  # many classes for so few rows
    wide = np.hstack([P * 0.99, np.full((len(P), 9), 0.01 / 9)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = labelloop.correct(WORLD.given, few, pred_probs=wide, class_names=names)
    assert any(re.search(message, str(w.message)) for w in caught)
    assert np.isfinite(found.corrected_proba).all()
    assert ("label corrector" in found.weights) == (count >= 20)


def test_a_class_without_clean_rows_is_said_and_kept():
    absent = np.where(CLEAN == 2, -1, CLEAN)
    with pytest.warns(UserWarning, match="no clean row"):
        found = labelloop.correct(WORLD.given, absent, pred_probs=P)
    assert (found.corrected_labels == 2)[(WORLD.true == 2) & (absent < 0)].mean() > 0.3


def test_a_class_seen_only_among_the_clean_labels():
    given = np.where(WORLD.given == 3, 0, WORLD.given)
    with pytest.warns(UserWarning, match="clean labels hold '3' .*, which never occur as given labels"):
        found = labelloop.correct(given, CLEAN, embeddings=WORLD.embeddings)
    assert (found.corrected_labels == 3)[CLEAN < 0].any()


def test_probabilities_of_a_model_that_saw_the_rows_are_noticed():
    seen = 0.02 / NUM_CLASSES + 0.98 * np.eye(NUM_CLASSES)[WORLD.given]
    with pytest.warns(UserWarning, match="use cross-validation"):
        labelloop.correct(WORLD.given, CLEAN, pred_probs=seen)


def test_out_of_sample_probabilities_are_not_suspected():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labelloop.correct(WORLD.given, CLEAN, pred_probs=P)


def bad_sum() -> np.ndarray:
    p = P.copy()
    p[[3, 8]] *= 1.5
    return p


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pred_probs": bad_sum()}, r"row 3 sums to 1\.5 and not to 1; 2 such rows: 3, 8"),
        ({"pred_probs": np.log(P)}, "negative in row 0"),
        ({"pred_probs": np.where(np.arange(len(P))[:, None] == 5, np.nan, P)}, "not a number in row 5"),
        ({"pred_probs": P[:, 0]}, r"pred_probs: expected numbers \[n, C\]"),
        ({"pred_probs": P[:-1]}, "1499 rows of inputs, but 1500 labels"),
        ({"pred_probs": P[:, :3] / P[:, :3].sum(axis=1, keepdims=True)}, "3 columns, but there are 4 classes"),
        ({"pred_probs": P, "embeddings": WORLD.embeddings[:-2]}, "1500 rows, but 1498 of embeddings"),
        ({"pred_probs": P, "y": np.eye(4)[WORLD.given]}, "expected one label per row"),
        ({"pred_probs": P, "y_clean": np.eye(4)[WORLD.true]}, "expected one label per row"),
        ({"pred_probs": P, "y_clean": CLEAN[:-1]}, "1499 clean_labels"),
        ({"pred_probs": P, "y_clean": np.full(len(P), -1)}, "no clean rows"),
        ({"pred_probs": P, "y_clean": WORLD.true}, "no noisy row"),
        ({"embeddings": np.where(np.arange(len(P))[:, None] == 4, np.inf, WORLD.embeddings)}, "row 4"),
    ],
)
def test_bad_input_is_refused_with_the_place(arguments, message):
    rest = {"y": WORLD.given, "y_clean": CLEAN} | arguments
    with pytest.raises(DataError, match=message):
        labelloop.correct(rest.pop("y"), rest.pop("y_clean"), **rest)


@pytest.mark.filterwarnings("ignore:.*have no clean row")
def test_one_clean_row_is_too_few():
    one = np.where(np.arange(len(P)) == np.flatnonzero(CLEAN >= 0)[0], CLEAN, -1)
    with pytest.raises(DataError, match="only one clean row; verify more"):
        labelloop.correct(WORLD.given, one, pred_probs=P)


def test_something_to_correct_with_is_needed():
    with pytest.raises(UsageError, match="give pred_probs, embeddings or both"):
        labelloop.correct(WORLD.given, CLEAN)
    with pytest.raises(UsageError, match="seed must not be negative"):
        labelloop.correct(WORLD.given, CLEAN, pred_probs=P, seed=-1)
    for seed in (1.5, True, "1", None):
        with pytest.raises(UsageError, match="seed must be a whole number, but is"):
            labelloop.correct(WORLD.given, CLEAN, pred_probs=P, seed=seed)


@pytest.mark.filterwarnings("ignore:.*never occur as given labels")
def test_given_labels_of_one_class_are_corrected_all_the_same():
    """Boosting needs two classes; the clean rows have both."""
    rng = np.random.default_rng(0)
    true = rng.integers(2, size=420)
    inputs = (rng.normal(size=(420, 3)) + 3 * true[:, None]).astype(np.float32)
    clean = np.where(np.arange(420) < 50, true, -1)
    for few in (0, 1):  # of the other class
        given = np.zeros(420, int)
        given[420 - few :] = 1
        found = labelloop.correct(given, clean, embeddings=inputs)
        assert (found.corrected_labels == true).mean() > 0.9


def test_named_columns_of_probabilities_are_the_classes_whatever_their_order(plain):
    pandas = pytest.importorskip("pandas")
    order = [2, 0, 3, 1]
    for names in (NAMES, [f"p_{name}" for name in NAMES]):
        frame = pandas.DataFrame(P, columns=names).iloc[:, order]
        verified = np.where(CLEAN < 0, "", NAMES[CLEAN])
        found = labelloop.correct(NAMES[WORLD.given], verified, pred_probs=frame)
        expected = labelloop.correct(
            NAMES[WORLD.given], verified, pred_probs=P[:, order], class_names=NAMES[order].tolist()
        )
        assert found.classes.tolist() == NAMES[order].tolist()
        np.testing.assert_array_equal(found.corrected_proba, expected.corrected_proba)
    unnamed = labelloop.correct(NAMES[WORLD.given], verified, pred_probs=pandas.DataFrame(P))  # columns 0, 1, ...
    np.testing.assert_array_equal(unnamed.corrected_proba, plain.corrected_proba)


def test_probabilities_beside_a_data_frame_are_compared_with_its_index():
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"x": WORLD.embeddings[:, 0], "label": WORLD.given, "clean_label": CLEAN})
    with pytest.raises(DataError, match="rows and pred_probs have different indexes"):
        labelloop.correct(rows, pred_probs=pandas.DataFrame(P)[::-1])
