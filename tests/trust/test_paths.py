"""Paths from files stay inside their folder: undo archives, exports, manifests of images, and the files of a run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_runs import made_run
from PIL import Image
from strangers import ROWS, change, corrected_run, model, told

from labelloop import trust
from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.readers.arrow_file import own_columns
from labelloop.errors import DataError
from labelloop.export.undo import undo, write_tree_undo
from labelloop.runs.files import read_parquet
from labelloop.runs.folder import RunFolder
from labelloop.runs.read import read_run
from labelloop.runs.result_files import copy_encoder
from labelloop.runs.reviews import Answer, append_answers, read_answers
from labelloop.training.checkpoint import read_large, read_tensors
from labelloop.trust import file_in, inside, is_inside, load_array, load_arrays, single_name

LEAVING = [
    "../victim.txt",
    "/etc/victim.txt",
    "a/../../victim.txt",
    "..\\victim.txt",
    "\\victim.txt",
    "..",
    "",
    ".",
    "a\0b",
]


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("name", [*LEAVING, None, 7, ["a"]])
def test_a_name_that_leaves_its_folder_is_refused(tmp_path: Path, name: object) -> None:
    assert not is_inside(name)
    with pytest.raises(DataError, match=r"archive\.zip: .* leads out of"):
        inside(tmp_path, name, "archive.zip")
    with pytest.raises(DataError, match="cannot be the name of a folder"):
        single_name(name if isinstance(name, str) else "a/b", "the class")


def test_a_link_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    (tmp_path / "in" / "near").symlink_to("own")
    (tmp_path / "in" / "own").write_text("")
    assert inside(tmp_path / "in", "near", "x") == tmp_path / "in" / "near"
    with pytest.raises(DataError, match="is a link that leads out"):
        inside(tmp_path / "in", "out/secret", "x")
    (tmp_path / "in" / "file").symlink_to(tmp_path / "secret")
    with pytest.raises(DataError, match="is a link that leads out"):
        file_in(tmp_path / "in", "file")
    os.mkfifo(tmp_path / "in" / "pipe")
    with pytest.raises(DataError, match="is not a file but a pipe"):
        file_in(tmp_path / "in", "pipe")


# --- undo archives --------------------------------------------------------------------------------------------------


def archive(path: Path, about: dict[str, Any], members: dict[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("undo.json", json.dumps({"schema_version": 1, "run": "run", **about}))
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            made.writestr(info, content)
    return path


def tree(name: str, **more: object) -> dict[str, Any]:
    files = [{"input": name, "output": None, "sha256": sha(b"evil")}]
    return {"kind": "folder", "input": "back", "output": "out", "files": files, "empty_folders": [], **more}


@pytest.mark.parametrize("output", [True, False])
@pytest.mark.parametrize("name", [*LEAVING, "{tmp}/victim.txt"])
def test_no_name_in_an_undo_archive_leads_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, output: bool
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    name = name.replace("{tmp}", str(tmp_path))
    to = tmp_path / "here" / "out" if output else None
    for about in (tree(name), tree("fine", empty_folders=[name])):
        entries = {f"original/{entry['input']}": b"evil" for entry in about["files"]}
        path = archive(tmp_path / "here" / "x.undo.zip", about, entries)
        with pytest.raises(DataError, match="nothing was restored"):
            undo(path, to)
    assert victim.read_text() == "precious"
    assert [file.name for file in (tmp_path / "here").iterdir()] == ["x.undo.zip"]


def test_an_undo_archive_does_not_choose_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    about = {"kind": "file", "input": str(tmp_path / "autostart"), "output": "out", "sha256": sha(b"evil")}
    path = archive(tmp_path / "here" / "x.undo.zip", about, {"original": b"evil"})
    with pytest.raises(DataError, match="say so with --output"):
        undo(path)
    assert not (tmp_path / "autostart").exists()
    assert undo(path, tmp_path / "here" / "back.txt").endswith("byte for byte")
    near = archive(
        tmp_path / "here" / "y.undo.zip", about | {"input": str(tmp_path / "here" / "rows.csv")}, {"original": b"evil"}
    )
    undo(near)
    assert (tmp_path / "here" / "rows.csv").read_bytes() == b"evil"


@pytest.mark.parametrize("name", [".bashrc", ".ssh/authorized_keys", "numpy.py", "Makefile", "labelloop/__init__.py"])
def test_an_undo_archive_writes_nothing_that_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Below the current folder too: what is hidden or could be run is written only where the user says so."""
    monkeypatch.chdir(tmp_path)
    about: dict[str, Any] = {"kind": "file", "input": name, "output": "out", "sha256": sha(b"evil")}
    entries = {"original": b"evil"}
    if "/" in name and not name.startswith("."):
        folder, inner = name.split("/")
        about, entries = tree(inner, input=folder), {f"original/{inner}": b"evil"}
    path = archive(tmp_path / "x.undo.zip", about, entries)
    with pytest.raises(DataError, match=r"which could be run, or is hidden; .* say so with --output"):
        undo(path)
    assert os.listdir(tmp_path) == ["x.undo.zip"]
    assert undo(path, tmp_path / "back").endswith(("byte for byte", "1 files"))


