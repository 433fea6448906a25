"""Traps in files of data: what grows without end, what starts another program, what a page or a reader would obey."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import EpsImagePlugin
from strangers import change, corrected_run, told

from labelloop import trust
from labelloop.data.image_files import load_images
from labelloop.data.readers.arrow_file import read_xlsx
from labelloop.data.readers.csv_file import content_of
from labelloop.data.readers.hub import HubData
from labelloop.encoders.cache import FeatureCache
from labelloop.encoders.encoder import Encoder, key_of, opened
from labelloop.errors import DataError
from labelloop.export.model_card import _code
from labelloop.noise.recorded_labels import read_label_file
from labelloop.report.review.tally import rows_per_hour
from labelloop.runs.reviews import Answer, read_answers

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "SUSPICIOUS", 2**20)


def zipped(name: str, size: int) -> bytes:
    place = io.BytesIO()
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(size))
    return place.getvalue()


def zstd(content: bytes) -> bytes:
    place = pa.BufferOutputStream()
    with pa.CompressedOutputStream(place, "zstd") as stream:
        stream.write(content)
    return place.getvalue().to_pybytes()


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.csv.zst"])
def test_a_table_that_grows_without_end_is_refused_while_it_grows(tmp_path: Path, small: None, name: str) -> None:
    pack = gzip.compress if name.endswith(".gz") else zstd
    (tmp_path / name).write_bytes(pack(bytes(2**25)))
    with pytest.raises(DataError, match=r"cannot be decompressed \(its \d+ bytes would become"):
        content_of(tmp_path / name)
    whole = np.random.default_rng(0).bytes(2**21)  # as large, and grown by nothing
    (tmp_path / name).write_bytes(pack(whole))
    assert content_of(tmp_path / name) == whole


def test_archives_that_grow_without_end_are_refused(tmp_path: Path, small: None) -> None:
    (tmp_path / "labels.pt").write_bytes(zipped("archive/data.pkl", 2**25))
    with pytest.raises(DataError, match="would become"):
        read_label_file(tmp_path / "labels.pt")
    pytest.importorskip("openpyxl", reason="needs the extra xlsx")
    (tmp_path / "sheet.xlsx").write_bytes(zipped("xl/sharedStrings.xml", 2**25))
    with pytest.raises(DataError, match="would become"):
        read_xlsx(tmp_path / "sheet.xlsx")


def damaged_archive(case: str) -> bytes:
    """An .npz file of a table, cut, compressed or damaged in some way."""
    place, codes = io.BytesIO(), np.arange(40) % 2
    arrays: dict[str, Any] = {"x": np.random.default_rng(0).random((40, 3)), "y": codes, "y_clean": codes}
    if case == "a single value":
        np.savez(place, **arrays | {"y": np.zeros(())})
        return place.getvalue()
    if case == "lzma":
        with zipfile.ZipFile(place, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("x.npy", bytes(10))
        return place.getvalue()
    np.savez_compressed(place, **arrays)
    content = place.getvalue()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.getinfo("y.npy").header_offset + 40
    cases = {"empty": b"", "cut": content[:-40], "no stream": content[:start] + b"\xff" * 20 + content[start + 20 :]}
    return cases[case]


@pytest.mark.parametrize("command", ["fit", "correct"])
@pytest.mark.parametrize("case", ["empty", "cut", "no stream", "lzma", "a single value"])
def test_a_damaged_archive_of_arrays_is_one_line(tmp_path: Path, case: str, command: str) -> None:
    (tmp_path / "rows.npz").write_bytes(damaged_archive(case))
    ended = told(command, tmp_path / "rows.npz", "--dry-run")
    assert (ended.code, ended.err.count("\n")) == (1, 1), ended
    assert "rows.npz" in ended.err


def test_labels_that_are_a_single_value_are_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    np.save(tmp_path / "y.npy", np.zeros(()))
    ended = told("fit", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--dry-run")
    assert (ended.code, "y.npy: holds a single value" in ended.err) == (1, True), ended


@pytest.mark.parametrize("command", ["fit", "correct", "noise"])
def test_a_text_that_is_none_is_one_line(tmp_path: Path, command: str) -> None:
    """In a Parquet file, whose texts the library takes as they are."""
    names = ["cat", "dog"] * 20
    table = pa.table({"a": list(range(40)), "label": names, "clean_label": names})
    pq.write_table(table, tmp_path / "rows.parquet", compression="none", use_dictionary=False, write_statistics=False)
    content = (tmp_path / "rows.parquet").read_bytes()
    (tmp_path / "rows.parquet").write_bytes(content.replace(b"cat", b"\xffat"))
    more = ["--noise", "symmetric", "--output", tmp_path / "noisy.parquet"] if command == "noise" else ["--dry-run"]
    ended = told(command, tmp_path / "rows.parquet", *more)
    assert (ended.code, ended.err.count("\n"), "Invalid UTF8" in ended.err) == (1, 1, True), ended


def test_a_damaged_data_set_is_one_line(tmp_path: Path) -> None:
    """The library maps the file and checks nothing: a wrong length in it would end the process."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": ["hello there"] * 9, "label": ["cat"] * 9}).save_to_disk(tmp_path / "data")
    [file] = (tmp_path / "data").glob("*.arrow")
    file.write_bytes(file.read_bytes().replace(b"cat", b"\xffat"))
    ended = told("fit", tmp_path / "data", "--dry-run")
    assert (ended.code, ended.err.count("\n"), "cannot be read as a data set" in ended.err) == (1, 1, True), ended


