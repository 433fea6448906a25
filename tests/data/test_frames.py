"""Data frames with categories, in Python as on the command line."""

from __future__ import annotations

import warnings
from datetime import timedelta

import numpy as np
import pytest

from labelloop.data.frames import in_text
from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.table import from_arrays
from labelloop.errors import DataError

pandas = pytest.importorskip("pandas")


def frame(count=40):
    return pandas.DataFrame(
        {
            "size": np.arange(count) / 10,
            "colour": pandas.Categorical(["red", "blue"] * (count // 2)),
            "kind": ["u", "v", None, "u"] * (count // 4),
            "day": pandas.date_range("2024-01-01", periods=count),
        }
    )


def test_categories_text_and_dates_become_numbers():
    table = from_arrays(frame(), ["a", "b"] * 20)
    assert table.column_names[:3] == ("size", "colour=blue", "colour=red")
    assert "day.month" in table.column_names
    again = from_arrays(frame().iloc[:3], encoding=table.encoding)
    np.testing.assert_array_equal(again.inputs, table.inputs[:3])


def read(more, count=60):
    """The inputs made of one further column, their names, and all that is said."""
    given = np.array(["a", "b"] * (count // 2))
    data = pandas.DataFrame({"size": np.arange(count) % 7 / 10, "more": more, "label": given})
    data["clean_label"] = np.where(np.arange(count) % 3 == 0, given, "")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        table = read_table(data)
    return table, [*table.schema_summary.remarks, *(str(warning.message) for warning in found)]


@pytest.mark.parametrize(
    ("more", "kind", "names"),
    [
        (pandas.Categorical(np.arange(60) % 4), "category", ["more=0", "more=1", "more=2", "more=3"]),
        (pandas.Categorical(np.arange(60) % 4, ordered=True), "number", ["more"]),  # steps on a scale
        (pandas.cut(np.arange(60) % 10, 2), "category", ["more=(-0.009, 4.5]", "more=(4.5, 9.0]"]),
        (pandas.to_timedelta(np.arange(60) % 7, unit="h"), "number", ["more"]),
        (pandas.period_range("2000-01", periods=60, freq="M"), "date", ["more.year", "more.month"]),
        (pandas.arrays.SparseArray(np.arange(60) % 9 // 8), "number", ["more"]),
        ([2**70 + i % 5 for i in range(60)], "number", ["more"]),
        ([[1, 2.5, "3"][i % 7 % 3] for i in range(60)], "number", ["more"]),
        ([[1, "x", "y"][i % 7 % 3] for i in range(60)], "category", ["more=1", "more=x", "more=y"]),
        ([[1, "x", pandas.NA][i % 7 % 3] for i in range(60)], "category", ["more=1", "more=x", "more=(missing)"]),
    ],
)
def test_types_of_pandas_that_no_file_has(more, kind, names):
    table, told = read(more)
    assert [column.kind for column in table.encoding if column.name == "more"] == [kind]
    assert list(table.column_names[1 : 1 + len(names)]) == names
    mixed = "the data frame: column 'more' holds values of type int"
    assert any(mixed in words and "it is read as text" in words for words in told) == isinstance(more, list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = from_arrays(pandas.DataFrame({"size": 0.1, "more": more}), encoding=table.encoding)
    np.testing.assert_array_equal(again.inputs[:, 1:], table.inputs[:, 1:])


def test_a_duration_is_in_seconds_and_a_column_of_gaps_is_empty():
    assert read(pandas.to_timedelta(np.arange(60) % 7, unit="h"))[0].inputs[:, 1].max() == 6 * 3600
    table, told = read([np.nan] * 60)
    assert table.column_names == ("size",)
    assert "the data frame: not among the features: 'more' (empty)" in told


def test_values_that_are_neither_text_nor_numbers_are_refused_with_their_row():
    message = "column 'more' holds values of type int and dict, such as {'a': 1} in row 4"
    with pytest.raises(DataError, match=message):
        read([{"a": 1} if i == 4 else i for i in range(60)])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ((np.arange(60) % 2 == 1) | (np.arange(60) % 6 == 0), "nearly equal to the given label"),
        (np.where(np.arange(60) % 3 == 0, 5, -1), "known on clean rows only"),
        (np.where(np.arange(60) % 9 == 0, -999, np.arange(60) % 20), "-999"),
    ],
)
def test_numbers_beside_labels_are_read_as_a_file_is(more, why):
    given = np.array(["a", "b"] * 30)
    given[::6] = "b"  # wrong
    clean = np.where(np.arange(60) % 3 == 0, np.array(["a", "b"] * 30), "")
    data = pandas.DataFrame({"size": np.arange(60) % 7 / 10, "more": more})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        apart = from_arrays(data, given, clean)
        whole = read_table(data.assign(label=given, clean_label=clean))
    assert apart.column_names == whole.column_names
    np.testing.assert_array_equal(apart.inputs, whole.inputs)
    said = [*apart.schema_summary.remarks, *(out.why for out in apart.schema_summary.left_out)]
    assert any(why in words for words in said)


def test_a_frame_of_numbers_stays_as_it_is():
    table = from_arrays(frame()[["size"]], ["a", "b"] * 20)
    assert (table.column_names, table.encoding) == (("size",), ())


def test_fit_and_predict_take_one(tmp_path):
    import labelloop

    data = frame()
    given = np.where(data["colour"] == "red", "r", "b")
    clean = np.where(np.arange(40) < 24, given, "")
    config = {"epochs": 1, "rounds": 0, "learners": "networks"}
    run = {"output_dir": tmp_path / "run", "report": False, "progress": False}
    result = labelloop.fit(data, given, clean, config=config, **run)
    assert result.model.predict(data).shape == (40,)
    np.testing.assert_array_equal(labelloop.load_model(tmp_path / "run").predict(data), result.model.predict(data))


def test_test_rows_have_the_columns_of_the_rows_that_were_fitted():
    import labelloop

    data, labels = frame()[["size", "colour"]], np.array(["a", "b"] * 20)
    y_clean = np.where(np.arange(40) < 20, labels, "")
    few = data.iloc[::2].assign(size=lambda rows: rows["size"] + 50)  # red ones alone
    few["colour"] = few["colour"].astype(str)
    result = labelloop.fit(
        data, labels, y_clean, X_test=few, y_test=labels[::2],
        method="cross-entropy", config={"epochs": 1}, progress=False,
    )  # fmt: skip
    assert "test_accuracy" in result.history[-1]
    assert result.record.data["test"]["rows"] == 20


def test_dates_of_a_frame_and_of_a_text_are_the_same_to_a_model():
    days, made = frame()["day"], {}
    for name, column in {"times": days, "texts": days.dt.strftime("%Y-%m-%d")}.items():
        made[name] = from_arrays(frame().assign(day=column), ["a", "b"] * 20)
    for fitted in made.values():
        for column in (days, days.dt.strftime("%Y-%m-%d"), days.dt.strftime("%Y-%m-%dT%H:%M")):
            again = from_arrays(frame().assign(day=column), encoding=fitted.encoding)
            np.testing.assert_array_equal(again.inputs, fitted.inputs)


@pytest.mark.parametrize("inputs", ["rows.csv", {"x": [1, 2]}])
def test_what_is_no_rows_is_refused(inputs):
    with pytest.raises(DataError, match="give a data frame, an array or a dataset"):
        from_arrays(inputs)


def test_clean_labels_of_another_length_are_refused():
    with pytest.raises(DataError, match="40 rows of inputs, but 9 clean_labels"):
        from_arrays(frame(), ["a", "b"] * 20, ["a"] * 9)


def test_a_lazy_frame_is_read_without_a_warning_and_a_type_that_arrow_lacks_is_refused():
    polars = pytest.importorskip("polars")
    data = polars.DataFrame({"size": range(40), "label": ["a", "b"] * 20})
    with warnings.catch_warnings():
        warnings.simplefilter("error", polars.exceptions.PerformanceWarning)
        assert len(read_table(data.lazy())) == 40
    with pytest.raises(DataError, match="a type of column that Arrow does not have"):
        read_table(data.with_columns(polars.col("size").cast(polars.Int128)))


@pytest.mark.parametrize("kind", [">f8", np.longdouble])
def test_numbers_that_arrow_does_not_hold_are_numbers_and_no_text(kind):
    values = np.where(np.arange(60) % 7, np.arange(60) / 8, np.nan)
    table, said = read(values.astype(kind))
    expected, expected_said = read(values)
    np.testing.assert_array_equal(table.inputs, expected.inputs)
    assert said == expected_said
    assert not any("read as text" in words for words in said)


def test_an_array_in_every_row_is_refused_with_its_type():
    with pytest.raises(DataError, match=r"(?s)column 'more' holds values of type ndarray, .* in row 0"):
        read([np.ones((2, 2)) for _ in range(60)])


def test_dates_beyond_the_calendar_of_python_are_no_traceback():
    late = np.array(["20000-01-01", "20001-01-01"], dtype="datetime64[s]")[np.arange(60) % 2]
    table, _ = read(late)
    assert "more=20000-01-01 00:00:00" in table.column_names


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("007", "008", "019"), "without its leading zeros ('007')"),
        (("01.02", "28.02", "13.11"), "without its leading zeros ('01.02')"),
        (("1.1", "1.9", "1.10"), "'1.10' as 1.1; if these are versions"),
    ],
)
def test_digits_of_texts_that_are_lost_in_numbers_are_said(values, words):
    _, said = read([values[i % 7 % 3] for i in range(60)])
    assert any(words in line and "name it with category_columns" in line for line in said), said


def test_na_is_about_dates_too():
    days = pandas.to_datetime(["9999-12-31" if i % 7 == 0 else f"2024-01-{1 + i % 28:02d}" for i in range(60)])
    rows = {"day": days, "when": days.date, "label": ["a", "b"] * 30, "clean_label": ["a", "b", ""] * 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = read_table(pandas.DataFrame(rows), ReadOptions(na=("9999-12-31", "9999-12-31 00:00:00")))
    blank = {feature.column: feature.blank for feature in table.schema_summary.features}
    assert blank == {"day": 9, "when": 9}


@pytest.mark.parametrize(("hours", "text"), [(1.5, "1:30:00"), (-1.5, "-1:30:00"), (100, "100:00:00"), (0, "0:00:00")])
def test_a_duration_in_a_cell_is_hours_minutes_and_seconds(hours, text):
    assert in_text(timedelta(hours=hours)) == text
