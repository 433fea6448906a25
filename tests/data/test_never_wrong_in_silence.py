"""Files that could be understood wrongly: they are understood, or asked about, and it is said."""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelloop.data.columns import ONLY_NAMED
from labelloop.data.problem import make_problem
from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError, UsageError


def rows(path, header, lines):
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


# --- 1. a class that is called -1, None or nan -------------------------------------------------------------------


@pytest.mark.parametrize(("third", "others"), [("-1", ("0", "1")), ("None", ("dent", "scratch")), ("nan", ("a", "b"))])
def test_a_third_class_that_looks_missing_is_asked_about(tmp_path, third, others):
    classes = [third, *others]
    lines = [f"{i},{classes[i % 3]},{classes[i % 3] if i < 6 else ''}" for i in range(30)]
    path = rows(tmp_path / "a.csv", "x,label,clean_label", lines)
    with pytest.raises(
        UsageError, match=f"'{third}' occurs 10 times among the given labels .* and 2 times among the clean"
    ):
        read_table(path)
    made = make_problem(read_table(path, ReadOptions(missing=())))
    assert sorted(map(str, made.classes)) == sorted(classes)
    assert (len(made.train), len(made.clean)) == (24, 6)
    assert (made.problem.train.labels >= 0).all()
    made = make_problem(read_table(path, ReadOptions(missing=(third,))))
    assert sorted(map(str, made.classes)) == sorted(others)
    assert (len(made.clean), int((made.problem.train.labels < 0).sum())) == (4, 10)


def test_minus_one_for_missing_needs_no_word_where_nothing_says_otherwise(tmp_path):
    lines = [f"{i},{i % 4 - 1 if i % 4 else 3},{i % 3 if i < 6 else ''}" for i in range(30)]
    table = read_table(rows(tmp_path / "a.csv", "x,label,clean_label", [*lines, "31,-1,"]))
    assert make_problem(table).classes.tolist() == [0, 1, 2, 3]
    clean_only = [f"{i},{i % 2},{i % 2 if i < 6 else -1}" for i in range(30)]
    table = read_table(rows(tmp_path / "b.csv", "x,label,clean_label", clean_only))
    assert make_problem(table).classes.tolist() == [0, 1]