def test_a_message_is_one_line_whatever_it_quotes(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    change(run / "run.json", lambda record: record.update(seconds={"\nlabelloop: all is well\x1b[2J": "x"}))
    ended = told("export", run, "--to", "issues", "--output", tmp_path / "issues.csv")
    [line] = [line for line in ended.err.splitlines() if "warning" not in line]
    assert (ended.code, "run.json: seconds" in line, "\x1b" in line) == (1, True, False), ended


def test_no_image_starts_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow looks at the content, not at the name, and lets Ghostscript draw EPS."""
    started: list[Any] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given, **named: started.append(given))
    (tmp_path / "cat.png").write_bytes(EPS)
    assert len(load_images([tmp_path / "cat.png", EPS])[2]) == 2
    for item in (tmp_path / "cat.png", EPS):
        with pytest.raises(OSError, match="cannot identify image file"):
            opened(item)
    assert started == []
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(FileNotFoundError):
        key_of(tmp_path / "pipe.png")


def test_a_data_set_in_a_folder_names_images_of_its_own_only(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    names = ["own.png", str(tmp_path / "data" / "own.png"), "../private.png", str(tmp_path / "private.png"), None]
    arrow = pa.table({"image": [{"bytes": None, "path": name} for name in names]})
    found = HubData(arrow, None, {}, ("image",), tmp_path / "data").images("image")
    assert found == [*[tmp_path / "data" / "own.png"] * 2, b"", b"", b""]


@pytest.mark.parametrize("text", ["a`<img src=x onerror=y>", "``` ` ``", "line\n\n<script>", "plain"])
def test_a_class_is_no_markup_in_a_model_card(text: str) -> None:
    shown = _code(text)
    marks = shown[: len(shown) - len(shown.lstrip("`"))]
    assert "\n" not in shown
    assert shown.endswith(marks)
    assert marks not in shown[len(marks) : -len(marks)].strip("`") or "`" not in text


@pytest.mark.parametrize(
    "about",
    [
        "[" * 100_000,
        *(json.dumps({"width": width}) for width in (0, -1, "x", 1e400)),
        '{"width": 3, "preprocessing": 5}',
    ],
)
def test_a_damaged_cache_is_one_line(tmp_path: Path, about: str) -> None:
    encoder = Encoder("words", "text", "1", lambda: None)  # type: ignore[arg-type, return-value]
    cache = FeatureCache(tmp_path, encoder)
    cache.add([b"k" * 16], np.ones((1, 3), np.float32))
    (cache.folder / "about.json").write_text(about)
    with pytest.raises(DataError, match=r"about\.json is damaged"):
        FeatureCache(tmp_path, encoder)


def test_an_answer_that_is_no_text_is_damage_and_a_time_that_is_none_costs_the_pace(tmp_path: Path) -> None:
    line = {"key": "k" * 8, "row": 1, "id": "r1", "reviewer": "\ud800", "action": "skip", "label": None, "at": "t"}
    (tmp_path / "reviews.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(DataError, match=r"reviews\.jsonl: reviewer is not text"):
        read_answers(tmp_path)
    (tmp_path / "reviews.jsonl").write_text(json.dumps({**line, "reviewer": "ann"}) + "\n")
    found = read_answers(tmp_path)[0]
    assert (len(found), rows_per_hour([*found, *found])) == (1, None)
    assert isinstance(found[0], Answer)


def test_a_measurement_that_is_no_number_is_one_line(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    (run / "manifest.json").unlink()
    (run / "metrics.jsonl").write_text('{"epoch": 1, "test_accuracy": "x"}\n')
    ended = told("report", run)
    assert "Traceback" not in ended.err
