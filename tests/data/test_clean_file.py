"""One reader for a file of clean labels, in every format."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError, UsageError

IDS, CLEAN = ["c", "a"], ["dog", "cat"]


def rows(tmp_path, header="id,x,label"):
    path = tmp_path / "rows.csv"
    path.write_text(f"{header}\na,1,cat\nb,2,dog\nc,3,cat\n")
    return path


def clean_file(tmp_path, ending):
    path = tmp_path / f"clean{ending}"
    if ending in (".csv", ".tsv"):
        mark = "," if ending == ".csv" else "\t"
        path.write_text("".join(f"{i}{mark}{c}\n" for i, c in zip(["id", *IDS], ["clean_label", *CLEAN], strict=True)))
    elif ending == ".parquet":
        pq.write_table(pa.table({"id": IDS, "clean_label": CLEAN}), path)
    elif ending == ".jsonl":
        lines = [json.dumps({"id": i, "clean_label": c}) for i, c in zip(IDS, CLEAN, strict=True)]
        path.write_text("\n".join(lines))
    else:
        np.savez(path, id=np.array(IDS), clean_label=np.array(CLEAN))
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".jsonl", ".npz"])
def test_every_format_joins_by_id(tmp_path, ending):
    table = read_table(rows(tmp_path), ReadOptions(clean_file=clean_file(tmp_path, ending)))
    assert table.clean_labels.tolist() == ["cat", "", "dog"]
    assert table.origin["options"]["clean_file"] == str((tmp_path / f"clean{ending}").absolute())


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_arrays_go_with_arrays_in_row_order(tmp_path, ending):
    np.savez(tmp_path / "rows.npz", X=np.zeros((3, 2)), y=np.array([0, 1, 0]))
    clean = tmp_path / f"clean{ending}"
    np.save(clean, [0, -1, 1]) if ending == ".npy" else np.savez(clean, clean_label=[0, -1, 1])
    assert read_table(tmp_path / "rows.npz", ReadOptions(clean_file=clean)).clean_labels.tolist() == [0, -1, 1]
    np.savez(tmp_path / "longer.npz", X=np.zeros((4, 2)), y=np.array([0, 1, 0, 1]))
    with pytest.raises(DataError, match=r"shape \(3,\) for the 4 rows of .*"):
        read_table(tmp_path / "longer.npz", ReadOptions(clean_file=clean))


def test_row_order_is_not_enough_for_a_table(tmp_path):
    np.save(tmp_path / "clean.npy", np.array(["cat", "", "dog"]))
    with pytest.raises(UsageError, match=r"labels without ids go with an .npy or .npz file"):
        read_table(rows(tmp_path), ReadOptions(clean_file=tmp_path / "clean.npy"))


def test_rows_without_ids_are_found_by_number_only_with_their_given_labels(tmp_path):
    table, clean = rows(tmp_path, "name,x,label"), tmp_path / "clean.csv"
    clean.write_text("row,given_label,clean_label\n1,dog,cat\n2,cat,\n")
    found = read_table(table, ReadOptions(clean_file=clean, feature_columns=["x"])).clean_labels
    assert found.tolist() == ["", "cat", ""]
    clean.write_text("row,given_label,clean_label\n1,cat,cat\n")
    with pytest.raises(DataError, match="row 1 has cat here and dog there"):
        read_table(table, ReadOptions(clean_file=clean, feature_columns=["x"]))
    clean.write_text("row,clean_label\n1,cat\n")
    with pytest.raises(UsageError, match="identified only by number"):
        read_table(table, ReadOptions(clean_file=clean, feature_columns=["x"]))
    clean.write_text("id,clean_label\n1,cat\n")
    with pytest.raises(UsageError, match="joined by id, but these rows have none"):
        read_table(table, ReadOptions(clean_file=clean, feature_columns=["x"]))


def test_numbers_with_a_point_are_the_classes_they_are(tmp_path):
    (tmp_path / "rows.csv").write_text("id,x,label\na,1,0\nb,2,1\n")
    (tmp_path / "clean.csv").write_text("id,clean_label\nb,0.0\n")
    table = read_table(tmp_path / "rows.csv", ReadOptions(clean_file=tmp_path / "clean.csv"))
    assert table.clean_labels.tolist() == [-1, 0]
