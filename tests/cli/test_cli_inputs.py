"""Every kind of table through fit and predict, as files on a disk."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_tools import COLUMNS, QUICK, labels_of, run_json, settings, small

DATA = small()


def columns() -> dict[str, list]:
    """Numbers with gaps and a category with gaps, beside what the class depends on."""
    rng = np.random.default_rng(2)
    found: dict[str, list] = {"id": DATA.ids, **{name: DATA.X[:, j].tolist() for j, name in enumerate(COLUMNS)}}
    found["a"] = [None if i % 7 == 0 else value for i, value in enumerate(found["a"])]
    found["colour"] = [None if i % 11 == 0 else str(rng.choice(["red", "blue"])) for i in range(120)]
    labels = {"label": DATA.y, "clean_label": DATA.y_clean}
    return found | {key: [name or None for name in DATA.names(values)] for key, values in labels.items()}


def write_rows(path: Path, rows: dict[str, list]) -> Path:
    table = pa.table(rows)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writerow(rows)
            writer.writerows(zip(*rows.values(), strict=True))
    return path


def predictions(text: str) -> list[str]:
    return [row["predicted_label"] for row in csv.DictReader(io.StringIO(text))]


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl"])
def test_a_table_with_gaps_and_categories(ending, labelloop, tmp_path):
    data = write_rows(tmp_path / f"rows.{ending}", columns())
    run = tmp_path / "run"
    ended = labelloop("fit", data, "--output-dir", run, *settings(QUICK), "--test", data)
    assert ended.code == 1  # the ids of the clean rows are among those of the test rows
    ended = labelloop("fit", data, "--output-dir", run, *settings(QUICK))
    assert ended.code == 0, ended.err
    about = json.loads((run / "model.json").read_text())
    assert about["column_names"] == ["a", "a=(missing)", "b", "c", "d", "colour=blue", "colour=red", "colour=(missing)"]
    labels = labels_of(run)
    assert labels["id"] == DATA.ids
    assert None not in labels["corrected_label"]
    assert labels["given_label"] == [name or None for name in DATA.names(DATA.y)]
    source = run_json(run)["source"]
    assert (source["kind"], source["path"], source["label_column"]) == (ending, str(data), "label")
    ended = labelloop("predict", run, data)
    assert (ended.code, ended.err) == (0, "")
    assert predictions(ended.out) == labels["predicted_label"]  # encoded as in training


def test_the_file_format_does_not_change_the_result(labelloop, tmp_path):
    found = []
    for ending in ("csv", "parquet", "jsonl"):
        data = write_rows(tmp_path / f"rows.{ending}", columns())
        assert labelloop("fit", data, "--output-dir", tmp_path / ending, *settings(QUICK)).code == 0
        found.append((tmp_path / ending / "targets.npy").read_bytes())
    assert found[0] == found[1] == found[2]


def test_an_embedding_of_json_lines(labelloop, tmp_path):
    rows = columns()
    kept = {key: rows[key] for key in ("id", "label", "clean_label")}
    data = write_rows(tmp_path / "rows.jsonl", kept | {"embedding": DATA.X.tolist()})
    assert labelloop("fit", data, "--output-dir", tmp_path / "run", *settings(QUICK)).code == 0
    assert json.loads((tmp_path / "run/model.json").read_text())["column_names"] == [
        f"embedding[{j}]" for j in range(4)
    ]
    ended = labelloop("predict", tmp_path / "run", data)
    assert predictions(ended.out) == labels_of(tmp_path / "run")["predicted_label"]