def test_labels_of_plus_and_minus_one(tmp_path):
    pq.write_table(
        pa.table({"x": [1.0, 2, 3, 4], "label": [-1, 1, -1, 1], "clean_label": [-1, None, None, 1]}),
        tmp_path / "a.parquet",
    )
    with pytest.raises(UsageError, match="is it a class or a missing label"):
        read_table(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", ReadOptions(missing=()))
    made = make_problem(table)
    assert made.classes.tolist() == [-1, 1]
    assert (made.problem.clean.clean_labels.tolist(), made.clean.tolist()) == ([0, 1], [0, 3])


# --- 2. given and clean labels that share no class ---------------------------------------------------------------


@pytest.mark.parametrize("values", [["x", ""], ["2024-01-05", ""], ["Ada", "Bob"], ["1", ""], ["yes", "no"]])
def test_a_column_verified_that_holds_no_class_is_not_guessed(tmp_path, values):
    lines = [f"{i},{i % 2},{values[i % 2]}" for i in range(8)]
    path = rows(tmp_path / "a.csv", "x,label,verified", lines)
    with pytest.warns(UserWarning, match="not its label, so it is not used; name the column"):
        table = read_table(path)
    assert table.clean_labels is None
    assert "verified" in [out.column for out in table.schema_summary.left_out]


def test_a_column_verified_that_holds_classes_is(tmp_path):
    lines = [f"{i},{'ab'[i % 2]},{'ab'[i % 2] if i < 4 else ''}" for i in range(8)]
    assert read_table(rows(tmp_path / "a.csv", "x,label,verified", lines)).clean_labels.tolist()[:2] == ["a", "b"]


def test_labels_that_share_no_class_are_an_error(tmp_path):
    lines = [f"{i},{['cat', 'dog'][i % 2]},{['Cat', 'Dog'][i % 2] if i < 4 else ''}" for i in range(8)]
    path = rows(tmp_path / "a.csv", "x,label,clean_label", lines)
    with pytest.raises(
        DataError, match=r"share no class: .*'cat' \(4 times\) and 'Cat' \(2 times\) differ only in how"
    ):
        read_table(path)


def test_variants_of_a_name_are_named_with_counts(tmp_path):
    lines = ["1,cat,cat", "2,Cat,", "3,dog,dog", "4,cat,"]
    with pytest.warns(UserWarning, match=r"'cat' \(3 times\) and 'Cat' \(1 times\) count as different classes"):
        read_table(rows(tmp_path / "a.csv", "x,label,clean_label", lines))


def test_numbers_with_many_values_are_questioned(tmp_path):
    lines = [f"{i % 7},{2700 + 25 * (i % 98)}" for i in range(330)]
    path = rows(tmp_path / "a.csv", "x,target", lines)
    with pytest.raises(UsageError, match=r"'target' holds 98 different numbers in 330 rows .*like a measurement"):
        read_table(path)
    with pytest.warns(UserWarning, match="every number becomes its own class"):
        read_table(path, ReadOptions(label_column="target"))


# --- 3. images ---------------------------------------------------------------------------------------------------


def test_sixteen_bits_keep_their_brightness(tmp_path):
    image = pytest.importorskip("PIL.Image")
    from labelloop.data.pillow import to_rgb

    eight = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    image.fromarray(eight.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    for mode, values in (("F", eight.astype(np.float32) / 255), ("I", eight.astype(np.int32) * 257)):
        picture = image.fromarray(values)
        assert picture.mode == mode
        np.testing.assert_allclose(np.asarray(to_rgb(picture))[..., 0], eight, atol=1)
    with image.open(tmp_path / "deep.png") as picture:
        np.testing.assert_allclose(np.asarray(to_rgb(picture))[..., 0], eight, atol=1)


def test_images_are_turned_upright(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255  # the upper half is white
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        image.fromarray(pixels).save(tmp_path / name / "plain.png")
    exif = image.Exif()
    exif[0x0112] = 3  # upside down
    image.fromarray(pixels[::-1].copy()).save(tmp_path / "a" / "turned.png", exif=exif)
    table = read_table(tmp_path)
    assert table.inputs[:, 0, 0, 0].tolist() == [255, 255, 255]


def test_links_to_nothing_are_among_the_unreadable(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        image.new("RGB", (4, 4)).save(tmp_path / name / "one.png")
    os.symlink(tmp_path / "gone.png", tmp_path / "a" / "two.png")
    table = read_table(tmp_path)
    assert [(bad.row, bad.reason) for bad in table.unreadable] == [(1, "no such file")]
    assert table.ids.tolist() == ["a/one.png", "a/two.png", "b/one.png"]


# --- 4. a column of lists ----------------------------------------------------------------------------------------


def test_a_list_of_numbers_is_one_more_feature(tmp_path):
    boxes = [[i, i, i + 1, i + 2] for i in range(6)]
    table = {"box": boxes, "size": list(range(6)), "label": ["a", "b"] * 3}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    found = read_table(tmp_path / "a.parquet")
    assert found.column_names == ("box[0]", "box[1]", "box[2]", "box[3]", "size")
    assert [use.column for use in found.schema_summary.features] == ["box", "size"]
    again = read_table(tmp_path / "a.parquet", ReadOptions(embedding_column="box", encoding=found.encoding))
    assert again.column_names == found.column_names
    pq.write_table(pa.table({"embedding" if k == "box" else k: v for k, v in table.items()}), tmp_path / "b.parquet")
    found = read_table(tmp_path / "b.parquet")
    assert found.column_names == ("embedding[0]", "embedding[1]", "embedding[2]", "embedding[3]", "size")
    found = read_table(tmp_path / "b.parquet", ReadOptions(embedding_column="embedding"))
    assert found.column_names == ("embedding[0]", "embedding[1]", "embedding[2]", "embedding[3]")
    assert [(out.column, out.why) for out in found.schema_summary.left_out] == [("size", ONLY_NAMED)]


# --- 5. dates and junk -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("28/02/2024", "01/03/2024", "dd/mm/yyyy"),
        ("02/28/2024", "03/01/2024", "mm/dd/yyyy"),
        ("2024-02-28", "2024-03-01", "yyyy-mm-dd"),
        ("28.02.2024", "01.03.2024", "dd.mm.yyyy"),
        ("Feb 28 2024", "Mar 1 2024", "mon dd yyyy"),
        ("28-Feb-2024", "01-Mar-2024", "dd-mon-yyyy"),
        ("28 February 2024", "1 March 2024", "dd month yyyy"),
    ],
)
def test_dates_become_their_parts(tmp_path, first, second, words):
    lines = [f"{[first, second][i % 2]},{i},{'ab'[i % 2]}" for i in range(20)]
    path = rows(tmp_path / "a.csv", "day,x,label", [*lines, ",20,a"])
    table = read_table(path)
    assert table.column_names == ("day.year", "day.month", "day.day", "day.weekday", "day=(missing)", "x")
    assert table.inputs[0].tolist() == [2024, 2, 28, 2, 0, 0]
    assert table.inputs[1].tolist() == [2024, 3, 1, 4, 0, 1]
    assert table.inputs[20, 4] == 1
    assert table.schema_summary.features[0].how == f"date {words}, as year, month, day, weekday"
    again = read_table(path, ReadOptions(encoding=table.encoding))
    np.testing.assert_array_equal(again.inputs, table.inputs)


def test_a_junk_column_is_left_out_and_said(tmp_path):
    lines = [f"{i},v{i},v{i % 90},{'abc'[i % 3]},{'ab'[i % 2]}" for i in range(300)]
    with pytest.warns(UserWarning, match="'junk' .300 different values in 300 rows that share no words, like ids"):
        table = read_table(rows(tmp_path / "a.csv", "x,junk,many,colour,label", lines))
    assert [(use.column, use.how) for use in table.schema_summary.features] == [
        ("x", "number"),
        ("many", "category of 90"),
        ("colour", "category of 3"),
    ]
    assert [out.column for out in table.schema_summary.left_out] == ["junk"]


# --- other forms of input ----------------------------------------------------------------------------------------


def test_one_question_mark_in_a_column_of_numbers(tmp_path):
    lines = [f"{i},{'ab'[i % 2]}" for i in range(20)]
    path = rows(tmp_path / "a.csv", "x,label", [*lines, "?,a"])
    with pytest.raises(DataError, match=r"'x' is not numbers: row 20 holds '\?' .* say --na='\?' if it means"):
        read_table(path)
    several = rows(tmp_path / "b.csv", "x,label", [*lines * 2, "?,a", "-,b", "?,b", "n.a.,b"])
    message = r"row 40 holds '\?', other rows '-', 'n.a.' .* say --na='\?,-,n.a.' if it means"
    with pytest.raises(DataError, match=message):
        read_table(several)
    assert read_table(path, ReadOptions(na=("?",))).column_names == ("x", "x=(missing)")


def test_packed_files_and_json(tmp_path):
    text = "x,label\n1,a\n2,b\n"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pa.output_stream(tmp_path / "a.csv.zst", compression="zstd") as stream:
        stream.write(text.encode())
    records = [{"x": 1, "label": "a"}, {"x": 2, "label": "b"}]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    (tmp_path / "a.json").write_text(json.dumps(records))
    (tmp_path / "b.json").write_text(json.dumps({"x": [1, 2], "label": ["a", "b"]}))
    for name in ("a.csv.gz", "a.csv.zst", "a.jsonl.gz", "a.json", "b.json"):
        table = read_table(tmp_path / name)
        assert (table.inputs.tolist(), table.labels.tolist()) == ([[1], [2]], ["a", "b"]), name
    (tmp_path / "c.json").write_text('{"x": 1}')
    with pytest.raises(DataError, match="not a list of objects, one per row"):
        read_table(tmp_path / "c.json")
    (tmp_path / "d.csv.gz").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be decompressed"):
        read_table(tmp_path / "d.csv.gz")


def test_a_decimal_comma_beside_semicolons(tmp_path):
    table = read_table(rows(tmp_path / "a.csv", "x;label", ["1,5;a", "2;b"]))
    assert table.inputs.tolist() == [[1.5], [2]]
    assert table.schema_summary.remarks == ("fields are separated by ';' and a comma in numbers",)


def test_every_column_is_spoken_of(tmp_path):
    lines = [f"r{i},{i},{'uv'[i % 2]},text number {i},{'ab'[i % 2]},,train" for i in range(30)]
    with pytest.warns(UserWarning, match="not among the features"):
        table = read_table(rows(tmp_path / "a.csv", "id,x,kind,note,label,clean_label,split", lines))
    said = table.schema_summary
    assert [(use.what, use.column, use.guessed) for use in said.uses] == [
        ("given label", "label", True),
        ("clean label", "clean_label", True),
        ("id", "id", True),
        ("split", "split", True),
    ]
    assert [use.column for use in said.features] == ["x", "kind"]
    assert [out.column for out in said.left_out] == ["note"]
