"""Named columns as numbers: medians, marks and categories worked by hand, fitted on training rows only."""

from __future__ import annotations

import json

import numpy as np
import pytest

from labelloop.data import encoding
from labelloop.data.encoding import Column, encode_columns, fit_category, fit_number, from_json, to_json
from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError

ALL = np.ones(6, dtype=bool)


def text(*values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def test_a_gap_is_the_median_of_the_training_rows_and_is_marked():
    values = np.array([1, 5, np.nan, 2, 100, 100], np.float32)
    column = fit_number("a", values, np.array([1, 1, 1, 1, 0, 0], bool))
    assert column == Column("a", "number", median=2.0, missing=True)
    names, encoded, remarks = encode_columns([column], {"a": values})
    assert names == ["a", "a=(missing)"]
    assert encoded.tolist() == [[1, 0], [5, 0], [2, 1], [2, 0], [100, 0], [100, 0]]
    assert encoded.dtype == np.float32
    assert remarks == []


def test_numbers_without_a_gap_stay_as_they_are_bit_for_bit():
    values = np.random.default_rng(0).normal(size=6).astype(np.float32)
    names, encoded, _ = encode_columns([fit_number("a", values, ALL)], {"a": values})
    assert names == ["a"]
    assert encoded[:, 0].tobytes() == values.tobytes()


def test_a_gap_that_training_did_not_have_is_the_median_and_is_said():
    column = fit_number("a", np.array([1, 2, 3, 4, 5, 6], np.float32), ALL)
    _, encoded, remarks = encode_columns([column], {"a": np.array([np.nan, 1], np.float32)})
    assert encoded.tolist() == [[3.5], [1]]
    assert remarks == ["'a' has 1 missing numbers (filled in with the training median)"]


def test_categories_rare_ones_and_missing_ones():
    values = text("red", "blue", "red", "green", None, "blue")
    column = fit_category("c", values, ALL)
    assert column == Column("c", "category", levels=("blue", "red"), other=True, missing=True)
    names, encoded, remarks = encode_columns([column], {"c": text("red", "green", "pink", None, "blue")})
    assert names == ["c=blue", "c=red", "c=(other)", "c=(missing)"]
    assert encoded.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    assert remarks == []


def test_a_new_category_where_training_had_no_rare_one_is_a_row_of_zeros_and_is_said():
    column = fit_category("c", text("a", "b", "a", "b", "a", "b"), ALL)
    assert not column.other
    _, encoded, remarks = encode_columns([column], {"c": text("z", "a", None)})
    assert encoded.tolist() == [[0, 0], [1, 0], [0, 0]]
    assert remarks == [
        "'c' has 1 missing values, and training had none",
        "'c' has categories that did not occur in training (z)",
    ]


def test_only_training_rows_are_looked_at():
    column = fit_category("c", text("a", "b", "a", "b", "z", "z"), np.array([1, 1, 1, 1, 0, 0], bool))
    assert column.levels == ("a", "b")


def test_through_json_and_back():
    columns = (Column("a", "number", median=float(np.float32(0.1)), missing=True), Column("c", "category", 0.0, ("x",)))
    assert from_json(json.loads(json.dumps(to_json(columns))), "here") == columns
    with pytest.raises(DataError, match="here: the description of the columns cannot be read"):
        from_json([{"name": "a", "levels": [], "size": 3}], "here")


def csv(path, *lines):
    path.write_text("\n".join(["size,colour,note,label,split", *lines]) + "\n")
    return path


ROWS = [f"{i},{'red' if i % 2 else 'blue'},words {i},{'x' if i % 3 else 'y'},train" for i in range(8)]


def test_a_file_is_encoded_and_another_in_the_same_way(tmp_path):
    path = csv(tmp_path / "a.csv", *ROWS, ",red,more,x,train", "999,,last,y,test")
    with (
        pytest.warns(UserWarning, match=r"'note' \(9 different values in 9 rows that share"),
        pytest.warns(UserWarning, match=r"'colour' has 1 missing values, and training had none"),  # of the test row
    ):
        table = read_table(path)
    assert table.column_names == ("size", "size=(missing)", "colour=blue", "colour=red")
    assert table.inputs[8].tolist() == [3.5, 1, 0, 1]  # the median of 0 .. 7, and not of the test row
    other = tmp_path / "b.csv"
    other.write_text("colour,size\nblue,\nred,4\ngreen,5\n")
    with pytest.warns(
        UserWarning, match=r"b\.csv: column 'colour' has categories that did not occur in training \(green\)"
    ):
        again = read_table(other, ReadOptions(encoding=table.encoding, labels_required=False))
    assert again.column_names == table.column_names
    assert again.inputs.tolist() == [[3.5, 1, 1, 0], [4, 0, 0, 1], [5, 0, 0, 0]]


def test_categories_that_are_numbers_in_the_other_file_stay_names(tmp_path):
    rows = [f"{i},{code},x" for i, code in enumerate(["A1", "007", "A1", "007"])]
    (tmp_path / "a.csv").write_text("\n".join(["n,code,label", *rows]) + "\n")
    table = read_table(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("n,code\n1,007\n2,007\n")
    again = read_table(tmp_path / "b.csv", ReadOptions(encoding=table.encoding, labels_required=False))
    assert again.inputs[:, 1:].tolist() == [[1, 0], [1, 0]]


def test_names_are_guessed_in_capitals_too(tmp_path):
    (tmp_path / "a.csv").write_text("ID,a,Label,Clean_Label\np,1,x,\nq,2,y,x\n")
    table = read_table(tmp_path / "a.csv")
    assert table.ids.tolist() == ["p", "q"]
    assert table.labels.tolist() == ["x", "y"]
    assert table.clean_labels.tolist() == ["", "x"]


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        {"id": f"2020-01-0{i + 1}", "n": i, "e": [i, 0.5], "label": "xy"[i % 2], "clean_label": None} for i in range(4)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    table = read_table(path)
    assert table.ids.tolist() == [row["id"] for row in rows]  # and no dates
    assert table.inputs.tolist() == [[0, 0.5, 0], [1, 0.5, 1], [2, 0.5, 2], [3, 0.5, 3]]  # the list, and n
    assert table.labels.tolist() == ["x", "y", "x", "y"]
    assert read_table(path, ReadOptions(feature_columns=["n"])).inputs[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "label": "x"}\n{"a": 2, "label": \n', "line 2 is not JSON"),
        ('{"a": 1, "label": "x"}\n[1, 2]\n', "line 2 is not an object"),
        ('{"a": 1, "label": "x"}\n{"a": "two", "label": "y"}\n', "'a' is a number in line 1 and text in line 2"),
        ("\n\n", "no rows"),
    ],
)
def test_a_broken_line_of_json_is_named(text, message, tmp_path):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / "a.jsonl")


@pytest.mark.parametrize("kind", ["number", "category", "date", "text"])
def test_a_gap_of_any_kind_that_training_did_not_have_is_said(kind):
    values = {
        "number": np.arange(4, dtype=np.float32),
        "category": np.array(["u", "v", "u", "v"], dtype=object),
        "date": np.array(["2024-01-02", "2024-03-04"] * 2, dtype=object),
        "text": np.array(["big red box", "old red hat", "big box", "red hat"], dtype=object),
    }[kind]
    train = np.ones(4, dtype=bool)
    column = {
        "number": lambda: encoding.fit_number("x", values, train),
        "category": lambda: encoding.fit_category("x", values, train),
        "date": lambda: encoding.fit_date("x", values, train, "%Y-%m-%d"),
        "text": lambda: encoding.fit_text("x", values, train, 2),
    }[kind]()
    assert encoding.encode_columns([column], {"x": values})[2] == []
    gaps = values.copy()
    gaps[1] = np.nan if kind == "number" else None
    (remark,) = encoding.encode_columns([column], {"x": gaps})[2]
    assert remark.startswith("'x' has 1 missing ")
