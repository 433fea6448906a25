"""`labelloop.fit` in Python: what it takes, what it returns, and what it leaves alone."""

from __future__ import annotations

import random
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from small_rows import NAMES, QUICK, QUICK_LOOP, quick_fit, same_result, small_images, small_rows
from torch.utils.data import Dataset, TensorDataset

import labelloop
from labelloop.methods import closed_loop, cross_entropy

pytestmark = pytest.mark.slow

ROWS = small_rows()


@pytest.fixture(scope="module")
def result() -> labelloop.Result:
    return quick_fit(ROWS)


def test_the_result_is_what_its_description_says(result):
    n, classes = 90, 3
    assert isinstance(result, labelloop.Result)
    assert isinstance(result.model, labelloop.TrainedModel)
    assert result.classes.tolist() == [0, 1, 2]
    assert result.corrected_proba.shape == result.predicted_proba.shape == (n, classes)
    np.testing.assert_allclose(result.corrected_proba.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(result.predicted_proba.sum(axis=1), 1, atol=1e-5)
    verified = ROWS.y_clean >= 0
    expected = np.where(verified, ROWS.y_clean, result.corrected_proba.argmax(axis=1))
    np.testing.assert_array_equal(result.corrected_labels, expected)
    assert (result.corrected_proba[verified].max(axis=1) == 1).all()
    given = ROWS.y >= 0
    assert np.isnan(result.label_score[~given]).all()
    np.testing.assert_allclose(
        result.label_score[given], result.corrected_proba[np.flatnonzero(given), ROWS.y[given]], rtol=1e-6
    )
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4]
    assert [(r["round"], r["epoch"]) for r in result.rounds] == [(1, 0), (2, 0)]  # before the classifier's first epoch
    assert [len(r["weights"]) for r in result.rounds] == [len(r["components"]) for r in result.rounds] == [2, 3]
    assert all(sum(r["weights"]) == pytest.approx(1) for r in result.rounds)
    assert result.labels_from == result.record.method == "labelloop"
    assert result.stop_reason == "epoch limit"
    assert isinstance(result.config, labelloop.Config)
    assert (result.config.network, result.config.normalise, result.config.epochs) == ("mlp", "whole", 4)
    assert result.output_dir is None
    with pytest.raises(FrozenInstanceError):
        result.stop_reason = "other"


def test_the_model_predicts_what_the_result_says(result):
    np.testing.assert_array_equal(result.model.predict_proba(ROWS.X), result.predicted_proba)
    np.testing.assert_array_equal(result.model.predict(ROWS.X), result.predicted_proba.argmax(axis=1))
    assert result.model.transform(ROWS.X[:7]).shape == (7, 8)


@pytest.mark.parametrize("method", ["labelloop", "closed-loop"])
def test_it_learns_from_the_clean_rows(method):
    rows = small_rows(300, seed=1)
    wrong = (rows.true + 1) % 3
    # Half of the labels are turned the same way, which no classifier of noisy labels can see through.
    y = np.where(np.random.default_rng(0).random(300) < 0.5, wrong, rows.true)
    y_clean = np.where(np.arange(300) < 60, rows.true, -1)
    y[:60] = -1
    config = QUICK_LOOP | {"epochs": 16, "warm_up": 6, "correct_every": 3, "corrector": {"hidden": 32}}
    config |= {"learning_rate": 0.05}
    changes = {"config": config} if method == "closed-loop" else {"config": QUICK | {"epochs": 16, "round_share": 1.0}}
    after = quick_fit(rows, y=y, y_clean=y_clean, method=method, **changes)
    noisy = y >= 0
    before = (y[noisy] == rows.true[noisy]).mean()
    assert before < 0.6
    assert (after.corrected_labels[noisy] == rows.true[noisy]).mean() > before + 0.2


# --- what it takes ----------------------------------------------------------------------------------------------------


class Frame:
    """The little of a data frame that is asked for."""

    def __init__(self, values: np.ndarray, columns: list[str]) -> None:
        self.values, self.columns = values, columns

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[:, self.columns.index(name)]


