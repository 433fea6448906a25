"""Odd files: what looks fine and is read in a way that one would not expect is said."""

from __future__ import annotations

import datetime
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from PIL import Image

from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.readers.arrow_file import open_columns
from labelloop.errors import DataError
from labelloop.export.text_edits import Delimited
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
    row = lambda i: f"{['01234', '02345', '90210'][i % 3]},0{i},{i % 7},{'ab'[i % 2]}"  # noqa: E731
    path = table_of(tmp_path / "rows.csv", "shop,id,x,label", row)
    table = read_table(path)
    assert table.schema_summary.remarks == (
        "'shop' is read as numbers, without its leading zeros ('01234'); if it is a code, name it with"
        " category_columns",
    )
    assert table.ids[:2].tolist() == ["00", "01"]
    codes = read_table(path, ReadOptions(category_columns=("shop",)))
    assert codes.schema_summary.features[0].how == "category of 3"
    assert codes.schema_summary.remarks == ()


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


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1"])
def test_another_encoding_is_read_and_said(tmp_path, codec):
    rows = [f"{'café au lait' if i % 2 else 'thé vert'},{i},{'été' if i % 2 else 'hiver'}" for i in range(40)]
    path = tmp_path / "rows.csv"
    path.write_bytes(("boisson,x,label\n" + "\n".join(rows) + "\n").encode(codec))
    table = read_table(path)
    assert set(table.labels.tolist()) == {"été", "hiver"}
    name = "UTF-16" if "16" in codec else "Windows-1252 (Latin-1)"
    assert table.schema_summary.remarks[0] == f"not in UTF-8: read as {name}"


def test_an_encoding_that_cannot_be_known_is_refused(tmp_path):
    rows = [f"{'привет мир' if i % 2 else 'доброе утро'},{i},{'да' if i % 2 else 'нет'}" for i in range(40)]
    path = tmp_path / "rows.csv"
    path.write_bytes(("слово,x,label\n" + "\n".join(rows) + "\n").encode("cp1251"))
    with pytest.raises(DataError, match="not in UTF-8"):
        read_table(path)


def test_a_sheet_is_read_like_a_file(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["x", "kind", "when", "label", "clean_label"])
    for i in range(40):
        kind = None if i == 3 else "uv"[i % 2]
        sheet.append([i / 2, kind, datetime.datetime(2024, 1, 1 + i % 28), "ab"[i % 2], "ab"[i % 2] if i < 9 else None])
    book.create_sheet("notes").append(["nothing"])
    book.save(tmp_path / "rows.xlsx")
    table = read_table(tmp_path / "rows.xlsx")
    assert "the first sheet of 2 is read, 'Sheet'" in table.schema_summary.remarks
    assert table.column_names[:2] == ("x", "kind=u")
    assert table.labels[:2].tolist() == ["a", "b"]
    (tmp_path / "bad.xlsx").write_bytes(b"PK nonsense")
    with pytest.raises(DataError, match=r"cannot be read as \.xlsx"):
        read_table(tmp_path / "bad.xlsx")
    book.active.cell(1, 2).value = None
    book.save(tmp_path / "unnamed.xlsx")
    with pytest.raises(DataError, match="column 2 of sheet 'Sheet' has no name in the first row"):
        read_table(tmp_path / "unnamed.xlsx")


def test_an_export_of_another_encoding_is_refused_with_a_way_out(tmp_path):
    rows = [f"{i % 7 + (i % 2)},{'été' if i % 2 else 'hiver'}" for i in range(9)]
    path = tmp_path / "rows.csv"
    path.write_bytes(("x,label\n" + "\n".join(rows) + "\n").encode("latin-1"))
    with pytest.raises(DataError, match="not in UTF-8, so its rows cannot be edited in place"):
        Delimited(path, ",")


