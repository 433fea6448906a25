"""What the estimator makes of labels: types, missing ones, verified ones, and none verified at all."""

from __future__ import annotations

import numpy as np
import pytest
from estimator_rows import NO_CLEAN, digits_one_too_high, papers, quick, three_clouds
from sklearn.exceptions import DataConversionWarning

from labelloop import DataError, LabelLoopClassifier

pytestmark = pytest.mark.slow

ROWS = three_clouds()
NAMES = np.array(["ant", "bee", "caterpillar"])


def as_text(labels: np.ndarray) -> np.ndarray:
    return np.where(labels < 0, "", NAMES[labels])


def as_objects(labels: np.ndarray) -> np.ndarray:
    return np.where(labels < 0, None, NAMES[labels].astype(object))


def as_floats(labels: np.ndarray) -> np.ndarray:
    return np.where(labels < 0, np.nan, labels)


@pytest.fixture(scope="module")
def expected() -> LabelLoopClassifier:
    """Fitted on whole numbers."""
    return quick().fit(ROWS.X, ROWS.y, ROWS.y_clean)


@pytest.fixture(scope="module")
def digits_model() -> LabelLoopClassifier:
    rows = digits_one_too_high()
    small = {"network_options": {"hidden": [64]}, "rounds": 1, "round_share": 0.5, "learners": "networks"}
    return LabelLoopClassifier(epochs=18, random_state=0, config=small).fit(rows.X, rows.y, rows.y_clean)


def test_corrected_labels_are_better_than_the_given_ones(digits_model):
    rows = digits_one_too_high()
    unverified = rows.y_clean < 0
    wrong_before = (rows.y != rows.true)[unverified].sum()
    wrong_after = (digits_model.corrected_labels_ != rows.true)[unverified].sum()
    assert wrong_before > 150
    assert wrong_after < 0.5 * wrong_before
    assert (digits_model.corrected_labels_ == rows.true)[~unverified].all()
    quality = digits_model.label_quality_
    assert np.median(quality[rows.y != rows.true]) < 0.5 < np.median(quality[rows.y == rows.true])


def test_the_noise_matrix_goes_from_true_to_noisy(digits_model):
    rows, T = digits_one_too_high(), digits_model.noise_matrix_
    np.testing.assert_allclose(T.sum(axis=1), 1)
    actual = np.array([[(rows.y[rows.true == i] == j).mean() for j in range(10)] for i in range(10)])
    even = np.arange(0, 10, 2)
    np.testing.assert_allclose(T[even, even + 1], actual[even, even + 1], atol=0.1)
    assert (T[even, even + 1] > 0.25).all()
    assert (T[even + 1, even] < 0.1).all()


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (lambda labels: labels.astype(np.int32), np.dtype(np.int32)),
        (lambda labels: labels.astype(np.int8), np.dtype(np.int8)),
        (as_text, np.dtype("<U11")),
        (as_objects, np.dtype(object)),
        (as_floats, np.dtype(float)),
    ],
    ids=["int32", "int8", "text", "objects", "floats"],
)
def test_labels_come_back_in_their_type(given, dtype, expected):
    model = quick().fit(ROWS.X, given(ROWS.y), given(ROWS.y_clean))
    classes = given(np.arange(3))
    for values, numbers in (
        (model.classes_, np.arange(3)),
        (model.corrected_labels_, expected.corrected_labels_),
        (model.predict(ROWS.X), expected.predict(ROWS.X)),
    ):
        assert values.dtype == dtype
        np.testing.assert_array_equal(values, classes[numbers])
    assert model.score(ROWS.X, given(ROWS.y)) == expected.score(ROWS.X, ROWS.y)


def test_whole_numbers_of_pandas_stay_whole_where_one_is_missing(expected):
    pandas = pytest.importorskip("pandas")
    y, y_clean = (pandas.Series(v, dtype="Int32").where(v >= 0) for v in (ROWS.y, ROWS.y_clean))
    assert y.isna().any()
    model = quick().fit(ROWS.X, y, y_clean)
    assert model.corrected_labels_.dtype == model.classes_.dtype == np.int32
    np.testing.assert_array_equal(model.corrected_labels_, expected.corrected_labels_)


def test_plain_lists_will_do():
    model = quick().fit(ROWS.X.tolist(), as_objects(ROWS.y).tolist(), as_objects(ROWS.y_clean).tolist())
    assert set(model.predict(ROWS.X.tolist())) <= set(NAMES)


def test_true_and_false():
    y = ROWS.true == 0
    model = quick().fit(ROWS.X, y, np.where(ROWS.y_clean < 0, -1, y))
    assert model.classes_.tolist() == [False, True]
    assert model.corrected_labels_.dtype == model.predict(ROWS.X).dtype == bool


def test_a_missing_label_is_no_class_and_gets_one(expected):
    model = expected
    assert model.classes_.tolist() == [0, 1, 2]
    assert (model.corrected_labels_ >= 0).all()
    assert np.isnan(model.label_quality_[ROWS.y < 0]).all()
    assert not np.isnan(model.label_quality_[ROWS.y >= 0]).any()
    np.testing.assert_allclose(model.corrected_proba_.sum(axis=1), 1, atol=1e-5)