def test_undo_overwrites_nothing(tmp_path: Path) -> None:
    about = {"kind": "file", "input": str(tmp_path / "rows.csv"), "output": "out", "sha256": sha(b"new")}
    path = archive(tmp_path / "x.undo.zip", about, {"original": b"new"})
    (tmp_path / "rows.csv").write_text("old")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for to in (None, tmp_path / "rows.csv", tmp_path / "dangling"):
        with pytest.raises(DataError, match="exists and has changed"):
            undo(path, to)
    assert (tmp_path / "rows.csv").read_text() == "old"
    assert not (tmp_path / "nowhere").exists()


BAD_ARCHIVES: dict[str, Callable[[Path], Path]] = {
    "a link": lambda path: archive(path, tree("a"), {"original/a": b"/etc/passwd"}, stat.S_IFLNK | 0o777),
    "an extra file": lambda path: archive(path, tree("a"), {"original/a": b"evil", "extra": b""}),
    "another sum": lambda path: archive(path, tree("a"), {"original/a": b"other"}),
    "no such file": lambda path: archive(path, tree("a"), {}),
    "named twice": lambda path: archive(path, tree("a", empty_folders=["a"]), {"original/a": b"evil"}),
    "no kind": lambda path: archive(path, {"input": "a", "output": "b"}, {}),
    "a number": lambda path: archive(path, {"kind": "file", "input": 7, "output": "b", "sha256": sha(b"")}, {}),
    "a sum that is none": lambda path: archive(path, {"kind": "file", "input": "a", "output": "b", "sha256": "x"}, {}),
    "files that are none": lambda path: archive(path, tree("a", files=[7]), {}),
    "a newer one": lambda path: archive(path, tree("a", schema_version=99), {}),
}


@pytest.mark.parametrize("case", sorted(BAD_ARCHIVES))
def test_an_archive_that_no_export_wrote_is_refused_whole(tmp_path: Path, case: str) -> None:
    path = BAD_ARCHIVES[case](tmp_path / "x.undo.zip")
    with pytest.raises(DataError):
        undo(path, tmp_path / "back")
    assert os.listdir(tmp_path) == ["x.undo.zip"]


def test_an_archive_that_claims_more_than_the_disk_has_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.undo.zip", tree("a"), {"original/a": b"evil"})
    content = bytearray(path.read_bytes())
    place = content.rfind(b"PK\x01\x02")  # the directory's entry of original/a: its size is 24 bytes further
    content[place + 24 : place + 28] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(content)
    before, shutil.disk_usage = shutil.disk_usage, lambda _: before("/")._replace(free=2**20)  # type: ignore[assignment]
    try:
        with pytest.raises(DataError, match="more than the"):
            undo(path, tmp_path / "back")
    finally:
        shutil.disk_usage = before
    with pytest.raises(DataError):
        undo(path, tmp_path / "back")
    assert os.listdir(tmp_path) == ["x.undo.zip"]