@pytest.mark.parametrize(
    "convert",
    [lambda X: X.astype(np.float64), lambda X: X.tolist(), torch.from_numpy, np.asfortranarray],
    ids=["float64", "lists", "tensor", "fortran order"],
)
def test_arrays_lists_and_tensors_are_the_same_rows(convert, result):
    y = [None if label < 0 else int(label) for label in ROWS.y]
    assert same_result(quick_fit(ROWS, X=convert(ROWS.X), y=y, y_clean=ROWS.y_clean.tolist()), result)


def test_a_data_frame_gives_its_column_names():
    found = quick_fit(ROWS, X=Frame(ROWS.X, ["v", "w", "x", "y", "z"]))
    assert found.model.column_names == ("v", "w", "x", "y", "z")
    assert found.config.normalise == "columns"  # they have units of their own
    new = ROWS.X[:5]
    np.testing.assert_allclose(found.model.predict_proba(new), found.predicted_proba[:5], rtol=1e-5)
    with pytest.raises(labelloop.DataError, match="another order"):
        found.model.predict(Frame(new, ["w", "v", "x", "y", "z"]))


class Items(Dataset):
    """A map-style dataset that is no array."""

    def __init__(self, X: np.ndarray, y: np.ndarray | None = None) -> None:
        self.X, self.y = X, y

    def __getitem__(self, i: int) -> object:
        return self.X[i] if self.y is None else (self.X[i], self.y[i])

    def __len__(self) -> int:
        return len(self.X)


def test_datasets_of_inputs_or_of_pairs_are_the_same_rows():
    plain = quick_fit(ROWS)
    datasets = [Items(ROWS.X), Items(ROWS.X, ROWS.true), TensorDataset(torch.from_numpy(ROWS.X))]
    for dataset in datasets:
        found = quick_fit(ROWS, X=dataset)
        assert found.config.normalise == plain.config.normalise
        assert same_result(found, plain)
        np.testing.assert_array_equal(found.model.predict_proba(dataset), plain.predicted_proba)
    test = small_rows(30, seed=4)
    tested = quick_fit(ROWS, X=datasets[0], X_test=Items(test.X), y_test=test.true)
    expected = quick_fit(ROWS, X_test=test.X, y_test=test.true)
    accuracies = [[row["test_accuracy"] for row in found.history] for found in (tested, expected)]
    assert accuracies[0] == accuracies[1]


def test_images_in_either_order_of_axes_are_the_same_rows():
    rows = small_images()
    config = QUICK | {"network_options": {}, "network": "small-cnn", "epochs": 3}
    last = quick_fit(rows, config=config)
    first = quick_fit(rows, X=np.ascontiguousarray(np.moveaxis(rows.X, 3, 1)), config=config)
    assert same_result(first, last)
    assert (last.config.network, last.config.augment, last.config.normalise) == ("small-cnn", "crop-flip", "columns")
    assert last.model.architecture["input_shape"] == [3, 8, 8]
    assert quick_fit(rows, config={"epochs": 2, "rounds": 0}).config.network == "small-cnn"


def test_extra_columns_are_used_when_asked_for():
    hint = np.where(ROWS.true >= 0, ROWS.true, 0).astype(float)  # one column without an axis of its own
    loop = {"method": "closed-loop"}
    without = quick_fit(ROWS, **loop)
    config = QUICK_LOOP | {"corrector": QUICK_LOOP["corrector"] | {"inputs": ["features+extra"]}}
    assert same_result(quick_fit(ROWS, extra=hint, **loop), without)  # not asked for
    used = quick_fit(ROWS, extra=np.eye(3)[ROWS.true], config=config, **loop)
    other = quick_fit(ROWS, extra=hint, config=config, **loop)
    assert used.rounds[0]["corrector"]["inputs"] == "features+extra"
    assert not same_result(used, without)
    assert not same_result(used, other)
    with pytest.raises(labelloop.UsageError, match="no extra columns"):
        quick_fit(ROWS, config=config, **loop)


