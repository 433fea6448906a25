"""Odd files: what looks fine and is read in a way that one would not expect is said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError
from labelloop.workflows.summary import LONGEST, schema_text


def table_of(path, head, row, count=40):
    path.write_text("\n".join([head, *(row(i) for i in range(count))]) + "\n")
    return path


def pictures(root, *sizes):
    """Two classes of images, height and width in turn."""
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(4):
            height, width = sizes[number % len(sizes)]
            Image.fromarray(np.full((height, width, 3), 30 * number, np.uint8)).save(root / name / f"{number}.png")
    return root


@pytest.mark.parametrize(
    ("one", "other"),
    [("True", "1"), ("false", "0"), ("1e3", "1000"), ("1.50", "1.5"), ("0.5", ".5"), ("2020_21", "2020-21")],
)
def test_classes_that_are_one_value_in_two_forms_are_named(tmp_path, one, other):
    names = (one, other, "third")
    path = table_of(tmp_path / "rows.csv", "x,label", lambda i: f"{i},{names[i % 3]}")
    with pytest.warns(UserWarning, match=f"'{one}' .14 times. and '{other}' .13 times. count as different classes"):
        read_table(path)


@pytest.mark.parametrize(
    "names", [("1", "-2", "2"), ("1", "0", "10"), ("true", "yes", "no"), ("a-1", "a1", "1"), ("3_1", "31", "3")]
)
def test_classes_that_differ_are_not(tmp_path, names):
    read_table(table_of(tmp_path / "rows.csv", "x,label", lambda i: f"{i},{names[i % 3]}"))  # a warning is an error


def test_leading_zeros_that_are_lost_are_said(tmp_path):
    row = lambda i: f"{['01234', '02345', '90210'][i % 3]},0{i},{i % 7},0.5,{'ab'[i % 2]}"  # noqa: E731
    table = read_table(table_of(tmp_path / "rows.csv", "zip,id,x,half,label", row))
    assert table.schema_summary.remarks == (
        "'zip' is read as numbers, without its leading zeros ('01234'); if it is a code, put a letter before it",
    )
    assert table.ids[:2].tolist() == ["00", "01"]
    letters = table_of(tmp_path / "rows.csv", "zip,id,x,half,label", lambda i: f"z{row(i)}")
    assert read_table(letters).schema_summary.features[0].how == "category of 3"
    assert read_table(letters).schema_summary.remarks == ()


def test_numbers_that_single_precision_cannot_tell_apart_are_said(tmp_path):
    rows = np.arange(100)
    columns = {
        "milliseconds": rows * 1000 + 1_700_000_000_000,
        "offset": rows / 1000 + 1e6,
        "nanoseconds": rows * 7 + 1_700_000_000_000_000_000,  # more digits than double precision holds
        "seconds": rows * 1000 + 1_700_000_000,
        "fine": rows / 7,
        "label": ["ab"[i % 2] for i in rows],
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    table = read_table(tmp_path / "rows.parquet")
    left = {name: len(np.unique(table.inputs[:, place])) for place, name in enumerate(table.column_names)}
    assert left["seconds"] == left["fine"] == 100
    assert left["milliseconds"] < 90 > left["offset"]
    assert table.schema_summary.remarks == tuple(
        f"{name!r} holds 100 different numbers, but only {left[name]} of them differ in single precision (seven"
        " digits); subtract a constant, or write them as dates"
        for name in ("milliseconds", "offset", "nanoseconds")
    )


@pytest.mark.parametrize("name", ["label", "clean_label"])
def test_labels_that_are_lists_are_refused(tmp_path, name):
    columns = {"x": np.arange(4.0), "label": ["a", "b", "a", "b"], "clean_label": ["a", "b", None, None]}
    columns[name] = [["a"], ["b"], ["a"], ["b"]]
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=f"rows.parquet: column '{name}' is of type list.*which cannot hold labels"):
        read_table(tmp_path / "rows.parquet")


def test_classes_are_shown_in_one_line_of_bounded_length(tmp_path):
    long = "a" * 300
    path = table_of(tmp_path / "rows.csv", "x,label", lambda i: f'{i},"{[long, "two" + chr(10) + "lines"][i % 2]}"')
    text = schema_text(read_table(path))
    assert f"    {'a' * (LONGEST - 1)}…     20" in text
    assert "    two lines " in text
    assert long not in text


@pytest.mark.parametrize(
    ("sizes", "size", "said"),
    [
        (((8, 8), (8, 20)), None, "images of 2 sizes, from 8 x 8 to 8 x 20 pixels, are resized to 64 x 64"),
        (((90, 100),), None, "images of 90 x 100 pixels are resized to 64 x 64"),
        (((8, 8),), 16, "images of 8 x 8 pixels are resized to 16 x 16"),
        (((8, 8),), None, None),
        (((8, 20),), None, None),
    ],
)
def test_images_that_are_resized_are_said(tmp_path, sizes, size, said):
    table = read_table(pictures(tmp_path / "images", *sizes), ReadOptions(image_size=size))
    assert table.schema_summary.remarks == (() if said is None else (said,))


def test_images_deeper_than_their_class_are_said(tmp_path):
    root = pictures(tmp_path / "images", (8, 8))
    (root / "cat" / "tabby").mkdir()
    (root / "cat" / "0.png").rename(root / "cat" / "tabby" / "0.png")
    table = read_table(root)
    assert table.labels.tolist().count("cat") == 4
    assert table.schema_summary.remarks == (
        "1 images in folders below a class folder are of that class: cat/tabby/0.png",
    )
    assert read_table(root, ReadOptions(labels_required=False)).schema_summary.remarks == ()
