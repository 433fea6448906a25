"""The cache of features: what hits it, what does not, and what an interruption or damage leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_encoders import some_images

from labelloop.encoders.cache import FeatureCache
from labelloop.encoders.encode import encode_rows
from labelloop.encoders.encoder import Encoder, Loaded, raw_inputs
from labelloop.errors import DataError
from labelloop.large_arrays import cache_folder, memory_limit
from labelloop.types import RawInputs


class Counting:
    """An encoder that remembers which rows it was asked for."""

    def __init__(self, version: str = "1", kind: str = "text", rows: int = 4) -> None:
        self.asked: list[object] = []
        self.encoder = Encoder("mine:make", kind, version, lambda: Loaded(self.encode, rows))

    def encode(self, items: list) -> np.ndarray:
        self.asked += items
        if self.encoder.kind == "text":
            return np.array([[len(item), float(item.split()[-1])] for item in items])
        return np.array([np.asarray(item).reshape(-1, 3).mean(axis=0) for item in items])


TEXTS = [f"{'long ' * (i % 5)}{i}" for i in range(23)]


def test_the_second_time_nothing_is_encoded():
    first, second = Counting(), Counting()
    made = encode_rows(raw_inputs(TEXTS), first.encoder)
    again = encode_rows(raw_inputs(TEXTS), second.encoder)
    assert (made.from_cache, made.encoded) == (0, 23)
    assert (again.from_cache, again.encoded) == (23, 0)
    assert second.asked == []
    assert again.features.tolist() == made.features.tolist() == [[len(t), float(t.split()[-1])] for t in TEXTS]


def test_rows_are_known_by_content_alone():
    first, second = Counting(), Counting()
    encode_rows(raw_inputs(TEXTS[:10]), first.encoder)
    rows = [TEXTS[3], "new 77", TEXTS[0], "new 77"]
    found = encode_rows(raw_inputs(rows), second.encoder)
    assert (found.from_cache, found.encoded) == (2, 2)
    assert second.asked == ["new 77"]  # equal rows are encoded once
    assert found.features[:, 1].tolist() == [3, 77, 0, 77]


def test_another_version_or_kind_of_encoder_shares_nothing():
    encode_rows(raw_inputs(TEXTS), Counting("1").encoder)
    other = Counting("2")
    assert encode_rows(raw_inputs(TEXTS), other.encoder).from_cache == 0
    assert len(other.asked) == 23


def test_a_changed_file_is_noticed_and_a_renamed_one_is_not_encoded_again(tmp_path):
    paths = some_images(tmp_path / "a", 6)
    encode_rows(RawInputs("image", paths), Counting(kind="image").encoder)
    some_images(tmp_path / "b", 1, seed=5)[0].replace(paths[2])
    paths[4] = paths[4].rename(tmp_path / "other name.png")
    second = Counting(kind="image")
    found = encode_rows(RawInputs("image", paths), second.encoder)
    assert (found.from_cache, found.encoded, len(second.asked)) == (5, 1, 1)
    from PIL import Image

    expected = [np.asarray(Image.open(path)).reshape(-1, 3).mean(axis=0) for path in paths]
    np.testing.assert_allclose(found.features, expected, rtol=1e-5)


def test_rows_stay_in_order_with_unreadable_images_among_them(tmp_path):
    paths = some_images(tmp_path, 9)
    paths[2].write_bytes(b"no image at all")
    paths[5].unlink()
    paths[7].write_bytes(paths[7].read_bytes()[:60])  # cut off
    for _ in range(2):  # fresh, and from the cache
        found = encode_rows(RawInputs("image", [*paths, paths[2]]), Counting(kind="image", rows=3).encoder)
        assert [(row, name) for row, name, _ in found.unreadable] == [
            (row, str(paths[min(row, 8) if row < 9 else 2])) for row in (2, 5, 7, 9)
        ]
        assert "no such file" in found.unreadable[1][2]
        assert "cannot be decoded" in found.unreadable[0][2]
        from PIL import Image

        for row in (0, 1, 3, 4, 6, 8):
            expected = np.asarray(Image.open(paths[row])).reshape(-1, 3).mean(axis=0)
            np.testing.assert_allclose(found.features[row], expected, rtol=1e-5)
        assert (found.features[[2, 5, 7, 9]] == 0).all()
    assert (found.from_cache, found.encoded) == (6, 0)
    with pytest.raises(DataError, match="no row can be read, for example"):
        encode_rows(RawInputs("image", [paths[2]]), Counting(kind="image").encoder)


def test_damage_on_disk_is_found_and_mended():
    first = Counting()
    expected = encode_rows(raw_inputs(TEXTS), first.encoder).features
    store = FeatureCache(cache_folder(), first.encoder)
    with (store.folder / "features.f32").open("r+b") as file:
        file.seek(5 * 8)
        file.write(b"\x01\x02\x03\x04")
    second = Counting()
    found = encode_rows(raw_inputs(TEXTS), second.encoder)
    assert (found.from_cache, found.encoded, len(second.asked)) == (22, 1, 1)
    np.testing.assert_array_equal(found.features, expected)
    with (store.folder / "keys.bin").open("ab") as file:
        file.write(b"half a record")  # as a process leaves it that is stopped while it writes
    with (store.folder / "features.f32").open("ab") as file:
        file.write(bytes(12))
    third = Counting()
    assert encode_rows(raw_inputs([*TEXTS, "more 5"]), third.encoder).from_cache == 23
    assert encode_rows(raw_inputs([*TEXTS, "more 5"]), Counting().encoder).from_cache == 24
    (store.folder / "about.json").write_text("{")
    with pytest.raises(DataError, match=r"about\.json is damaged; delete its folder"):
        FeatureCache(cache_folder(), first.encoder)


def test_two_processes_may_add_at_a_time():
    encoder = Counting().encoder
    one, two = FeatureCache(cache_folder(), encoder), FeatureCache(cache_folder(), encoder)
    one.add([b"a" * 16], np.array([[1, 2]], np.float32))
    two.add([b"b" * 16], np.array([[3, 4]], np.float32))
    one.add([b"c" * 16], np.array([[5, 6]], np.float32))
    for store in (one, FeatureCache(cache_folder(), encoder)):
        values, whole = store.read(store.find([b"c" * 16, b"a" * 16, b"b" * 16]))
        assert whole.all()
        assert values.tolist() == [[5, 6], [1, 2], [3, 4]]
    with pytest.raises(DataError, match="has 2 numbers per row, but its encoder returns 3"):
        two.add([b"d" * 16], np.zeros((1, 3), np.float32))


def test_many_features_are_mapped_from_a_file_that_goes_away(monkeypatch):
    encoder = Counting().encoder
    small = encode_rows(raw_inputs(TEXTS), encoder).features
    before = set(cache_folder().rglob("*"))
    monkeypatch.setattr("labelloop.large_arrays.SMALLEST", 0)
    monkeypatch.setattr("labelloop.large_arrays.SHARE", 2**20)
    with memory_limit("1M", cache_folder()):
        large = encode_rows(raw_inputs(TEXTS), encoder).features
    assert isinstance(large, np.memmap)
    assert not isinstance(small, np.memmap)
    np.testing.assert_array_equal(small, large)
    assert set(cache_folder().rglob("*")) == before


def test_without_a_place_for_the_cache_it_warns_and_goes_on(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="features are not cached for the next run"):
        found = encode_rows(raw_inputs(TEXTS), Counting().encoder, cache=tmp_path / "file")
    assert found.encoded == 23


SLOW = """
import sys, time
from pathlib import Path
import numpy as np
from labelloop.encoders.encoder import raw_inputs
from labelloop.encoders.encode import encode_rows
from labelloop.encoders.encoder import Encoder, Loaded

def encode(items):
    Path(sys.argv[1]).open("a").write(str(len(items)) + "\\n")
    time.sleep(float(sys.argv[2]))
    return np.array([[len(item), hash(item) * 0 + float(item)] for item in items])

rows = raw_inputs([str(i) for i in range(40)])
found = encode_rows(rows, Encoder("mine:make", "text", "1", lambda: Loaded(encode, 4)))
assert found.features[:, 1].tolist() == list(range(40))
print(found.from_cache, found.encoded)
"""


def test_kill_in_the_middle_loses_at_most_a_batch(tmp_path):
    calls = tmp_path / "calls"
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(calls), "0.2"], env=dict(os.environ))
    deadline = time.monotonic() + 60
    while not (calls.exists() and len(calls.read_text().split()) >= 4) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    begun = len(calls.read_text().split())
    done = subprocess.run(
        [sys.executable, "-c", SLOW, str(tmp_path / "calls again"), "0"], env=dict(os.environ), capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    kept, encoded = map(int, done.stdout.split())
    assert kept + encoded == 40
    assert 4 * (begun - 1) <= kept <= 4 * begun
    assert kept >= 12


def test_the_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("LABELLOOP_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("LABELLOOP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/labelloop")
