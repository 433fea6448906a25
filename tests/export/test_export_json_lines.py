"""JSON lines out: edited where a label changes, and the input back again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from made_runs import run_of

from labelloop.data.options import origin_of
from labelloop.data.table import from_arrays

LINES = (
    '{"id": "a", "x": 1.50, "label": "cat", "clean_label": "dog"}',
    '{ "label":"cat" ,"x": 2e0, "nested": {"label": "no, \\"not\\" this }"}, "id": "b"}',
    '{"id": "c", "x": 3, "label": "dog", "text": "Gr\\u00f6\\u00dfe größer"}',
    '{"id": "d", "x": 4, "label": null}',
    '{"id": "e", "x": 5}',
)
FILES = {
    "plain": "\n".join(LINES) + "\n",
    "windows": "\r\n".join(LINES) + "\r\n",
    "no last line end": "\n".join(LINES),
    "blank lines": "\n\n".join(LINES) + "\n \n",
    "mark": "\ufeff" + "\n".join(LINES) + "\n",
}
CORRECTED = {1: ("dog", 0.875), 3: ("cat", 0.75), 4: ("dog", 0.75)}


def lines_run(path: Path, run: Path) -> Path:
    origin = origin_of("jsonl", path, {}, label_column="label", clean_column="clean_label", id_column="id")
    given, clean = ["cat", "cat", "dog", "", ""], ["dog", "", "", "", ""]
    table = from_arrays(np.zeros((5, 1), np.float32), given, clean, ids=list("abcde"), origin=origin)
    return run_of(table, run, CORRECTED)


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]


@pytest.mark.parametrize("name", FILES)
def test_replaced_added_dropped_and_back(labelloop, tmp_path, name):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(FILES[name].encode())
    run = lines_run(path, tmp_path / "run")
    new = tmp_path / "new.jsonl"
    done = labelloop("export", run, "--to", "jsonl", "--replace", "--output", new)
    assert done.code == 0, done.err
    expected = (
        FILES[name]
        .replace('1.50, "label": "cat"', '1.50, "label": "dog"')
        .replace('"label":"cat" ,', '"label":"dog" ,')
        .replace('"label": null', '"label": "cat"')
        .replace('"x": 5}', '"x": 5, "label": "dog"}')
    )
    assert new.read_bytes() == expected.encode()
    restored = labelloop("undo", tmp_path / "new.jsonl.undo.zip", "--output", tmp_path / "back.jsonl")
    assert restored.code == 0, restored.err
    assert (tmp_path / "back.jsonl").read_bytes() == FILES[name].encode()

    assert labelloop("export", run, "--to", "jsonl", "--output", tmp_path / "added.jsonl").code == 0
    before, after = rows_of(path), rows_of(tmp_path / "added.jsonl")
    assert [row.pop("corrected_label") for row in after] == ["dog", "dog", "dog", "cat", "dog"]
    assert [row.pop("corrected_confidence") for row in after] == [1, 0.875, 0.75, 0.75, 0.75]
    assert [row.pop("changed") for row in after] == [False, True, False, False, False]
    assert after == before

    assert labelloop("export", run, "--to", "jsonl", "--action", "drop", "--output", tmp_path / "fewer.jsonl").code == 0
    assert [row["id"] for row in rows_of(tmp_path / "fewer.jsonl")] == ["a", "c", "d", "e"]
