"""Arrays that are too large for memory: the same numbers, chunk by chunk and from files, and a clear word when full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from labelloop import large_arrays
from labelloop.errors import UsageError
from labelloop.large_arrays import (
    Releaser,
    by_chunks,
    current_limit,
    is_on_disk,
    joined,
    memory_limit,
    parse_bytes,
    put,
    release,
    row_chunks,
    soft_dtype,
    taken,
    usual_limit,
    zeros,
)
from labelloop.relabel.noise_model import estimate_transition
from labelloop.relabel.stacking import combine

SMALL = "1M"  # a limit under which 32 KiB is large


@pytest.fixture
def tiny_limit(monkeypatch, tmp_path):
    monkeypatch.setattr(large_arrays, "SMALLEST", 0)
    monkeypatch.setattr(large_arrays, "CHUNK_VALUES", 1000)
    with memory_limit(SMALL, tmp_path):
        yield tmp_path


@pytest.mark.parametrize(
    ("text", "size"), [("4G", 4 * 2**30), ("500M", 500 * 2**20), ("1.5 GiB", 3 * 2**29), ("2097152", 2**21)]
)
def test_a_size_is_read_as_it_is_written(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["much", "", "-4G", "12", "4 elephants"])
def test_no_size_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match=r"max_memory.*4G or 500M"):
        parse_bytes(text)


def test_the_usual_limit_is_part_of_the_machine():
    assert 2**28 < usual_limit() < 2**50
    assert current_limit().bytes == usual_limit()


def test_large_arrays_are_files_without_a_name_and_small_ones_are_not(tiny_limit):
    large, small = zeros((1000, 10)), zeros((10, 10))
    assert is_on_disk(large)
    assert not is_on_disk(small)
    assert not large.any()
    assert not small.any()
    large[5] = 1
    release()
    assert large.sum() == 10
    assert is_on_disk(large[5:7])
    assert list(tiny_limit.iterdir()) == []


def test_limits_nest_and_files_go_where_a_folder_will_be(tmp_path):
    with memory_limit("2G", tmp_path / "run" / "that-is-not-there", half=True) as outer:
        assert outer.folder == tmp_path
        assert soft_dtype() is np.float16
        with memory_limit(None) as inner:
            assert inner == outer
    assert soft_dtype() is np.float32


def test_rows_taken_put_and_joined_are_those_of_numpy(tiny_limit):
    rng = np.random.default_rng(0)
    whole = rng.random((3000, 7)).astype(np.float32)
    index = rng.permutation(3000)[:2000]
    stored = by_chunks(lambda rows: whole[rows], whole.shape)
    assert is_on_disk(stored)
    assert len(list(row_chunks(*whole.shape))) > 5
    np.testing.assert_array_equal(stored, whole)
    np.testing.assert_array_equal(taken(stored, index), whole[index])
    assert taken(stored, np.arange(3000)) is stored
    np.testing.assert_array_equal(joined(stored, whole[:5]), np.concatenate([whole, whole[:5]]))
    filled = zeros(whole.shape)
    put(filled, index, whole[index])
    np.testing.assert_array_equal(filled[index], whole[index])


def test_where_nobody_knows_what_is_mapped_it_is_estimated(tiny_limit, monkeypatch):
    monkeypatch.setattr(large_arrays, "_mapped_bytes", lambda: None)
    let_go = Releaser(zeros((3000, 200)), np.zeros((3000, 200)))
    for _ in range(10):
        let_go(128)
    assert let_go.count == 1
    assert let_go.touched <= let_go.most


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux says how much is mapped")
def test_rows_read_at_random_are_let_go_of():
    with memory_limit("64M"):
        stored = zeros((8192, 4096))  # 128 MiB
        stored[:] = 1.0
        order = np.random.default_rng(0).permutation(8192).reshape(-1, 8)
        let_go, most = Releaser(stored), 0
        assert is_on_disk(stored)
        for rows in order:
            assert stored[rows].sum() == 8 * 4096
            let_go(len(rows))
            most = max(most, large_arrays._mapped_bytes() - let_go.first)
    assert most <= let_go.most, "an eighth of the limit"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux says how much is mapped")
def test_a_map_that_somebody_else_opened_does_not_cost_a_release_each_batch(tmp_path, monkeypatch):
    np.save(tmp_path / "own.npy", np.ones((4096, 4096), np.float32))  # 64 MiB
    own, released = np.load(tmp_path / "own.npy", mmap_mode="r"), []
    with memory_limit("64M"):
        let_go = Releaser(own)
        monkeypatch.setattr(large_arrays, "release", lambda: released.append(1))
        for rows in np.random.default_rng(0).permutation(4096).reshape(-1, 16):
            assert own[rows].sum() == 16 * 4096
            let_go(len(rows))
    assert 1 <= len(released) <= 10, "once for each eighth of the limit that it fills"


def test_a_combination_in_chunks_is_the_whole_one_bit_for_bit(tiny_limit, monkeypatch):
    rng = np.random.default_rng(0)
    parts = [rng.dirichlet(np.ones(10), 3000).astype(np.float32) for _ in range(3)]
    weights = np.array([0.2, 0.5, 0.3])
    chunked = combine(parts, weights)
    monkeypatch.setattr(large_arrays, "CHUNK_VALUES", 2**22)
    np.testing.assert_array_equal(chunked, combine(parts, weights))
    with memory_limit(None, half=True):
        assert combine(parts, weights).dtype == np.float16
        np.testing.assert_allclose(combine(parts, weights), chunked, atol=1e-3)


def test_the_noise_matrix_in_chunks_is_the_whole_one(tiny_limit, monkeypatch):
    rng = np.random.default_rng(0)
    q, given = rng.dirichlet(np.full(5, 0.2), 2000), rng.integers(-1, 5, 2000)
    chunked = estimate_transition(q, given)
    monkeypatch.setattr(large_arrays, "CHUNK_VALUES", 2**22)
    np.testing.assert_allclose(chunked, estimate_transition(q, given), atol=1e-9)


def test_a_full_disk_is_said_with_place_and_size(tiny_limit, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"no room for an array of 0\.04 GiB.*max-memory") as error:
        zeros((1000, 10_000))
    assert error.value.errno == errno.ENOSPC
    assert Path(error.value.filename) == tiny_limit
