"""Data frames with categories, in Python as on the command line."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.data.table import from_arrays

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


def test_a_frame_of_numbers_stays_as_it_is():
    table = from_arrays(frame()[["size"]], ["a", "b"] * 20)
    assert (table.column_names, table.encoding) == (("size",), ())


def test_fit_and_predict_take_one(tmp_path):
    import labelloop

    data = frame()
    given = np.where(data["colour"] == "red", "r", "b")
    clean = np.where(np.arange(40) < 24, given, "")
    config = {"epochs": 4, "rounds": 1}
    result = labelloop.fit(data, given, clean, config=config, output_dir=tmp_path / "run", progress=False)
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
