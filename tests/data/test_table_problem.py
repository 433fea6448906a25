"""From table to problem, and every check before training: what it names and what it lets through."""

from __future__ import annotations

import re

import numpy as np
import pytest

from labelloop.data.problem import check, held_out_rows, make_problem
from labelloop.data.table import Table, from_arrays
from labelloop.errors import DataError

N = 12


def good(**changes):
    """A table that passes every check: 8 noisy rows, 4 clean rows of which two have a given label."""
    parts = {
        "inputs": np.random.default_rng(0).normal(size=(N, 3)),
        "labels": ["a", "b"] * 4 + ["a", "b", "", ""],
        "clean_labels": [""] * 8 + ["a", "a", "b", "b"],
        "column_names": ["left", "middle", "right"],
        "source": "my.csv",
    }
    return from_arrays(**(parts | changes))


def raises(message):
    return pytest.raises(DataError, match=re.escape(message))


def test_rows_go_where_their_labels_say():
    labels = ["a", "", "b", "a", ""]  # noisy, unlabelled, paired, noisy, unpaired
    clean = ["", "", "a", "", "c"]
    table = from_arrays(np.eye(5), labels, clean, extra=np.arange(5))
    made = make_problem(table)
    problem, classes, train, clean_rows = made.problem, made.classes, made.train, made.clean
    assert train.tolist() == problem.train.index.tolist() == [0, 1, 3]
    assert clean_rows.tolist() == problem.clean.index.tolist() == [2, 4]
    assert classes.tolist() == ["a", "b", "c"]
    assert problem.class_names == ("a", "b", "c")
    assert problem.train.labels.tolist() == [0, -1, 0]
    assert problem.train.clean_labels.tolist() == [-1, -1, -1]
    assert problem.clean.labels.tolist() == [1, -1]
    assert problem.clean.clean_labels.tolist() == [0, 2]
    assert problem.train.inputs is table.inputs
    assert problem.train.extra.tolist() == [[0], [1], [3]]
    assert len(problem.train) == 3


def test_given_classes_set_the_order_of_the_problem():
    made = make_problem(good(class_names=["b", "a", "c"]))
    problem, classes = made.problem, made.classes
    assert problem.class_names == ("b", "a", "c")
    assert classes.tolist() == ["b", "a", "c"]
    assert problem.train.labels.tolist() == [1, 0] * 4


def test_test_rows_are_in_neither_part():
    split = ["test" if row in (1, 9) else "train" for row in range(N)]
    table = good(split=split)
    made = make_problem(table)
    problem, train, clean = made.problem, made.train, made.clean
    assert 1 not in train
    assert 9 not in clean
    assert len(problem.train) == 7
    assert len(problem.clean) == 3
    test = held_out_rows(made)
    assert test.index.tolist() == [1, 9]
    assert test.labels.tolist() == [1, 1]
    assert test.clean_labels.tolist() == [-1, 0]  # only clean labels count, as there is one
    unverified = held_out_rows(make_problem(good(split=["test"] * 3 + ["train"] * 9)))
    assert unverified.clean_labels.tolist() == [0, 1, 0]
    assert held_out_rows(make_problem(good())) is None


def test_a_good_table_and_its_problem_pass_without_a_word():
    other = from_arrays(
        np.random.default_rng(1).normal(size=(5, 3)), ["a"] * 5, column_names=["left", "middle", "right"]
    )
    check(good(), other)
    check(make_problem(good()))
    assert make_problem(good()).problem.num_classes == 2


def table_with_ids(inputs):
    return from_arrays(inputs, ids=[f"t{i}" for i in range(N)])


def test_data_frames_bring_their_column_names():
    class Frame:
        columns = ("u", "v")

        def __array__(self, dtype=None, copy=None):
            return np.ones((4, 2), dtype=np.float64)

    table = from_arrays(Frame(), [0, 1, 0, 1])
    assert table.column_names == ("u", "v")
    assert table.inputs.dtype == np.float32


