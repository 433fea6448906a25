"""Bad input through the command line: an exit code, a message that says where and what to do, and nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_tools import NAMES, QUICK, contents, labels_of, named_csv, numbers, run_json, settings, small, write_csv

DATA = small()
Files = list[object]


def replaced(values: list[str], **at: str) -> list[str]:
    """The values with those at rows r0, r1, ... replaced."""
    return [at.get(f"r{i}", value) for i, value in enumerate(values)]


def changed(column: str, row: int, value: float) -> Callable[[Path], Files]:
    def write(folder: Path) -> Files:
        numbers_there = numbers(DATA)[column].astype(float)
        numbers_there[row] = value
        return [named_csv(folder / "rows.csv", DATA, **{column: numbers_there})]

    return write


def no_clean_rows(folder: Path) -> Files:
    return [named_csv(folder / "rows.csv", DATA, clean_label=[""] * 120)]


def no_clean_column(folder: Path) -> Files:
    return [write_csv(folder / "rows.csv", {**numbers(DATA), "label": DATA.names(DATA.y)})]


def one_clean_row(folder: Path) -> Files:
    return [named_csv(folder / "rows.csv", DATA, clean_label=["ant"] + [""] * 119)]


def one_class_only(folder: Path) -> Files:
    labels = {"label": ["ant"] * 120, "clean_label": ["ant"] * 9 + [""] * 111}
    return [named_csv(folder / "rows.csv", DATA, **labels)]


def no_noisy_rows(folder: Path) -> Files:
    return [named_csv(folder / "rows.csv", DATA, label=[""] * 120)]


def label_outside_the_classes(folder: Path) -> Files:
    y = DATA.y.copy()
    y[33] = 3
    names = np.array(NAMES)
    np.savez(folder / "rows.npz", X=DATA.X, y=y, y_clean=DATA.y_clean, class_names=names)
    return [folder / "rows.npz"]


def clean_label_outside_the_classes(folder: Path) -> Files:
    clean = replaced(DATA.names(DATA.y_clean), r5="bea")
    labels: dict[str, Any] = {"y": np.array(DATA.names(DATA.y)), "y_clean": np.array(clean)}
    np.savez(folder / "rows.npz", X=DATA.X, class_names=np.array(NAMES), **labels)
    return [folder / "rows.npz"]


def fractional_label(folder: Path) -> Files:
    y = DATA.y.astype(float)
    y[33] = 0.5
    np.savez(folder / "rows.npz", X=DATA.X, y=y, y_clean=DATA.y_clean)
    return [folder / "rows.npz"]


def fewer_labels_than_rows(folder: Path) -> Files:
    np.savez(folder / "rows.npz", X=DATA.X, y=DATA.y[:-1], y_clean=DATA.y_clean)
    return [folder / "rows.npz"]


def fewer_clean_labels_than_rows(folder: Path) -> Files:
    for name, array in (("X", DATA.X), ("y", DATA.y), ("c", DATA.y_clean[:24])):
        np.save(folder / f"{name}.npy", array)
    return [folder / "X.npy", "--labels", folder / "y.npy", "--clean-file", folder / "c.npy"]


def infinite_array(folder: Path) -> Files:
    X = DATA.X.copy()
    X[4, 2] = np.inf
    np.savez(folder / "rows.npz", X=X, y=DATA.y, y_clean=DATA.y_clean)
    return [folder / "rows.npz"]


def text_among_numbers(folder: Path) -> Files:
    values = [str(value) for value in numbers(DATA)["b"]]
    return [named_csv(folder / "rows.csv", DATA, b=replaced(values, r9="1,5"))]


def embeddings_of_two_lengths(folder: Path) -> Files:
    rows = DATA.X.tolist()
    rows[6] = rows[6][:3]
    labels = {"label": DATA.names(DATA.y), "clean_label": DATA.names(DATA.y_clean)}
    pq.write_table(pa.table({"embedding": rows, **labels}), folder / "rows.parquet")
    return [folder / "rows.parquet"]


def duplicate_ids(folder: Path) -> Files:
    return [named_csv(folder / "rows.csv", DATA, id=replaced(DATA.ids, r8="row-3")), "--id-column", "id"]


def broken_line(folder: Path) -> Files:
    path = named_csv(folder / "rows.csv", DATA)
    lines = path.read_text().splitlines()
    lines[5] += ",more"
    path.write_text("\n".join(lines) + "\n")
    return [path]


def clean_rows_among_test_ids(folder: Path) -> Files:
    other = small(30, seed=5)
    ids = replaced([f"test-{i}" for i in range(30)], r2="row-1")
    test = {"id": ids, **numbers(other), "label": other.names(other.true)}
    return [named_csv(folder / "rows.csv", DATA), "--test", write_csv(folder / "test.csv", test)]


def clean_rows_among_test_rows(folder: Path) -> Files:
    other = small(30, seed=5)
    other.X[2] = DATA.X[1]
    test = {**numbers(other), "label": other.names(other.true)}
    return [named_csv(folder / "rows.csv", DATA), "--test", write_csv(folder / "test.csv", test)]


def held_out_file_without_labels(folder: Path) -> Files:
    test = write_csv(folder / "test.csv", numbers(small(30, seed=5)))
    return [named_csv(folder / "rows.csv", DATA), "--test", test]


def held_out_file_without_a_column(folder: Path) -> Files:
    other = small(30, seed=5)
    columns = {**numbers(other), "label": other.names(other.true)}
    del columns["c"]
    return [named_csv(folder / "rows.csv", DATA), "--test", write_csv(folder / "test.csv", columns)]


def held_out_label_outside_the_classes(folder: Path) -> Files:
    other = small(30, seed=5)
    labels = replaced(other.names(other.true), r4="dog")
    return [
        named_csv(folder / "rows.csv", DATA),
        "--test",
        write_csv(folder / "test.csv", {**numbers(other), "label": labels}),
    ]


def split_of_another_name(folder: Path) -> Files:
    return [named_csv(folder / "rows.csv", DATA, split=["train"] * 119 + ["dev"])]


def missing_file(folder: Path) -> Files:
    return [folder / "nowhere.csv"]


def missing_label_file(folder: Path) -> Files:
    np.save(folder / "X.npy", DATA.X)
    return [folder / "X.npy", "--labels", folder / "nowhere.npy"]


def missing_test_file(folder: Path) -> Files:
    return [named_csv(folder / "rows.csv", DATA), "--test", folder / "nowhere.csv"]


def missing_column(folder: Path) -> Files:
    return [named_csv(folder / "rows.csv", DATA), "--label-column", "lable"]


def unknown_ending(folder: Path) -> Files:
    (folder / "rows.ods").write_text("a,b\n")
    return [folder / "rows.ods"]


def empty_file(folder: Path) -> Files:
    (folder / "rows.csv").write_text("")
    return [folder / "rows.csv"]


def header_only(folder: Path) -> Files:
    (folder / "rows.csv").write_text("a,b,label,clean_label\n")
    return [folder / "rows.csv"]


def no_parquet(folder: Path) -> Files:
    (folder / "rows.parquet").write_text("PAR1 and then nothing")
    return [folder / "rows.parquet"]


def truncated_npz(folder: Path) -> Files:
    np.savez(folder / "rows.npz", X=DATA.X, y=DATA.y, y_clean=DATA.y_clean)
    content = (folder / "rows.npz").read_bytes()
    (folder / "rows.npz").write_bytes(content[: len(content) // 2])
    return [folder / "rows.npz"]


CASES = [
    (no_clean_rows, ["no clean rows", "clean_label", "verify"]),
    (no_clean_column, ["no clean rows", "verify"]),
    (one_clean_row, ["only one clean row", "verify more"]),
    (one_class_only, ["only one class", "'ant'"]),
    (no_noisy_rows, ["no noisy row", "add rows"]),
    (label_outside_the_classes, ["label", "'3'", "row 33", "correct it"]),
    (clean_label_outside_the_classes, ["clean_label", "'bea'", "row 5", "'bee'"]),
    (fractional_label, ["label", "row 33", "0.5"]),
    (fewer_labels_than_rows, ["120 rows", "119 labels", "one for every row"]),
    (fewer_clean_labels_than_rows, ["120 rows", "clean labels of shape (24,)", "-1 or a blank"]),
    (changed("a", 0, np.inf), ["column a", "row 0", "infinite"]),
    (changed("d", 5, 1e300), ["column d", "row 5", "too large"]),
    (infinite_array, ["column X[2]", "row 4"]),
    (text_among_numbers, ["'b'", "row 9", "'1,5'"]),
    (embeddings_of_two_lengths, ["'embedding'", "row 6"]),
    (duplicate_ids, ["row-3", "rows 3, 8", "id"]),
    (broken_line, ["line 6", "8 fields", "repair"]),
    (clean_rows_among_test_ids, ["row-1", "test.csv", "remove them"]),
    (clean_rows_among_test_rows, ["rows 2", "clean rows 1", "test.csv", "remove them"]),
    (held_out_file_without_labels, ["test.csv", "no label column"]),
    (held_out_file_without_a_column, ["test.csv", "'c'"]),
    (held_out_label_outside_the_classes, ["test.csv", "'dog'", "row 4", "among the labels of the training rows"]),
    (split_of_another_name, ["row 119", "'dev'", "'train' or 'test'"]),
    (missing_file, ["nowhere.csv", "no such file"]),
    (missing_label_file, ["nowhere.npy", "no such file"]),
    (missing_test_file, ["nowhere.csv", "no such file"]),
    (missing_column, ["no column 'lable'", "'label'"]),
    (unknown_ending, ["rows.ods", ".csv", ".parquet"]),
    (empty_file, ["rows.csv", "empty"]),
    (header_only, ["rows.csv", "no rows"]),
    (no_parquet, ["rows.parquet", "cannot be read as Parquet"]),
    (truncated_npz, ["rows.npz", "cannot be read"]),
]


@pytest.mark.parametrize("old_run", [False, True], ids=["new folder", "over an old run"])
@pytest.mark.parametrize(("write", "words"), CASES, ids=lambda value: getattr(value, "__qualname__", ""))
def test_is_named_and_loses_nothing(write, words, old_run, labelloop, tmp_path):
    run, flags = tmp_path / "run", [*settings(QUICK)]
    if old_run:  # to be replaced, but not by nothing
        run.mkdir()
        for name in ("run.json", "metrics.jsonl", "labels.parquet", "model.json"):
            (run / name).write_text("{}")
        flags.append("--overwrite")
    arguments = write(tmp_path)
    before = contents(tmp_path)
    ended = labelloop("fit", *arguments, "--output-dir", run, *flags)
    assert ended.code == 1
    assert ended.out == ""
    lines = ended.err.splitlines()
    assert lines[-1].startswith("labelloop: ")
    assert all(line.startswith("labelloop: warning: ") for line in lines[:-1])
    for word in words:
        assert word in lines[-1]
    assert contents(tmp_path) == before


def test_a_class_without_a_clean_row_is_a_warning_with_counts(labelloop, tmp_path):
    clean = ["" if name == "cat" else name for name in DATA.names(DATA.y_clean)]
    data = named_csv(tmp_path / "rows.csv", DATA, clean_label=clean)
    ended = labelloop("fit", data, "--output-dir", tmp_path / "run", *settings(QUICK))
    assert ended.code == 0
    assert ended.err.startswith("labelloop: warning: ")
    assert ended.err.count("\n") == 1
    assert "1 of 3 classes have no clean row (cat)" in ended.err
    assert "ant 8, bee 8, cat 0" in ended.err
    assert run_json(tmp_path / "run")["data"]["classes"] == list(NAMES)
    assert None not in labels_of(tmp_path / "run")["corrected_label"]


def test_a_noisy_row_among_the_test_rows_is_a_warning(labelloop, tmp_path):
    other = small(30, seed=5)
    other.X[2] = DATA.X[50]
    test = write_csv(tmp_path / "test.csv", {**numbers(other), "label": other.names(other.true)})
    data = named_csv(tmp_path / "rows.csv", DATA)
    ended = labelloop("fit", data, "--output-dir", tmp_path / "run", *settings(QUICK), "--test", test)
    assert ended.code == 0
    assert "warning: 1 of 30 test rows are also among the noisy training rows (test rows 2 " in ended.err


def test_an_output_folder_that_is_a_file_is_refused(labelloop, tmp_path):
    data = named_csv(tmp_path / "rows.csv", DATA)
    (tmp_path / "run").write_text("mine")
    before = contents(tmp_path)
    for place in (tmp_path / "run", tmp_path / "run" / "inside"):
        for flag in ([], ["--overwrite"]):
            ended = labelloop("fit", data, "--output-dir", place, *settings(QUICK), *flag)
            assert ended.code == 1
            assert str(tmp_path / "run") in ended.err
            assert contents(tmp_path) == before


@pytest.mark.parametrize("flag", [[], ["--overwrite"], ["--resume"]])
def test_files_that_no_run_wrote_are_not_replaced(flag, labelloop, tmp_path):
    data = named_csv(tmp_path / "rows.csv", DATA)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/labels.parquet").write_text("mine")
    before = contents(tmp_path)
    ended = labelloop("fit", data, "--output-dir", tmp_path / "run", *settings(QUICK), *flag)
    assert ended.code == 1
    assert str(tmp_path / "run") in ended.err
    assert contents(tmp_path) == before