def test_changed_images_are_not_accepted_in_an_undo(tmp_path: Path) -> None:
    """Neither those of the exported tree nor those in the archive count unless their sum is the stored one."""
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "1.png").write_bytes(b"one")
    places = {"a/1.png": "b/1.png"}
    write_tree_undo(tmp_path / "x.undo.zip", tmp_path / "in", places, tmp_path / "out", tmp_path / "run", whole=True)
    (tmp_path / "in").rename(tmp_path / "gone")
    (tmp_path / "out" / "b").mkdir(parents=True)
    (tmp_path / "out" / "b" / "1.png").write_bytes(b"changed")
    with pytest.raises(DataError, match="is neither in"):
        undo(tmp_path / "x.undo.zip")
    (tmp_path / "out" / "b" / "1.png").write_bytes(b"one")
    undo(tmp_path / "x.undo.zip")
    assert (tmp_path / "in" / "a" / "1.png").read_bytes() == b"one"


# --- exports --------------------------------------------------------------------------------------------------------


def images(folder: Path) -> Path:
    for number in range(8):
        place = folder / "data" / ("cat" if number % 2 else "dog") / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number * 9, 0, 0)).save(place)
    return folder / "data"


@pytest.mark.parametrize("label", ["../../x", "/tmp/x", "a/b", ".."])
def test_a_class_is_no_way_out_of_an_image_folder(tmp_path: Path, label: str) -> None:
    run = made_run(images(tmp_path), tmp_path / "run", {0: ("dog", 0.9)})
    table = pq.read_table(run / "labels.parquet")
    column = table["corrected_label"].to_pylist()
    column[0] = label
    place = table.column_names.index("corrected_label")
    pq.write_table(table.set_column(place, "corrected_label", [column]), run / "labels.parquet")
    (run / "manifest.json").unlink(missing_ok=True)
    change(run / "run.json", lambda record: record["data"]["classes"].append(label))
    before = sorted(tmp_path.rglob("*"))
    ended = told("export", run, "--to", "imagefolder", "--output", tmp_path / "out", "--copy")
    assert ended.code == 1, ended.out
    assert sorted(path for path in tmp_path.rglob("*") if path.name != ".labelloop.lock") == [
        path for path in before if path.name not in (".labelloop.lock", "manifest.json")
    ]


def test_a_run_copies_no_file_that_it_cannot_prove_to_have_read(tmp_path: Path) -> None:
    """`sha256: null` and the path of any file with as many rows."""
    run = corrected_run(tmp_path / "run")
    secret = tmp_path / "secret.csv"
    secret.write_text(ROWS.replace("r", "s"))
    change(run / "run.json", lambda record: record["source"].update(path=str(secret), sha256=None))
    ended = told("export", run, "--to", "csv", "--output", tmp_path / "out.csv")
    assert ended.code == 1
    assert f"--input {secret}" in ended.err
    assert not (tmp_path / "out.csv").exists()
    assert told("export", run, "--to", "csv", "--output", tmp_path / "out.csv", "--input", secret).code == 0


def test_a_folder_of_images_is_recognised_or_named(tmp_path: Path) -> None:
    data = images(tmp_path)
    run = made_run(data, tmp_path / "run", {0: ("cat", 0.9)})
    assert told("export", run, "--to", "imagefolder", "--output", tmp_path / "one").code == 0
    change(run / "run.json", lambda record: record["source"].update(listing=None))  # as older versions wrote it
    ended = told("export", run, "--to", "imagefolder", "--output", tmp_path / "two")
    assert (ended.code, f"--input {data}" in ended.err) == (1, True)
    assert told("export", run, "--to", "imagefolder", "--output", tmp_path / "two", "--input", data).code == 0