def test_no_clean_rows():
    for clean in (None, [""] * N):
        with raises("my.csv: no clean rows: no row has a clean_label; verify the labels of some rows"):
            check(good(clean_labels=clean))
    with raises("no clean rows"):
        check(make_problem(good(clean_labels=None)))


def test_no_label_at_all():
    with raises("no row has a label"):
        check(good(labels=None, clean_labels=None))


def test_no_noisy_row():
    with raises("my.csv: no noisy row: nothing to correct"):
        check(good(clean_labels=["a", "b"] * 6))
    with raises("clean labels, but no given labels to correct"):
        check(good(labels=None))


def test_one_class_only():
    with raises("my.csv: only one class, 'a', occurs"):
        check(good(labels=["a"] * 8 + [""] * 4, clean_labels=[""] * 8 + ["a"] * 4))
    with raises(
        "only one class, '1', occurs in the labels; a classifier needs two or more (blank, NaN, None and -1 mean"
    ):
        check(good(labels=[1, -1] * 6, clean_labels=[-1] * 8 + [1] * 4))
    with raises("only one class, 'a', occurs"):
        check(good(labels=["a"] * N, clean_labels=[""] * 8 + ["a"] * 4, class_names=["a", "b"]))


def test_labels_outside_the_classes():
    labels = ["a", "b"] * 5 + ["a", "z"]
    with raises("my.csv: label: 'z' is not among the 2 classes, in row 11"):
        check(good(labels=labels, class_names=["a", "b"]))
    with raises("my.csv: clean_label: 'z' is not among the 2 classes, in row 8, 9"):
        check(good(clean_labels=[""] * 8 + ["z", "z", "a", "b"], class_names=["a", "b"]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_features_that_are_not_finite(value):
    inputs = np.ones((N, 3))
    inputs[4, 1] = inputs[7, 2] = value
    with raises(
        "my.csv: features that are blank, NaN, infinite or too large for float32 in column middle, right, row 4, 7"
    ):
        check(good(inputs=inputs))
    with raises("row 4, 7 (the first row is 0; 2 of 12 rows)"):
        check(make_problem(good(inputs=inputs)))


def test_extra_columns_and_images_that_are_not_finite():
    extra = np.ones((N, 2))
    extra[3, 1] = np.nan
    with raises("extra columns that are blank, NaN, infinite or too large for float32 in column extra 1, row 3"):
        check(good(extra=extra))
    images = np.ones((N, 2, 2, 3), dtype=np.float32)
    images[5, 1, 1, 2] = np.nan
    with raises("float32, row 5 "):
        check(good(inputs=images, column_names=None))


@pytest.mark.parametrize("part", ["labels", "clean_labels", "ids", "split", "extra"])
def test_lengths_that_differ(part):
    value = np.ones((11, 2)) if part == "extra" else ["train"] * 11
    with raises(f"my.csv: 12 rows of inputs, but 11 {part}; give one for every row"):
        good(**{part: value})
    whole = good()
    parts = vars(whole) | {part: np.array(value)}
    with raises(f"12 rows of inputs, but 11 {part}"):
        check(Table(**parts))


def test_arrays_that_cannot_be_a_table():
    with raises("2 column names for 3 columns"):
        good(column_names=["a", "b"])
    with raises("my.csv: inputs of type <U1 are not numbers"):
        good(inputs=np.full((N, 3), "x"))
    with raises("extra columns are numbers [n, E], not <U1"):
        good(extra=["x"] * N)
    with raises("inputs of shape (12,)"):
        good(inputs=np.ones(N))


def test_duplicate_ids():
    ids = [f"r{i}" for i in range(N)]
    ids[7] = ids[9] = "r2"
    ids[11] = "r0"
    with raises("my.csv: 2 id(s) occur more than once: r0 in rows 0, 11; r2 in rows 2, 7, 9 (the first row is 0)"):
        check(good(ids=ids))
    with raises("and 1 more"):
        check(good(ids=[f"r{i // 2}" for i in range(N)]))


def test_test_rows_among_the_clean_rows_by_id():
    table = good(ids=[f"r{i}" for i in range(N)])
    inputs = np.random.default_rng(1).normal(size=(4, 3))
    names = ["left", "middle", "right"]
    test = from_arrays(inputs, ids=["t0", "r9", "t2", "r11"], column_names=names, source="test.csv")
    with raises(
        "2 test rows have the same id as a clean row (r9, r11): rows 1, 3 of test.csv, clean rows 9, 11 of my.csv"
    ):
        check(table, test)
    with pytest.warns(UserWarning, match="2 test rows have the same id as a clean row"):
        check(table, test, allow_overlap=True)
    check(good(), test)  # row numbers are nobody's ids: equal ones mean nothing


def test_test_rows_among_the_clean_rows_by_content():
    table = good()
    inputs = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    inputs[2] = table.inputs[10]
    test = from_arrays(inputs, column_names=table.column_names, source="test.csv")
    message = "1 test rows have the same input as a clean row: rows 2 of test.csv, clean rows 10 of my.csv"
    with raises(message):
        check(table, test)
    with pytest.warns(UserWarning, match=message):
        check(table, test, allow_overlap=True)


def test_test_rows_of_the_same_table_among_its_clean_rows():
    inputs = np.random.default_rng(0).normal(size=(N, 3))
    inputs[10] = inputs[1]
    inputs[10, 0] = inputs[1, 0] = 0.0
    inputs[1, 0] = -0.0  # the same number as 0.0, with other bits
    with raises("1 test rows have the same input as a clean row: rows 1 of my.csv, clean rows 10 of my.csv"):
        check(good(inputs=inputs, split=["train", "test"] + ["train"] * 10))


def test_images_are_compared_too():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (N, 2, 2, 3)).astype(np.uint8)
    table = good(inputs=images, column_names=None)
    check(table, from_arrays(255 - images[8:9], source="test"))
    with raises("rows 0 of test, clean rows 8 of my.csv"):
        check(table, from_arrays(images[8:9], source="test"))


def test_test_rows_among_the_noisy_rows_are_counted():
    table = good(ids=[f"r{i}" for i in range(N)])
    inputs = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    inputs[1] = table.inputs[0]  # by content; row 3 is known by its id
    test = from_arrays(inputs, ids=["t0", "t1", "t2", "r5"], column_names=table.column_names, source="test.csv")
    with pytest.warns(UserWarning, match=r"2 of 4 test rows are also among the noisy .*test rows 1, 3 of test\.csv"):
        check(table, test)


def test_test_rows_with_faults_of_their_own():
    names = ["left", "middle", "right"]
    inputs = np.random.default_rng(1).normal(size=(3, 3))
    with raises("test.csv: 1 id(s) occur more than once: t in rows 0, 1"):
        check(good(), from_arrays(inputs, ids=["t", "t", "u"], column_names=names, source="test.csv"))
    with raises("test.csv: found 2 feature columns, expected 3 (missing: middle)"):
        check(good(), from_arrays(inputs[:, :2], column_names=["left", "right"], source="test.csv"))
    with raises("test.csv: found 3 feature columns, expected 3 (the same in another order)"):
        check(good(), from_arrays(inputs, column_names=names[::-1], source="test.csv"))
    inputs[2, 0] = np.nan
    with raises("test.csv: features that are blank, NaN, infinite or too large for float32 in column left, row 2"):
        check(good(), from_arrays(inputs, column_names=names, source="test.csv"))


def test_a_class_without_clean_rows_is_a_warning_with_counts():
    labels = ["a", "b", "c", "c"] * 2 + [""] * 4
    with pytest.warns(UserWarning, match=r"my\.csv: 1 of 3 classes have no clean row \(c\).*each class: a 2, b 2, c 0"):
        check(good(labels=labels))
    made = make_problem(good(labels=labels))
    problem = made.problem
    assert problem.num_classes == 3


def test_a_class_that_may_mean_missing_is_pointed_out():
    labels = ["a", "NA"] * 4 + [""] * 4
    with pytest.warns(UserWarning, match=r"my\.csv: NA is used as a class name"):
        check(good(labels=labels, clean_labels=[""] * 8 + ["a", "a", "NA", "NA"]))