@pytest.mark.parametrize(
    ("convert", "kind"),
    [
        (lambda y: y.astype(np.int8), "int8"),
        (lambda y: y, "int64"),
        (lambda y: np.where(y < 0, np.nan, y), "float64"),
        (lambda y: np.append(NAMES, "")[y], "<U3"),
        (lambda y: np.array([None if k < 0 else str(NAMES[k]) for k in y], dtype=object), "object"),
    ],
    ids=["int8", "int64", "float64", "text", "objects"],
)
def test_labels_come_back_in_the_type_they_came_in(convert, kind, result):
    y, y_clean = convert(ROWS.y), convert(ROWS.y_clean)
    found = quick_fit(ROWS, y=y, y_clean=y_clean)
    assert found.corrected_labels.dtype == np.asarray(y).dtype == np.dtype(kind)
    np.testing.assert_array_equal(found.corrected_labels, convert(result.corrected_labels))
    np.testing.assert_array_equal(found.corrected_proba, result.corrected_proba)


def test_two_classes_may_be_true_and_false():
    y = ROWS.true == 1
    y_clean = np.array([bool(v) if i < 18 else None for i, v in enumerate(y)], dtype=object)
    found = quick_fit(ROWS, y=y, y_clean=y_clean)
    assert found.corrected_labels.dtype == bool
    assert found.classes.tolist() == [False, True]
    assert found.model.predict(ROWS.X[:4]).dtype == bool


def test_class_names_set_the_order(result):
    y, y_clean = (np.append(NAMES, "")[labels] for labels in (ROWS.y, ROWS.y_clean))
    found = quick_fit(ROWS, y=y, y_clean=y_clean, class_names=["cat", "bee", "ant"])
    assert found.classes.tolist() == ["cat", "bee", "ant"]
    assert found.corrected_labels[:3].tolist() == ["ant", "bee", "cat"]
    numbered = quick_fit(ROWS, class_names=["zoo", "yak", "emu"])
    assert numbered.classes.tolist() == ["zoo", "yak", "emu"]
    np.testing.assert_array_equal(numbered.corrected_labels, result.corrected_labels)  # numbers came in
    assert set(numbered.model.predict(ROWS.X)) <= {"zoo", "yak", "emu"}


def test_a_whole_configuration_is_taken_as_it_is(result):
    config = labelloop.Config(epochs=3, rounds=0, learners="networks", network_options={"hidden": (6,)})
    found = quick_fit(ROWS, config=config)
    assert (len(found.history), len(found.rounds)) == (3, 1)
    papers = closed_loop.Config(
        epochs=3,
        warm_up=1,
        correct_every=1,
        network_options={"hidden": (6,)},
        corrector=labelloop.CorrectorConfig(hidden=4, max_epochs=2),
    )
    found = quick_fit(ROWS, config=papers, method="closed-loop")
    assert found.config.learning_rate == 0.1
    assert (len(found.history), len(found.rounds)) == (3, 2)
    baseline = quick_fit(ROWS, config=cross_entropy.Config(epochs=2), method="cross-entropy")
    assert len(baseline.history) == 2


# --- test rows and true labels ----------------------------------------------------------------------------------------


def test_test_rows_are_reported_on_after_every_epoch(result):
    test = small_rows(60, seed=4)
    found = quick_fit(ROWS, X_test=test.X, y_test=test.true)
    assert [0 <= row["test_accuracy"] <= 1 for row in found.history] == [True] * 4
    assert found.history[-1]["test_accuracy"] == (found.model.predict(test.X) == test.true).mean()
    assert same_result(found, result)