@pytest.mark.parametrize("codec", ["utf-16", "latin-1"])
@pytest.mark.parametrize("ending", [".json", ".jsonl"])
def test_json_in_another_encoding_is_read_and_said(tmp_path, codec, ending):
    rows = [{"when": f"2024-01-{1 + i % 28:02d}", "x": i, "label": "été" if i % 2 else "hiver"} for i in range(40)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path = tmp_path / f"rows{ending}"
    path.write_bytes(("\n".join(lines) if ending == ".jsonl" else f"[{','.join(lines)}]").encode(codec))
    with pytest.warns(UserWarning, match="not in UTF-8: read as"):
        table = read_table(path)
    assert set(table.labels.tolist()) == {"été", "hiver"}
    assert table.column_names[-1] == "x"  # columns keep their order beside dates


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"x": [1, "a"], "label": ["a", "b"]}', "column 'x' holds several types"),
        ('{"x": [1], "label": ["a", "b"]}', "columns of different lengths ('x' 1, 'label' 2)"),
        ('[{"x": 1, "x": 2, "label": "a"}]', "key 'x' occurs twice in an object"),
    ],
)
def test_json_that_cannot_be_a_table_names_the_column(tmp_path, content, words):
    (tmp_path / "rows.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(words)):
        read_table(tmp_path / "rows.json")


def test_dates_with_zones_are_the_same_from_text_and_from_a_file(tmp_path):
    texts = [f"2024-01-{1 + i % 28:02d}T{i % 24:02d}:00:00+02:00" for i in range(40)]
    columns = {"when": texts, "x": list(range(40)), "label": ["a", "b"] * 20}
    pa.csv.write_csv(pa.table(columns), tmp_path / "rows.csv")
    file, frame = read_table(tmp_path / "rows.csv"), read_table(pa.table(columns))
    np.testing.assert_array_equal(file.inputs, frame.inputs)
    for table in (file, frame):
        assert table.schema_summary.features[0].how.endswith("in UTC")


def test_labels_of_a_sheet_may_be_numbers_and_text(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["x", "label", "clean_label"])
    for i in range(40):
        book.active.append([i / 2, i % 2 if i % 3 else str(i % 2), str(i % 2) if i < 9 else None])
    book.save(tmp_path / "rows.xlsx")
    table = read_table(tmp_path / "rows.xlsx")
    assert table.labels[:4].tolist() == [0, 1, 0, 1]
    assert table.clean_labels[:2].tolist() == [0, 1]


def test_formulas_without_values_and_durations_of_a_sheet(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["took", "label"])
    for i in range(40):
        book.active.append([datetime.timedelta(hours=i, minutes=30), "ab"[i % 2]])
    book.save(tmp_path / "rows.xlsx")
    table = read_table(tmp_path / "rows.xlsx")
    assert table.inputs[[0, 30], 0].tolist() == [0.5, 30.5]
    assert "'took' is read as numbers: '10:30:00' as 10.5" in schema_text(table)
    for i in range(40):
        book.active.cell(i + 2, 1).value = f"=ROW({i})"
    book.save(tmp_path / "rows.xlsx")
    with pytest.raises(DataError, match=r"column 'took' holds formulas without values, such as =ROW\(0\)"):
        read_table(tmp_path / "rows.xlsx")


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_folder_with_the_name_of_a_file_is_no_file(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=f"{name}: no such file"):
        open_columns(tmp_path / name)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_arrow_is_given_no_object_of_python_to_read_from(tmp_path, monkeypatch, kind):
    """One of its threads may be the last to let go of it, which ends the process with a signal if Python has ended."""
    module, given = {"csv": pa.csv, "json": pa.json}[kind], []
    read = getattr(module, f"read_{kind}")
    monkeypatch.setattr(module, f"read_{kind}", lambda source, **how: given.append(source) or read(source, **how))
    path = tmp_path / {"csv": "rows.csv", "json": "rows.jsonl"}[kind]
    path.write_text("x,label\n1,a\n2,b\n" if kind == "csv" else '{"x": 1, "label": "a"}\n{"x": 2, "label": "b"}\n')
    assert read_table(path).labels.tolist() == ["a", "b"]
    assert given
    assert {type(source) for source in given} == {pa.BufferReader}
