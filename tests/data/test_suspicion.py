"""Columns that may give the label away are named before training, with what was decided and the flag to overrule it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import labelloop
from labelloop import DataError
from labelloop.cli import main
from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.suspicion import sentinels

COUNT = 120
RNG = np.random.default_rng(0)
TRUE = np.arange(COUNT) % 3
GIVEN = np.where(RNG.random(COUNT) < 0.2, (TRUE + 1) % 3, TRUE)
NAMES = np.array(["ant", "bee", "cat"])
CLEAN = np.arange(COUNT) % 4 == 0
SIZE = (TRUE + RNG.normal(size=COUNT)).round(3)


def table(path, **more):
    """A file with labels, a number, and further columns made by row."""
    head = ["size", *more, "label", "clean_label"]
    lines = [
        [str(SIZE[i]), *(str(make(i)) for make in more.values()), NAMES[GIVEN[i]], NAMES[TRUE[i]] if CLEAN[i] else ""]
        for i in range(COUNT)
    ]
    path.write_text("\n".join(",".join(line) for line in [head, *lines]) + "\n", encoding="utf-8")
    return path


def read(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_table(path, ReadOptions(**options))


def left_out(found):
    return {out.column: out.why for out in found.schema_summary.left_out}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda i: NAMES[TRUE[i]] if CLEAN[i] else "pending", "known on clean rows only: 'pending' in the others"),
        (lambda i: NAMES[TRUE[i]] if CLEAN[i] else "", "known on clean rows only"),
        (lambda i: f"2024-01-{1 + i % 28:02d}" if CLEAN[i] else "", "known on clean rows only"),
        (lambda i: i % 7 if CLEAN[i] else -1, "known on clean rows only: '-1' in the others"),
        (lambda i: "yes" if CLEAN[i] else f"no{i % 5}", "reveals which rows are clean: 'yes' in these"),
        (lambda i: int(CLEAN[i]), "known on clean rows only: '0' in the others"),
    ],
)
def test_what_is_known_on_clean_rows_only_is_never_used(tmp_path, make, why):
    path = table(tmp_path / "a.csv", leak=make)
    for options in ({}, {"trust_columns": ("leak",)}):
        found = read(path, **options)
        assert found.column_names == ("size",)
        assert left_out(found) == {"leak": why}
    with pytest.raises(DataError, match="column 'leak' cannot be a feature"):
        read(path, feature_columns=("size", "leak"))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda i: GIVEN[i], "nearly equal to the given label"),
        (lambda i: f"class {GIVEN[i]}", "nearly equal to the given label"),
        (lambda i: GIVEN[i] if i else 2, "nearly equal to the given label"),
        (lambda i: NAMES[TRUE[i]], "nearly equal to the clean label"),
    ],
)
def test_a_copy_is_left_out_unless_it_is_trusted(tmp_path, make, why):
    path = table(tmp_path / "a.csv", leak=make)
    found = read(path)
    assert found.column_names == ("size",)
    assert left_out(found)["leak"].startswith(why)
    assert "trust_columns" in left_out(found)["leak"]
    assert len(read(path, trust_columns=("leak",)).column_names) > 1


def test_a_perfect_column_under_other_names_is_used_and_said(tmp_path):
    found = read(table(tmp_path / "a.csv", legs=lambda i: (2, 4, 6)[TRUE[i]]))
    assert found.column_names == ("size", "legs")
    assert any(
        "'legs' predicts the clean label of nearly every row that has one" in r for r in found.schema_summary.remarks
    )


def test_a_constant_is_named(tmp_path):
    found = read(table(tmp_path / "a.csv", one=lambda i: 7, word=lambda i: "same"))
    assert left_out(found) == {"word": "the same value in every row"}
    assert "'one' holds the same number in every row, which carries no information" in found.schema_summary.remarks


@pytest.mark.parametrize("odd", [-999, 99999, -99, 9999])
def test_a_sentinel_is_missing_and_said(tmp_path, odd):
    path = table(tmp_path / "a.csv", age=lambda i: odd if i % 10 == 0 else 20 + i % 50)
    found = read(path)
    assert found.column_names == ("size", "age", "age=(missing)")
    assert found.inputs[:, 1].max() <= 70
    assert any(f"'age' holds {odd} in 12 rows, far from all" in remark for remark in found.schema_summary.remarks)
    again = read(path, encoding=found.encoding)
    np.testing.assert_array_equal(again.inputs, found.inputs)
    assert read(path, trust_columns=("age",)).inputs[0, 1] == odd


@pytest.mark.parametrize(
    ("numbers", "sure", "perhaps"),
    [
        ([1, 2, 3, 99, 99], (99,), ()),
        ([1, 2, 3, 99], (), ()),  # once: an outlier
        ([1, 50, 98, 99, 99], (), ()),  # among the others
        ([1, 2, 3, 100, 100], (), ()),  # not how people mark a gap
        ([0, 0, 99, 99], (), ()),
        ([1, 2, 3, 98, 98, 99, 99], (98, 99), ()),  # "unknown" and "refused"
        ([*range(90), -998, -998, -999, -999], (-999, -998), ()),
        ([*range(90), -999, -999, 99999, 99999], (-999, 99999), ()),
        ([*range(90), -999.25, -999.25], (-999.25,), ()),
        ([*range(90), 1e20, 1e20], (np.float32(1e20),), ()),
        ([-1, -1, 0, 1, 2], (), (-1,)),  # nothing else is negative
        ([*range(90), -8, -8, -9, -9], (), (-9, -8)),
        ([*range(90), -9999], (), (-9999,)),  # once, but very far away
        ([*range(0, 9000, 90), *[9999] * 9], (), (9999,)),  # near the others, but much more frequent
        ([*range(-9, 30), *range(-9, 30)], (), ()),
    ],
)
def test_what_is_a_sentinel_and_what_may_be_one(numbers, sure, perhaps):
    assert sentinels(np.array(numbers, np.float32)) == (sure, perhaps)


def test_a_code_is_read_as_categories_and_said(tmp_path):
    path = table(tmp_path / "a.csv", zip=lambda i: f"0{1200 + TRUE[i] + 3 * (i % 2)}", ZipCode=lambda i: 10000 + i)
    found = read(path)
    assert found.encoding[1].levels[0] == "01200"
    assert "'zip' is a code by its name: read as categories; for numbers, use trust_columns" in (
        found.schema_summary.remarks
    )
    assert read(path, trust_columns=("zip",)).column_names[1] == "zip"


def test_a_repeated_id_does_not_stop_a_run_that_needs_none(tmp_path):
    path = table(tmp_path / "a.csv", id=lambda i: f"p{i // 2}")
    found = read(path)
    assert not found.ids_given
    assert "id that repeats" in left_out(found)["id"]
    assert found.column_names == ("size",)
    with pytest.raises(DataError, match="occur more than once"):
        labelloop.correct(path, columns={"id_column": "id"})


def test_labels_that_are_no_classes(tmp_path):
    head = "x,label,clean_label\n"
    lines = [f"{i % 7},c{i},{f'c{i}' if i % 3 == 0 else ''}" for i in range(240)]
    (tmp_path / "many.csv").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="240 classes in 240 labelled rows, such as 'c0', 'c1', 'c10': these are ids"):
        labelloop.correct(tmp_path / "many.csv")
    several = ["a", "b", "a|b", "c", "a|c"]
    lines = [f"{i % 5 + (i % 3) / 10},{several[i % 5]},{several[i % 5] if i % 3 == 0 else ''}" for i in range(240)]
    (tmp_path / "several.csv").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"2 of 5 classes look like several labels in one \('a\|b', 'a\|c'\)"):
        labelloop.correct(tmp_path / "several.csv")


def test_the_command_line_says_it_with_flags(tmp_path, capsys):
    path = table(tmp_path / "a.csv", leak=lambda i: GIVEN[i])
    decided = "'leak' (nearly equal to the given label; to use it anyway, name it with --trust-columns)"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["correct", str(path), "--dry-run"]) == 0
    told = capsys.readouterr()
    assert f"left out: {decided}" in told.out
    assert f"not among the features: {decided}" in told.err
    assert main(["correct", str(path), "--dry-run", "--trust-columns", "leak"]) == 0
    assert "left out" not in capsys.readouterr().out