def test_score_counts_labelled_rows_and_clean_ones_alone(expected):
    model = expected
    right = model.predict(ROWS.X) == ROWS.y
    weight = np.arange(150.0)
    assert model.score(ROWS.X, ROWS.y) == pytest.approx(right[:-10].mean())
    assert model.score(ROWS.X, ROWS.y, weight) == pytest.approx(np.average(right[:-10], weights=weight[:-10]))
    verified = ROWS.y_clean >= 0
    clean_score = model.score(ROWS.X, ROWS.y, y_clean=ROWS.y_clean)
    assert clean_score == pytest.approx((model.predict(ROWS.X) == ROWS.true)[verified].mean())
    with pytest.raises(DataError, match="no row to score on has a label"):
        model.score(ROWS.X, ROWS.y, y_clean=np.full(150, -1))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.score(ROWS.X, ROWS.y[:-1])


@pytest.mark.parametrize("y_clean", [None, np.full(150, -1), np.full(150, np.nan), [None] * 150])
def test_without_clean_labels_it_says_so_and_trains_a_plain_classifier(y_clean):
    with pytest.warns(UserWarning, match=NO_CLEAN):
        model = quick().fit(ROWS.X, ROWS.y, y_clean)
    np.testing.assert_array_equal(model.corrected_labels_, ROWS.y)
    np.testing.assert_array_equal(np.isnan(model.corrected_proba_).all(axis=1), ROWS.y < 0)
    assert np.isnan(model.label_quality_).all()
    assert np.isnan(model.noise_matrix_).all()
    assert model.noise_matrix_.shape == (3, 3)
    assert model.combination_weights_.shape == (0, 1)
    assert len(model.history_) == 8
    assert model.stop_reason_ == "epoch limit"
    assert (model.predict(ROWS.X) == ROWS.true).mean() > 0.9


def test_the_plain_classifier_takes_the_settings_of_the_papers_loop_and_needs_no_warm_up():
    with pytest.warns(UserWarning, match=NO_CLEAN):
        model = papers(epochs=2, warm_up=3, noisy_loss_weight=0.1).fit(ROWS.X, ROWS.y)
    assert len(model.history_) == 2


@pytest.mark.filterwarnings("ignore:.*clean labels hold '200'")
def test_a_class_that_only_the_clean_labels_have():
    y = np.where(ROWS.y == 2, 0, ROWS.y)
    with pytest.warns(UserWarning, match="clean labels hold '2' .*, which never occur as given labels"):
        model = quick().fit(ROWS.X, y, ROWS.y_clean)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(ROWS.X).shape == (150, 3)
    assert (model.corrected_labels_[ROWS.true == 2] == 2).sum() > 10
    with pytest.raises(DataError, match="y_clean, in the type of y"):
        quick().fit(ROWS.X, y.astype(np.int8), np.where(ROWS.y_clean == 2, 200, ROWS.y_clean))


def test_a_class_without_a_clean_label_is_pointed_out():
    with pytest.warns(UserWarning, match="1 of 3 classes have no clean row"):
        quick().fit(ROWS.X, ROWS.y, np.where(ROWS.y_clean == 2, -1, ROWS.y_clean))


@pytest.mark.filterwarnings("ignore:.*have no clean row")
@pytest.mark.parametrize(
    ("y", "y_clean", "error", "message"),
    [
        (ROWS.y[:-1], ROWS.y_clean, DataError, "150 rows of inputs, but 149 labels"),
        (ROWS.y, ROWS.y_clean[:-1], DataError, "150 rows of inputs, but 149 clean_labels"),
        (np.stack([ROWS.y, ROWS.y], axis=1), ROWS.y_clean, ValueError, "should be a 1d array"),
        (ROWS.y, np.stack([ROWS.y_clean] * 2, axis=1), DataError, "y_clean: expected one label per row"),
        (ROWS.y, np.where(np.arange(150) == 0, 1, -1), DataError, "only one clean row"),
        (np.full(150, -1), ROWS.y_clean, DataError, "no noisy row"),
        (ROWS.true, ROWS.true, DataError, "no noisy row"),
        (ROWS.X[:, 0], ROWS.y_clean, ValueError, "continuous"),
        (ROWS.y, ROWS.X[:, 0], ValueError, "continuous"),
        (ROWS.y, as_text(ROWS.y_clean), DataError, "holds text"),
        (None, ROWS.y_clean, ValueError, "requires y"),
    ],
)
def test_labels_that_cannot_be_used(y, y_clean, error, message):
    with pytest.raises(error, match=message):
        quick().fit(ROWS.X, y, y_clean)


def test_a_column_of_labels_is_taken_with_a_warning():
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        model = quick().fit(ROWS.X, ROWS.y[:, None], ROWS.y_clean)
    assert model.corrected_labels_.shape == (150,)
