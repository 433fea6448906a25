"""A folder of Parquet parts is the same as one file, in memory and from a mapped file."""

from __future__ import annotations

import errno
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelloop import large_arrays
from labelloop.data.readers import ReadOptions, kind_of, read_table
from labelloop.data.readers.array_file import read_array, read_arrays
from labelloop.errors import DataError
from labelloop.large_arrays import is_on_disk, memory_limit


@pytest.fixture
def tiny_limit(monkeypatch, tmp_path):
    monkeypatch.setattr(large_arrays, "SMALLEST", 0)
    with memory_limit("1M", tmp_path):
        yield


def made(count: int = 3000) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({
        "id": [f"r{i}" for i in range(count)],
        "embedding": pa.FixedSizeListArray.from_arrays(rng.normal(size=count * 8).astype(np.float32), 8),
        "label": pa.array(rng.choice(["a", "b", "c"], count)).dictionary_encode(),
        "clean_label": [("a", "b", None)[k] for k in rng.integers(0, 3, count)],
    })  # fmt: skip


def write_parts(folder, table, size=700):
    folder.mkdir()
    for number, start in enumerate(range(0, len(table), size)):
        pq.write_table(table.slice(start, size), folder / f"part-{number:03d}.parquet")
    return folder


def assert_same_rows(one, other):
    np.testing.assert_array_equal(one.inputs, other.inputs)
    for name in ("labels", "clean_labels", "ids"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    assert one.column_names == other.column_names


def test_parts_are_one_file(tmp_path):
    parts = write_parts(tmp_path / "parts", made())
    pq.write_table(made(), tmp_path / "one.parquet")
    (parts / "_SUCCESS").touch()
    assert kind_of(parts) == "parquet-folder"
    assert_same_rows(read_table(parts), read_table(tmp_path / "one.parquet"))


def test_parts_that_are_too_large_for_memory_are_read_into_a_mapped_file(tmp_path, tiny_limit):
    parts = write_parts(tmp_path / "parts", made())
    mapped = read_table(parts)
    assert is_on_disk(mapped.inputs)
    with memory_limit("64G"):
        whole = read_table(parts)
    assert not is_on_disk(whole.inputs)
    assert_same_rows(mapped, whole)
    assert mapped.origin["kind"] == "parquet-folder"


def test_a_part_with_other_columns_is_named(tmp_path):
    parts = write_parts(tmp_path / "parts", made())
    pq.write_table(made(10).drop_columns(["clean_label"]), parts / "part-999.parquet")
    with pytest.raises(DataError, match=r"part-999\.parquet: its columns differ from those of .*'clean_label'"):
        read_table(parts)


def test_a_part_that_is_no_parquet_is_named(tmp_path):
    parts = write_parts(tmp_path / "parts", made())
    (parts / "part-999.parquet").write_text("not at all")
    with pytest.raises(DataError, match=r"part-999\.parquet: cannot be read as Parquet"):
        read_table(parts)


def test_a_full_disk_is_said_while_parts_are_read(tmp_path, tiny_limit, monkeypatch):
    parts = write_parts(tmp_path / "parts", made())

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pa.ipc, "new_file", full)
    with pytest.raises(OSError, match=r"no disk space for rows.*max-memory") as error:
        read_table(parts)
    assert error.value.filename == str(tmp_path)


def test_large_arrays_of_files_are_mapped(tmp_path, tiny_limit):
    x = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float16)
    y = np.arange(3000) % 3
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    np.savez_compressed(tmp_path / "packed.npz", x=np.asfortranarray(x), y=y)
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    stored = read_arrays(tmp_path / "rows.npz", ["x", "y"])
    assert is_on_disk(stored["x"])
    np.testing.assert_array_equal(stored["x"], x)
    np.testing.assert_array_equal(read_arrays(tmp_path / "packed.npz", ["x"])["x"], x)
    mapped = read_array(tmp_path / "x.npy")
    assert is_on_disk(mapped)
    table = read_table(tmp_path / "rows.npz", ReadOptions(clean_column="y"))
    assert table.inputs.dtype == np.float32
    assert is_on_disk(table.inputs)
    np.testing.assert_array_equal(table.inputs, x.astype(np.float32))