def test_true_labels_change_the_record_and_nothing_else(result):
    right = quick_fit(ROWS, y_true=ROWS.true)
    wrong = quick_fit(ROWS, y_true=(ROWS.true + 1) % 3)
    assert same_result(right, result)
    assert same_result(wrong, result)
    train = ROWS.y_clean < 0
    known = train & (ROWS.y >= 0)
    last = right.history[-1]
    assert last["given_label_accuracy"] == pytest.approx((ROWS.y == ROWS.true)[known].mean())
    loop = quick_fit(ROWS, y_true=ROWS.true, method="closed-loop")  # hands back the labels that it learns from
    expected = (loop.corrected_labels == ROWS.true)[train].mean()
    assert loop.history[-1]["corrected_label_accuracy"] == pytest.approx(expected)
    assert wrong.history[-1]["given_label_accuracy"] != last["given_label_accuracy"]
    assert "given_label_accuracy" not in result.history[-1]


def test_true_labels_may_be_known_of_some_rows_only():
    some = np.where(np.arange(90) % 2 == 0, ROWS.true, -1)
    found = quick_fit(ROWS, y_true=some, method="closed-loop")  # hands back the labels that it learns from
    counted = (ROWS.y_clean < 0) & (some >= 0)
    expected = (found.corrected_labels == ROWS.true)[counted].mean()
    assert found.history[-1]["corrected_label_accuracy"] == pytest.approx(expected)


# --- one seed, one result ---------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_result_and_another_seed_another(result):
    assert same_result(quick_fit(ROWS), result)
    assert same_result(quick_fit(ROWS, seed=0), result)
    assert not same_result(quick_fit(ROWS, seed=1), result)