def test_links_to_what_is_no_image_are_not_copied(tmp_path: Path) -> None:
    """A stranger's folder of images may link to a key; a link to an image is followed, as exports make such links."""
    data = images(tmp_path)
    (tmp_path / "key").write_text("secret")
    (data / "notes.txt").symlink_to(tmp_path / "key")
    Image.new("RGB", (2, 2)).save(tmp_path / "elsewhere.png")
    (data / "cat" / "linked.png").symlink_to(tmp_path / "elsewhere.png")
    run = made_run(data, tmp_path / "run", {0: ("cat", 0.9)})
    (data / "cat" / "later.png").symlink_to(tmp_path / "key")
    ended = told("export", run, "--to", "imagefolder", "--copy", "--output", tmp_path / "out", "--input", data)
    assert (ended.code, "2 links to other files are not copied: cat/later.png, notes.txt" in ended.err) == (0, True)
    there = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert "linked.png" in there
    assert b"secret" not in b"".join(there.values())
    with zipfile.ZipFile(tmp_path / "out.undo.zip") as stored:
        assert not any("later" in name or "notes" in name for name in stored.namelist())


def test_a_pipe_as_the_input_is_not_waited_for(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    os.mkfifo(tmp_path / "pipe.csv")
    change(run / "run.json", lambda record: record["source"].update(path=str(tmp_path / "pipe.csv")))
    assert told("export", run, "--to", "csv", "--output", tmp_path / "out.csv").code == 1


# --- manifests of images, and links in a run ------------------------------------------------------------------------


def manifest(folder: Path) -> Path:
    images(folder)
    rows = [f"data/{'cat' if k % 2 else 'dog'}/{k}.png,{'cat' if k % 2 else 'dog'}" for k in range(8)]
    (folder / "metadata.csv").write_text("file_name,label\n" + "\n".join(rows) + "\n")
    return folder / "metadata.csv"


def test_links_out_of_a_manifest_are_refused_and_pipes_are_not_waited_for(tmp_path: Path) -> None:
    table = manifest(tmp_path / "in")
    picture = tmp_path / "in" / "data" / "dog" / "0.png"
    picture.unlink()
    os.mkfifo(picture)
    assert [bad.row for bad in read_table(table, ReadOptions(progress=False)).unreadable] == [0]
    picture.unlink()
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    picture.symlink_to(tmp_path / "secret.png")
    with pytest.raises(DataError, match="is a link that leads out"):
        read_table(table, ReadOptions(progress=False))
    picture.unlink()
    picture.symlink_to("2.png")
    assert not read_table(table, ReadOptions(progress=False)).unreadable


def test_a_run_that_links_elsewhere_is_not_read(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    (run / "labels.parquet").rename(tmp_path / "elsewhere.parquet")
    (run / "labels.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(DataError, match="is a link that leads out"):
        read_run(run)
    folder = model(tmp_path / "model")
    (tmp_path / "private").mkdir()
    (folder / "trained_encoder").symlink_to(tmp_path / "private")
    with pytest.raises(DataError, match="is a link that leads out"):
        copy_encoder(folder, tmp_path / "out")


# --- arrays that claim too much -------------------------------------------------------------------------------------


def npy(shape: tuple[int, ...], content: bytes = b"") -> bytes:
    place = io.BytesIO()
    np.lib.format.write_array_header_1_0(place, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return place.getvalue() + content


def test_a_header_that_claims_80_terabytes_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(npy((10**13,)))
    with pytest.raises(ValueError, match="claims 80000000000000 bytes"):
        load_array(tmp_path / "x.npy")
    (tmp_path / "y.npy").write_bytes(npy((-5,)))
    with pytest.raises(ValueError, match=r"negative|not an array"):
        load_array(tmp_path / "y.npy")
    ended = told("correct", tmp_path / "x.npy", "--output", tmp_path / "out.csv")
    assert ended.code in (1, 2)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as made:
        made.writestr("X.npy", npy((10**13,)))
        made.writestr("y.npy", npy((1,), bytes(8)))
    with pytest.raises(ValueError, match="claims"):
        load_arrays(tmp_path / "x.npz")
    ended = told("fit", tmp_path / "x.npz", "--dry-run")
    assert (ended.code, "claims 80000000000000 bytes" in ended.err) == (1, True)


def test_an_archive_that_grows_a_thousandfold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "SUSPICIOUS", 2**20)
    size = 2**26
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made,
        made.open("X.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy((size // 8,)))
        for _ in range(size // 2**24):
            member.write(bytes(2**24))
    assert (tmp_path / "bomb.npz").stat().st_size < 2**17
    with pytest.raises(ValueError, match="claims"):
        load_arrays(tmp_path / "bomb.npz")
    ended = told("fit", tmp_path / "bomb.npz", "--dry-run")
    assert (ended.code, "would become" in ended.err) == (1, True)


@pytest.mark.parametrize("name", ["labels.parquet", "preview.parquet"])
def test_a_table_that_grows_a_thousandfold_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet says "the same value a billion times" in a few bytes."""
    run = corrected_run(tmp_path / "run")
    monkeypatch.setattr(trust, "SUSPICIOUS", 2**20)
    schema = pq.read_schema(run / name)
    rows = 2**18
    one = pa.table(
        {key: pa.repeat(pa.scalar(None, schema.field(key).type), rows) for key in schema.names}, schema=schema
    )
    with pq.ParquetWriter(run / name, schema) as file:
        for _ in range(16):
            file.write_table(one)
    (run / "manifest.json").unlink()
    with pytest.raises(DataError, match="would become"):
        read_parquet(run / name)
    ended = told("report", run)
    assert ended.code in (0, 1)
    assert "Traceback" not in ended.err
    if name == "labels.parquet":
        ended = told("export", run, "--to", "issues", "--output", tmp_path / "i.csv")
        assert (ended.code, "would become" in ended.err) == (1, True), ended.err


def test_a_data_file_that_grows_a_thousandfold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "SUSPICIOUS", 2**20)
    rows = 2**20
    columns = {"a": pa.repeat(1.5, rows), "b": pa.repeat("x", rows), "label": pa.repeat("dog", rows)}
    for folder in ("file", "parts"):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table(columns), tmp_path / folder / "rows.parquet")
    for path in (tmp_path / "file" / "rows.parquet", tmp_path / "parts"):
        for command in (("fit", path, "--dry-run"), ("correct", path, "--output", tmp_path / "c.csv")):
            ended = told(*command)
            assert (ended.code, "would become" in ended.err) == (1, True), ended.err
    monkeypatch.setattr(trust, "SUSPICIOUS", 2**30)
    assert own_columns(tmp_path / "parts").num_rows == rows


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string())])
def test_a_long_text_that_is_repeated_is_counted_as_often_as_it_stands_there(tmp_path: Path, kind: pa.DataType) -> None:
    """A dictionary holds a megabyte once, and a few bytes say "a million times": a terabyte in memory."""
    for rows, refused in ((256, False), (2**15, True)):
        once = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 2**20]))
        ends = pa.array(range(0, rows + 1, 2), pa.int32())
        column = once if pa.types.is_string(kind) else pa.ListArray.from_arrays(ends, once)
        pq.write_table(pa.table({"text": column}), tmp_path / "t.parquet", store_schema=False)
        assert (tmp_path / "t.parquet").stat().st_size < 2**17
        if refused:
            with pytest.raises(DataError, match="would become"):
                read_parquet(tmp_path / "t.parquet")
        else:
            assert read_parquet(tmp_path / "t.parquet").nbytes >= rows * 2**20


# --- links that something would be written through ------------------------------------------------------------------


def test_a_decision_is_not_written_through_a_link(tmp_path: Path) -> None:
    """A stranger's reviews.jsonl may be a link to a file that the shell runs."""
    run = corrected_run(tmp_path / "run")
    (tmp_path / "profile").write_text("mine\n")
    (run / "reviews.jsonl").symlink_to(tmp_path / "profile")
    answer = Answer("a-key-of-its-own", 1, "r1", "ann", "keep", "cat", "now")
    for attempt in (lambda: append_answers(run, [answer]), lambda: read_answers(run)):
        with pytest.raises(DataError, match="is a link that leads out"):
            attempt()
    (run / "reviews.jsonl").unlink()
    (run / "reviews.jsonl").symlink_to(tmp_path / "new")  # which does not exist yet
    with pytest.raises(OSError, match="symbolic links"):
        append_answers(run, [answer])
    assert ((tmp_path / "profile").read_text(), (tmp_path / "new").exists()) == ("mine\n", False)
    (run / "reviews.jsonl").unlink()
    os.mkfifo(run / "reviews.jsonl")
    with pytest.raises(DataError, match="is not a file but a pipe"):
        append_answers(run, [answer])


def test_a_lock_is_not_written_through_a_link(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    (tmp_path / "key").write_text("secret")
    (run / ".labelloop.lock").symlink_to(tmp_path / "key")
    ended = told("correct", tmp_path / "rows.csv", "--output-dir", run, "--overwrite", "--quiet", "--no-report")
    assert (ended.code, ended.err.count("\n")) == (1, 1), ended.err
    assert (tmp_path / "key").read_text() == "secret"


def test_a_figure_is_not_drawn_through_a_link(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    (tmp_path / "profile").write_text("mine")
    for name in ("verify.curve.png", "verify.curve.svg", "verify.curve.json", "reliability.png", "reliability.svg"):
        (run / name).symlink_to(tmp_path / "profile")
    assert told("plan", run).code == 0
    assert told("report", run, "--figures").code == 0
    assert (tmp_path / "profile").read_text() == "mine"
    assert not any((run / name).is_symlink() for name in ("verify.curve.png", "reliability.svg"))


def test_pipes_in_a_run_are_not_waited_for(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    os.mkfifo(run / ".labelloop.lock")
    ended = told("correct", tmp_path / "rows.csv", "--output-dir", run, "--overwrite", "--quiet", "--no-report")
    assert (ended.code, ended.err.count("\n")) == (1, 1), ended.err
    for name in ("epoch-0001.safetensors", "features-0123.npy"):
        os.mkfifo(tmp_path / name)
        read = read_tensors if name.endswith(".safetensors") else read_large
        with pytest.raises(DataError, match="is not a file but a pipe"):
            read(tmp_path / name, {"bytes": 1, "sha256": ""})


@pytest.mark.parametrize("name", ["checkpoint", "metrics.jsonl", "trained_encoder", "targets.npy"])
def test_a_run_is_not_continued_through_a_link(tmp_path: Path, name: str) -> None:
    run = corrected_run(tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "epoch-3.safetensors").write_text("mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "elsewhere")
    for resume in (True, False):
        with pytest.raises(DataError, match="is a link that leads out"):
            RunFolder(run, resume=resume, overwrite=not resume)
    assert os.listdir(tmp_path / "elsewhere") == ["epoch-3.safetensors"]


def test_a_flipped_bit_in_a_text_is_damage(tmp_path: Path) -> None:
    """It may make bytes that are no text, which Arrow reads and only Python notices."""
    run = corrected_run(tmp_path / "run")
    table = pq.read_table(run / "labels.parquet")
    names = [name.encode() for name in table["id"].to_pylist()]
    ids = pa.array([*names[:-1], b"\xf2("]).view(pa.string())
    pq.write_table(table.set_column(table.column_names.index("id"), "id", ids), run / "labels.parquet")
    (run / "manifest.json").unlink()
    for to in ("csv", "issues"):
        ended = told("export", run, "--to", to, "--output", tmp_path / "out.csv")
        assert (ended.code, "is damaged" in ended.err) == (1, True), ended.err
    assert told("report", run).code == 0
    assert not (tmp_path / "out.csv").exists()
