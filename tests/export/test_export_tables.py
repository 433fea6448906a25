"""Tables out: the user's own rows, columns and bytes, with nothing changed but the labels that should."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pa_json
import pyarrow.parquet as pq
import pytest
from made_runs import made_run

from labelloop.runs.reviews import Answer, append_answers

BOM = b"\xef\xbb\xbf"
# Row 0 paired and verified wrong, row 1 corrected surely, row 2 corrected with doubt, row 3 unlabelled, row 4 good.
PLAIN = b"id,x,label,clean_label,note\na,1,cat,dog,n\nb,2,cat,,n\nc,3,dog,,n\nd,4,,,n\ne,5,dog,,n\nf,6,cat,cat,n\n"
CORRECTED = {1: ("dog", 0.95), 2: ("cat", 0.6), 3: ("cat", 0.9)}

CSV_FILES = {
    "plain": PLAIN,
    "windows": PLAIN.replace(b"\n", b"\r\n"),
    "old mac": PLAIN.replace(b"\n", b"\r"),
    "mark": BOM + PLAIN,
    "no last line end": PLAIN.rstrip(b"\n"),
    "blank lines": PLAIN.replace(b"b,2", b"\n\nb,2") + b"\n\n",
    "quoted label": PLAIN.replace(b"cat", b'"cat"'),
    "quoted all": b'"id","x","label","clean_label","note"\r\n'
    + b"".join(b",".join(b'"' + c + b'"' for c in line.split(b",")) + b"\r\n" for line in PLAIN.split(b"\n")[1:-1]),
    "commas and line ends in cells": PLAIN.replace(b",n\n", b',"one, ""two""\r\nthree"\n'),
    "a quote inside a cell": PLAIN.replace(b",n\n", b',5" disk\n'),
    "spaces": PLAIN.replace(b",n\n", b", n \n").replace(b"3,dog", b"3, dog "),
    "letters": PLAIN.replace(b"note", "Größe".encode()).replace(b"dog", "Hündin".encode()),
    "label first": b"label,x,clean_label\ncat,1,dog\ncat,2,\ndog,3,\n,4,\ndog,5,\ncat,6,cat\n",
    "label last": b"x,clean_label,label\n1,dog,cat\n2,,cat\n3,,dog\n4,,\n5,,dog\n6,cat,cat\n",
}


def cells(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    text = path.read_text(encoding="utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))


def corrected_for(data: bytes) -> dict[int, tuple[str, float]]:
    return {r: ("Hündin" if "Hündin".encode() in data and c == "dog" else c, p) for r, (c, p) in CORRECTED.items()}


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("name", CSV_FILES)
def test_a_label_is_replaced_and_no_other_byte(labelloop, tmp_path, name, suffix):
    data = CSV_FILES[name] if suffix == "csv" else CSV_FILES[name].replace(b",", b"\t")
    path, delimiter = tmp_path / f"rows.{suffix}", "," if suffix == "csv" else "\t"
    path.write_bytes(data)
    made_run(path, tmp_path / "run", corrected_for(data))
    done = labelloop("export", tmp_path / "run", "--to", suffix, "--replace", "--output", tmp_path / f"new.{suffix}")
    assert done.code == 0, done.err
    before, after = cells(path, delimiter), cells(tmp_path / f"new.{suffix}", delimiter)
    dog = "Hündin" if name == "letters" else "dog"
    assert [row["label"] for row in after] == [dog, dog, "cat", "cat", dog, "cat"]
    for old, new in zip(before, after, strict=True):
        assert {**old, "label": ""} == {**new, "label": ""}
    # The labels in the bytes, put back where they were, give the input: nothing else was touched.
    restored = labelloop("undo", tmp_path / f"new.{suffix}.undo.zip", "--output", tmp_path / f"back.{suffix}")
    assert restored.code == 0, restored.err
    assert (tmp_path / f"back.{suffix}").read_bytes() == data
    assert path.read_bytes() == data


def test_the_bytes_around_a_replaced_label(labelloop, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(BOM + b'x,label,clean_label\r\n1,"cat",dog\r\n02.50,cat,\r\n3,dog,""\r\n')
    made_run(path, tmp_path / "run", {1: ("dog", 0.9)})
    assert labelloop("export", tmp_path / "run", "--to", "csv", "--replace", "--output", tmp_path / "new.csv").code == 0
    expected = BOM + b'x,label,clean_label\r\n1,"dog",dog\r\n02.50,dog,\r\n3,dog,""\r\n'
    assert (tmp_path / "new.csv").read_bytes() == expected


def test_columns_are_added_and_no_other_byte(labelloop, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'x,label,clean_label\r\n1,"cat",dog\r\n02.50,cat,\r\n\r\n3,dog,""')
    made_run(path, tmp_path / "run", {1: ("dog", 0.875)})
    assert labelloop("export", tmp_path / "run", "--to", "csv", "--output", tmp_path / "new.csv").code == 0
    assert (tmp_path / "new.csv").read_bytes() == (
        b"x,label,clean_label,corrected_label,corrected_confidence,changed\r\n"
        b'1,"cat",dog,dog,1,false\r\n02.50,cat,,dog,0.875,true\r\n\r\n3,dog,"",dog,0.75,false'
    )


@pytest.mark.parametrize(
    ("flags", "labels"),
    [
        ([], ["dog", "dog", "cat", "cat", "dog", "cat"]),
        (["--min-confidence", "0.9"], ["dog", "dog", "dog", "cat", "dog", "cat"]),  # 0.9 itself counts
        (["--min-confidence", "0.94"], ["dog", "dog", "dog", "", "dog", "cat"]),
        (["--min-confidence", "1"], ["dog", "cat", "dog", "", "dog", "cat"]),  # the clean label always counts
        (["--action", "drop"], ["dog", "", "dog", "cat"]),  # a blank label is no wrong label
        (["--action", "drop", "--min-confidence", "0.9"], ["dog", "dog", "", "dog", "cat"]),
        (["--action", "keep"], ["dog", "cat", "dog", "", "dog", "cat"]),
    ],
)
def test_what_happens_to_changed_rows(labelloop, tmp_path, flags, labels):
    path = tmp_path / "rows.csv"
    path.write_bytes(PLAIN)
    made_run(path, tmp_path / "run", CORRECTED)
    for name, more in (("replaced", ["--replace"]), ("added", [])):
        out = tmp_path / f"{name}.csv"
        done = labelloop("export", tmp_path / "run", "--to", "csv", "--output", out, *flags, *more)
        assert done.code == 0, done.err
        column = "label" if more else "corrected_label"
        assert [row[column] for row in cells(out)] == labels
    kept = [row["id"] for row in cells(tmp_path / "added.csv")]
    given = {row["id"]: row["label"] for row in cells(path)}
    assert [row["label"] for row in cells(tmp_path / "added.csv")] == [given[name] for name in kept]


def test_the_confidence_is_that_of_the_label_beside_it(labelloop, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(PLAIN)
    made_run(path, tmp_path / "run", CORRECTED)
    flags = ("--min-confidence", "0.92", "--output", tmp_path / "new.csv")
    assert labelloop("export", tmp_path / "run", "--to", "csv", *flags).code == 0
    shown = [(r["corrected_label"], r["corrected_confidence"], r["changed"]) for r in cells(tmp_path / "new.csv")]
    assert shown == [
        ("dog", "1", "false"),  # a clean label is no correction
        ("dog", "0.95", "true"),
        ("dog", "0.4", "false"),  # kept as given, of which the run believes 0.4
        ("", "", "false"),
        ("dog", "0.75", "false"),
        ("cat", "1", "false"),
    ]


def test_every_change_is_on_record(labelloop, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(PLAIN)
    run = made_run(path, tmp_path / "run", CORRECTED)
    done = labelloop("export", run, "--to", "csv", "--replace", "--output", tmp_path / "new.csv")
    assert "2 labels corrected, 1 blank ones filled in, 1 replaced by their clean label, 0 rows dropped" in done.out
    rows = cells(tmp_path / "new.csv.changes.csv")
    assert {row.pop("run") for row in rows} == {str(run)}
    names = ("id", "row", "column", "before", "after", "confidence", "reason")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("a", "0", "label", "cat", "dog", "1", "verified"),
        ("b", "1", "label", "cat", "dog", "0.95", "corrected"),
        ("c", "2", "label", "dog", "cat", "0.6", "corrected"),
        ("d", "3", "label", "", "cat", "0.9", "had no label"),
    ]
    labelloop("export", run, "--to", "csv", "--action", "drop", "--output", tmp_path / "fewer.csv")
    dropped = [row for row in cells(tmp_path / "fewer.csv.changes.csv") if "dropped" in row["reason"]]
    assert [(row["id"], row["before"], row["after"]) for row in dropped] == [("b", "cat", ""), ("c", "dog", "")]


def test_rows_that_were_only_tested_on_stay_as_they_are(labelloop, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x,label,clean_label,split\n1,cat,dog,test\n2,cat,,train\n3,dog,dog,train\n")
    made_run(path, tmp_path / "run", {1: ("dog", 0.9)})
    labelloop("export", tmp_path / "run", "--to", "csv", "--replace", "--output", tmp_path / "new.csv")
    assert [row["label"] for row in cells(tmp_path / "new.csv")] == ["cat", "dog", "dog"]


def test_numbers_are_written_as_the_file_writes_them(labelloop, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x,label,clean_label\n1,3.0,\n2,7.0,\n3,,7.0\n4,3.0,3.0\n5,3.0,\n")
    made_run(path, tmp_path / "run", {0: ("7", 0.9)})
    assert labelloop("export", tmp_path / "run", "--to", "csv", "--replace", "--output", tmp_path / "new.csv").code == 0
    assert [row["label"] for row in cells(tmp_path / "new.csv")] == ["7.0", "7.0", "7.0", "3.0", "3.0"]


def parquet_rows(path: Path, kind: pa.DataType) -> pa.Table:
    table = pa.table(
        {
            "x": [1.0, 2.0, 3.0, 4.0],
            "label": pa.array(["cat", "cat", "dog", None], kind),
            "clean_label": ["dog", None, "dog", None],
            "tags": [["a"], [], None, ["b", "c"]],
        }
    ).replace_schema_metadata({"owner": "me"})
    pq.write_table(table, path, compression="gzip")
    return table


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_parquet_keeps_columns_types_and_metadata(labelloop, tmp_path, kind):
    path = tmp_path / "rows.parquet"
    before = parquet_rows(path, kind)
    made_run(path, tmp_path / "run", {1: ("dog", 0.9), 3: ("cat", 0.8)}, feature_columns=["x"])
    done = labelloop("export", tmp_path / "run", "--to", "parquet", "--replace", "--output", tmp_path / "new.parquet")
    assert done.code == 0, done.err
    after = pq.read_table(tmp_path / "new.parquet")
    assert after["label"].to_pylist() == ["dog", "dog", "dog", "cat"]
    assert after.schema.metadata[b"owner"] == b"me"
    assert (
        after.schema.field("label").type == pq.read_table(path).schema.field("label").type
    )  # as this pyarrow reads it
    assert after.drop_columns("label").equals(before.drop_columns("label"))
    back = labelloop("undo", tmp_path / "new.parquet.undo.zip", "--output", tmp_path / "back.parquet")
    assert back.code == 0, back.err
    assert (tmp_path / "back.parquet").read_bytes() == path.read_bytes()


def test_parquet_with_columns_added_becomes_json_lines_but_not_csv(labelloop, tmp_path):
    path = tmp_path / "rows.parquet"
    parquet_rows(path, pa.string())
    made_run(path, tmp_path / "run", {1: ("dog", 0.875)}, feature_columns=["x"])
    assert labelloop("export", tmp_path / "run", "--to", "jsonl", "--output", tmp_path / "new.jsonl").code == 0
    lines = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert lines[1] == {
        **{"x": 2.0, "label": "cat", "clean_label": None, "tags": []},
        **{"corrected_label": "dog", "corrected_confidence": 0.875, "changed": True},
    }
    refused = labelloop("export", tmp_path / "run", "--to", "csv", "--output", tmp_path / "new.csv")
    assert refused.code == 2
    assert "'tags' holds lists" in refused.err
    assert not list(tmp_path.glob("new.csv*"))


def test_csv_becomes_parquet(labelloop, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(PLAIN)
    made_run(path, tmp_path / "run", CORRECTED)
    assert labelloop("export", tmp_path / "run", "--to", "parquet", "--output", tmp_path / "new.parquet").code == 0
    table = pq.read_table(tmp_path / "new.parquet").to_pydict()
    assert table["x"] == [1, 2, 3, 4, 5, 6]
    assert table["corrected_label"] == ["dog", "dog", "cat", "cat", "dog", "cat"]
    assert table["changed"] == [False, True, True, False, False, False]  # not the clean row, nor the blank one


@pytest.mark.parametrize("to", ["parquet", "jsonl"])
def test_codes_that_look_like_numbers_stay_as_they_are_written(labelloop, tmp_path, to):
    path = tmp_path / "rows.csv"
    head = "id,zip,long,size,label,clean_label\n"
    path.write_text(head + f"007,00501,{10**20},1.50,01,\n008,10001,1.5,2,02,02\n009,,3,3,01,\n")
    made_run(path, tmp_path / "run", {0: ("02", 0.9)})
    new = tmp_path / f"new.{to}"
    assert labelloop("export", tmp_path / "run", "--to", to, "--replace", "--output", new).code == 0
    table = (pq.read_table(new) if to == "parquet" else pa_json.read_json(new)).to_pydict()
    assert table["id"] == ["007", "008", "009"]
    assert table["zip"] == ["00501", "10001", None]
    assert table["long"] == [str(10**20), "1.5", "3"]
    assert table["size"] == [1.5, 2, 3]
    assert table["label"] == ["02", "02", "01"]


@pytest.mark.parametrize("to", ["parquet", "jsonl"])
@pytest.mark.parametrize(("written", "kept"), [("true false", ["true", "false"]), ("True False", [True, False])])
def test_classes_called_true_and_false_keep_their_spelling(labelloop, tmp_path, to, written, kept):
    path, (yes, no) = tmp_path / "rows.csv", written.split()
    path.write_text(f"x,old,label,clean_label\n1,true,{yes},\n2,false,{no},{no}\n3,true,{yes},{yes}\n")
    made_run(path, tmp_path / "run", {0: (no, 0.9)})
    new = tmp_path / f"new.{to}"
    assert labelloop("export", tmp_path / "run", "--to", to, "--output", new).code == 0
    table = (pq.read_table(new) if to == "parquet" else pa_json.read_json(new)).to_pydict()
    assert table["old"] == [True, False, True]  # a feature is what it is
    assert table["label"] == [kept[0], kept[1], kept[0]]
    assert table["corrected_label"] == [kept[1], kept[1], kept[0]]


def test_json_lines_are_edited_in_place(labelloop, tmp_path):
    from labelloop.export.text_edits import spans_of, with_members, with_value

    line = ' {"a" : [1, {"label": "no"}], "label" :"cät" , "b": "}"} \r'
    spans = spans_of(line, "line 1")
    assert line[slice(*spans["label"])] == '"cät"'
    assert with_value(line, spans["label"], "hund") == line.replace('"cät"', '"hund"')
    assert with_members(line, {"c": None}) == ' {"a" : [1, {"label": "no"}], "label" :"cät" , "b": "}", "c": null} \r'
    assert with_members("{}", {"c": 1}) == '{"c": 1}'


def reviewed(run: Path, row: int, reviewer: str, label: str) -> Answer:
    return Answer(f"{reviewer}-{row}-{label}", row, str(row), reviewer, "label", label, "2026-01-01T00:00:00")


def test_decisions_of_reviewers_are_exported(labelloop, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(PLAIN)
    run = made_run(path, tmp_path / "run", CORRECTED)
    said = [(1, "ann", "cat"), (4, "ann", "cat"), (4, "bob", "cat"), (2, "ann", "cat"), (2, "bob", "dog")]
    append_answers(run, [reviewed(run, *each) for each in said])
    done = labelloop("export", run, "--to", "csv", "--replace", "--output", tmp_path / "new.csv")
    assert done.code == 0, done.err
    assert (
        "2 rows have the label that reviewers decided on; 1 rows on which they disagree have that of the run"
        in done.out
    )
    assert [row["label"] for row in cells(tmp_path / "new.csv")] == ["dog", "cat", "cat", "cat", "cat", "cat"]
    reasons = {line["row"]: line["reason"] for line in cells(tmp_path / "new.csv.changes.csv")}
    assert reasons == {"0": "verified", "2": "corrected", "3": "had no label", "4": "verified"}
    done = labelloop("export", run, "--to", "issues", "--output", tmp_path / "issues.csv")
    assert [row["is_label_issue"] for row in cells(tmp_path / "issues.csv")][1] == "false"  # the given label was right
    append_answers(run, [reviewed(run, 3, "eve", "unicorn")])
    done = labelloop("export", run, "--to", "csv", "--output", tmp_path / "b.csv")
    assert (done.code, "not of this run" in done.err) == (1, True)