@pytest.mark.parametrize("method", ["labelloop", "closed-loop", "noisy-and-clean"])
@pytest.mark.parametrize("kind", ["array", "dataset", "images"])
def test_the_random_state_of_the_caller_is_left_alone(kind, method):
    rows = small_images() if kind == "images" else ROWS
    X = Items(rows.X) if kind == "dataset" else rows.X
    changes = {"closed-loop": {"warm_up": 1, "corrector": {"max_epochs": 2}}, "labelloop": {"rounds": 1}}
    config = {"epochs": 2} | changes.get(method, {})
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    found = quick_fit(rows, X=X, config=config, method=method)
    found.model.predict(X)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1][1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_the_random_state_of_the_caller_does_not_matter(result):
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    assert same_result(quick_fit(ROWS), result)


def test_the_arrays_of_the_caller_are_left_alone():
    rows = small_rows()
    for array in (rows.X, rows.y, rows.y_clean):
        array.setflags(write=False)
    quick_fit(rows)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"y": ROWS.y[:-1]}, labelloop.DataError, "90 rows of inputs, but 89 labels"),
        ({"y_clean": np.full(90, -1)}, labelloop.DataError, "no clean rows"),
        ({"ids": ["same"] * 90}, labelloop.DataError, "more than once"),
        ({"ids": ["a"]}, labelloop.DataError, "1 ids"),
        ({"extra": np.full((90, 2), np.nan)}, labelloop.DataError, "extra 0"),
        ({"y_true": ROWS.true[:-1]}, labelloop.DataError, "89 labels in y_true"),
        ({"y_true": np.append(ROWS.true, 0)}, labelloop.DataError, "91 labels in y_true"),
        ({"y_true": ROWS.true + 1}, labelloop.DataError, "y_true: '3'"),
        ({"X_test": ROWS.X}, labelloop.UsageError, "X_test and y_test"),
        ({"X_test": ROWS.X[:5] + 1, "y_test": [-1] * 5}, labelloop.DataError, "no test row has a label"),
        ({"X_test": ROWS.X[:5], "y_test": [0] * 5}, labelloop.DataError, "same input as a clean row"),
        ({"X_test": ROWS.X[:5, :4] + 1, "y_test": [0] * 5}, labelloop.DataError, r"x\[4\]"),
        ({"X": np.zeros((90, 2), dtype="U3")}, labelloop.DataError, "not numbers"),
        ({"X": ROWS.X[:, 0]}, labelloop.DataError, r"shape \(90,\)"),
        ({"class_names": ["ant", "bee"]}, labelloop.DataError, "not among the 2 classes"),
        ({"class_names": ["ant", "ant", "bee"]}, labelloop.UsageError, "more than once: ant"),
        ({"method": "closed-lop"}, labelloop.UsageError, "'closed-loop'"),
        ({"recipe": "papr"}, labelloop.UsageError, "'paper'"),
        ({"config": {"epoch": 3}}, labelloop.UsageError, "'epochs'"),
        (
            {"config": {"epochs": 9, "warm_up": 50}, "method": "closed-loop"},
            labelloop.UsageError,
            "no label would ever be corrected",
        ),
        ({"config": {"warm_up": 2}}, labelloop.UsageError, "unknown key warm_up"),
        ({"config": {"rounds": -1}}, labelloop.UsageError, "rounds must not be negative"),
        ({"config": {"round_share": 0}}, labelloop.UsageError, "round_share must lie above 0"),
        ({"config": {"learners": "trees"}}, labelloop.UsageError, "learners must be one of all, networks"),
        ({"config": labelloop.Config(), "method": "closed-lop"}, labelloop.UsageError, "'closed-loop'"),
        ({"config": labelloop.Config(), "method": "cross-entropy"}, labelloop.UsageError, "cross_entropy.Config"),
        ({"config": closed_loop.Config()}, labelloop.UsageError, "labelloop.Config"),
        ({"seed": -1}, labelloop.UsageError, "seed"),
        ({"device": "gpu"}, labelloop.UsageError, "device 'gpu'"),
        ({"resume": True}, labelloop.UsageError, "output_dir"),
        ({"overwrite": True}, labelloop.UsageError, "output_dir"),
        (
            {"config": {"epochs": 4, "learning_rate": 1e20}, "method": "cross-entropy"},
            labelloop.DataError,
            r"broke down: the loss of epoch [234] is (nan|inf); lower learning_rate",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        quick_fit(ROWS, **arguments)


def test_resume_and_overwrite_together_are_refused_and_lose_nothing(tmp_path):
    quick_fit(ROWS, output_dir=tmp_path)
    before = (tmp_path / "labels.parquet").read_bytes()
    with pytest.raises(labelloop.UsageError, match="one of them"):
        quick_fit(ROWS, output_dir=tmp_path, resume=True, overwrite=True)
    assert (tmp_path / "labels.parquet").read_bytes() == before


def test_both_errors_are_value_errors():
    assert issubclass(labelloop.UsageError, ValueError)
    assert issubclass(labelloop.DataError, ValueError)


def test_a_class_without_a_clean_row_is_a_warning():
    with pytest.warns(UserWarning, match=r"1 of 3 classes have no clean row \(2\).*0 6, 1 6, 2 0"):
        found = quick_fit(ROWS, y_clean=np.where(ROWS.y_clean == 2, -1, ROWS.y_clean))
    assert found.corrected_proba.shape == (90, 3)


# --- the run folder ---------------------------------------------------------------------------------------------------


def test_a_folder_changes_nothing_in_the_result(result, tmp_path):
    kept = quick_fit(ROWS, output_dir=str(tmp_path / "run"))
    assert same_result(kept, result)
    assert kept.output_dir == tmp_path / "run"
    np.testing.assert_array_equal(np.load(tmp_path / "run/targets.npy"), result.corrected_proba)
    again = quick_fit(ROWS, output_dir=tmp_path / "run", resume=True)
    assert same_result(again, result)
    assert len(again.history) == 4
    with pytest.raises(labelloop.DataError, match="already holds a run"):
        quick_fit(ROWS, output_dir=tmp_path / "run")


def test_a_tuple_among_the_options_can_be_resumed(tmp_path):
    config = QUICK | {"network_options": {"hidden": (8,)}}
    first = quick_fit(ROWS, config=config, output_dir=tmp_path)
    assert same_result(quick_fit(ROWS, config=config, output_dir=tmp_path, resume=True), first)
