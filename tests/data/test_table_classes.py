"""Classes: their order, missing labels, and the way there and back for every type of label."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelloop.data.classes import class_names_of, decode, encode, numbers_where_all_are, text_of, typed
from labelloop.errors import DataError, UsageError


class NAType:
    """Stands in for the missing value of pandas, which refuses to be compared."""

    def __eq__(self, other):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None


@pytest.mark.parametrize(
    ("values", "expected", "classes"),
    [
        (np.array([10, 2, -1, 10]), [1, 0, -1, 1], [2, 10]),
        (np.array([10, 2, 10], dtype=np.uint8), [1, 0, 1], [2, 10]),
        (np.array([10.0, np.nan, 2.0, -1.0]), [1, -1, 0, -1], [2, 10]),
        (np.array([True, False, True]), [1, 0, 1], [False, True]),
        (np.array(["dog", "", "cat", " cat "]), [1, -1, 0, 0], ["cat", "dog"]),
        (np.array(["10", "2", "x", "NaN", "None", "-1"]), [0, 1, 2, -1, -1, -1], ["10", "2", "x"]),
        (
            np.array(["dog", None, float("nan"), "cat", "", NAType()], dtype=object),
            [1, -1, -1, 0, -1, -1],
            ["cat", "dog"],
        ),
        (np.array([7, None, 3, "", -1], dtype=object), [1, -1, 0, -1, -1], [3, 7]),
        (np.array([True, None, False], dtype=object), [1, -1, 0], [False, True]),
        (["b", "a"], [1, 0], ["a", "b"]),
    ],
)
def test_labels_of_every_type_are_numbered_and_missing_ones_are_no_class(values, expected, classes):
    found = class_names_of(values, None)
    assert found.tolist() == classes
    encoded = encode(values, found)
    assert encoded.dtype == np.int64
    assert encoded.tolist() == expected


def test_none_in_lower_case_is_a_class():
    assert class_names_of(np.array(["none", "None", "scratch"]), None).tolist() == ["none", "scratch"]


@pytest.mark.parametrize(
    ("values", "back"),
    [
        (np.array([10, 2, -1], dtype=np.int32), [10, 2, -1]),
        (np.array([10.0, 2.0, np.nan]), None),
        (np.array(["dog", "cat", ""]), ["dog", "cat", ""]),
        (np.array(["dog", None], dtype=object), ["dog", None]),
        (np.array([True, False]), [True, False]),
        (np.array([True, None], dtype=object), [True, None]),
        (np.array([3, 5], dtype=np.uint8), [3, 5]),
    ],
)
def test_decode_gives_the_users_labels_back(values, back):
    classes = class_names_of(values, None)
    decoded = decode(encode(values, classes), classes, like=values.dtype)
    if back is None:
        assert np.array_equal(decoded, values, equal_nan=True)
    else:
        assert decoded.tolist() == back
        assert decoded.dtype.kind == values.dtype.kind
        assert values.dtype.kind == "U" or decoded.dtype == values.dtype


def test_decode_has_room_for_missing_labels_in_types_that_have_none():
    labels = np.array([0, -1])
    assert decode(labels, np.array([False, True])).tolist() == [False, None]
    assert decode(labels, np.array([3, 5]), like=np.uint8).tolist() == [3, -1]
    assert decode(np.array([1]), np.array(["a", "a long name"]), like="<U1").tolist() == ["a long name"]


@given(st.lists(st.one_of(st.none(), st.integers(-5, 20)), min_size=1))
def test_encode_and_decode_are_reverse_for_numbers(values):
    expected = [-1 if value is None else value for value in values]
    array = np.array(values, dtype=object)
    if all(value == -1 for value in expected):
        with pytest.raises(DataError, match="no row has a label"):
            class_names_of(array, None)
        return
    classes = class_names_of(array, None)
    assert classes.tolist() == sorted({value for value in expected if value != -1})
    assert decode(encode(array, classes), classes).tolist() == expected


@given(st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=5), min_size=1))
def test_encode_and_decode_are_reverse_for_text(values):
    expected = ["" if value in ("nan", "NaN", "None") else value for value in values]
    if not any(expected):
        return
    classes = class_names_of(np.array(values), None)
    assert classes.tolist() == sorted(set(expected) - {""})
    assert decode(encode(np.array(values), classes), classes).tolist() == expected


def test_clean_labels_add_classes_and_whole_floats_match_whole_numbers():
    assert class_names_of(np.array([1, 3]), np.array([np.nan, 2.0])).tolist() == [1, 2, 3]
    assert class_names_of(np.array([0, 2]), np.array([True, False])).tolist() == [0, 1, 2]
    assert class_names_of(None, np.array(["b", "a"])).tolist() == ["a", "b"]
    assert class_names_of(np.array(["", ""]), np.array([4, 5])).tolist() == [4, 5]


def test_given_classes_set_the_order_and_the_type_follows_the_labels():
    assert class_names_of(np.array(["a", "b"]), None, ["b", "c", "a"]).tolist() == ["b", "c", "a"]
    assert class_names_of(np.array([1, 0]), None, ["1", "0"]).tolist() == [1, 0]
    assert class_names_of(np.array([True]), None, ["true", "false"]).tolist() == [True, False]
    assert encode(np.array([2, 10]), ["10", "2"]).tolist() == [1, 0]


def test_numbers_count_along_given_names_and_come_back_as_numbers():
    values = np.array([2, 0, -1])
    classes = class_names_of(values, None, ["plane", "car", "bird"])
    assert encode(values, classes).tolist() == [2, 0, -1]
    assert decode(encode(values, classes), classes, like=values.dtype).tolist() == [2, 0, -1]
    assert encode(np.array(["bird"]), classes).tolist() == [2]
    with pytest.raises(DataError, match=r"'3' is not among the 3 classes, in row 1"):
        encode(np.array([0, 3]), classes)


@pytest.mark.parametrize(
    ("given", "message"),
    [([], "class_names is empty"), (["a", "b", "a"], "more than once: a"), (["a", ""], "'' means a missing label")],
)
def test_given_classes_that_make_no_sense(given, message):
    with pytest.raises(UsageError, match=message):
        class_names_of(np.array(["a"]), None, given)


def test_a_label_outside_the_classes_names_its_rows_and_the_nearest_class():
    with pytest.raises(DataError, match=r"y: 'brid' is not among the 2 classes, in row 1, 3 .*did you mean 'bird'"):
        encode(np.array(["bird", "brid", "", "brid"]), np.array(["bird", "cat"]), "y")
    with pytest.raises(DataError, match="in row 1"):
        encode(np.array([1, 9]), np.array([1, 2]))


def test_labels_that_cannot_be_classes():
    with pytest.raises(DataError, match=r"label: row 1 holds 0\.5, which is not a class"):
        typed(np.array([1.0, 0.5]))
    with pytest.raises(DataError, match="row 0 holds inf"):
        typed(np.array([np.inf]))
    with pytest.raises(DataError, match=r"one label per row, got an array of shape \(2, 2\)"):
        typed(np.eye(2))
    with pytest.raises(DataError, match="text in row 1"):
        typed(np.array([1, "cat", None], dtype=object))
    with pytest.raises(DataError, match="complex128"):
        typed(np.array([1j]))
    with pytest.raises(DataError, match=r"clean_label holds text \(such as cat\) and label holds numbers"):
        class_names_of(np.array([1, 2]), np.array(["cat", ""]))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([2**63 + 5, 7], dtype=np.uint64),
        np.array([2**63 + 5, 7, None], dtype=object),
        np.array([10**25, -(10**25)], dtype=object),
    ],
)
def test_numbers_too_large_for_64_bits_are_names(labels):
    classes = class_names_of(labels, None)
    assert sorted(classes.tolist()) == sorted(str(value) for value in labels if value is not None)
    assert (encode(labels, classes) == -1).tolist() == [value is None for value in labels]
    assert decode(np.array([0, 1]), classes, np.uint64).tolist() == classes.tolist()


def test_numbers_in_text_that_are_too_large_stay_text():
    columns = [np.array([str(10**20), "1", ""]), np.array(["1", "", ""])]
    assert [column.tolist() for column in numbers_where_all_are(columns)] == [column.tolist() for column in columns]


@pytest.mark.parametrize("labels", [[1e17, 2.0], [np.datetime64("2020-01-01").item(), None]])
def test_what_looks_like_a_label_and_is_none(labels):
    with pytest.raises(DataError, match=r"use text or whole numbers|labels are text or whole numbers"):
        class_names_of(np.array(labels, dtype=object), None)


def test_columns_of_text_become_numbers_together_or_not_at_all():
    labels, clean = np.array(["3", "", "10"]), np.array(["3.0", "-1", ""])
    numbers, clean_numbers = numbers_where_all_are([labels, clean])
    assert numbers.tolist() == [3, -1, 10]
    assert clean_numbers.tolist() == [3, -1, -1]
    assert numbers_where_all_are([labels, None])[1] is None
    for other in (["cat", "", "3"], ["007", "", ""], ["1.5", "", ""]):
        kept, kept_other = numbers_where_all_are([labels, np.array(other)])
        assert kept.tolist() == ["3", "", "10"]
        assert kept_other.tolist() == other


def test_names_for_output_are_text():
    assert text_of(np.array([1, 20])) == ("1", "20")
