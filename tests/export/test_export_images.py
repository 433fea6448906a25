"""Image folders out: links or copies in the folder of the corrected class, and the input tree back again."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_runs import run_of

from labelloop.data.options import origin_of
from labelloop.data.table import from_arrays

IMAGES = {  # what each image holds; only the bytes matter here
    "cat/1.png": b"cat one",
    "cat/2.png": b"a dog, filed under cat",
    "cat/deep/3.png": b"a dog again",
    "dog/1.png": b"dog one",
    "dog/2.png": b"dog two",
}
CORRECTED = {1: ("dog", 0.9), 2: ("dog", 0.6)}


def image_folder(root: Path) -> Path:
    for name, content in {**IMAGES, "README.txt": b"not an image"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def folder_run(root: Path, run: Path) -> Path:
    names = list(IMAGES)
    table = from_arrays(
        np.zeros((len(names), 2), np.float32),
        [name.split("/")[0] for name in names],
        ["cat", "", "", "dog", ""],
        ids=names,
        source=str(root),
        origin=origin_of("image-folder", root, {}, names),
    )
    return run_of(table, run, CORRECTED)


def tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("copy", [False, True], ids=["links", "copies"])
@pytest.mark.parametrize("action", ["relabel", "drop"])
def test_a_tree_and_the_input_back_again(labelloop, tmp_path, copy, action):
    root = image_folder(tmp_path / "images")
    run = folder_run(root, tmp_path / "run")
    before = tree(root)
    out = tmp_path / "fixed"
    flags = (*(["--copy"] if copy else []), "--action", action)
    done = labelloop("export", run, "--to", "imagefolder", "--output", out, *flags)
    assert done.code == 0, done.err
    expected = {"README.txt", "cat/1.png", "dog/1.png", "dog/2.png"}
    if action == "relabel":
        expected |= {"dog/2-from-cat.png", "dog/deep/3.png"}  # dog/2.png was there already
        assert (out / "dog/2-from-cat.png").read_bytes() == IMAGES["cat/2.png"]
    assert set(tree(out)) == expected
    assert all(path.is_symlink() != copy for path in out.rglob("*.png"))
    assert tree(root) == before

    undo = tmp_path / "fixed.undo.zip"
    assert "nothing to undo" in labelloop("undo", undo).out
    if copy:
        shutil.rmtree(root)  # copies stand on their own, and what was dropped is in the undo file
    restored = labelloop("undo", undo, "--output", tmp_path / "back")
    assert restored.code == 0, restored.err
    assert tree(tmp_path / "back") == before
    assert not any(path.is_symlink() for path in (tmp_path / "back").rglob("*"))


def test_the_changes_of_a_folder_are_on_record(labelloop, tmp_path):
    run = folder_run(image_folder(tmp_path / "images"), tmp_path / "run")
    flags = ("--min-confidence", "0.8", "--output", tmp_path / "fixed")
    assert labelloop("export", run, "--to", "imagefolder", *flags).code == 0
    with (tmp_path / "fixed.changes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["id"], r["column"], r["before"], r["after"]) for r in rows] == [("cat/2.png", "folder", "cat", "dog")]
    assert (tmp_path / "fixed" / "cat" / "deep" / "3.png").exists()


def test_a_folder_as_a_table(labelloop, tmp_path):
    run = folder_run(image_folder(tmp_path / "images"), tmp_path / "run")
    assert labelloop("export", run, "--to", "csv", "--output", tmp_path / "new.csv").code == 0
    with (tmp_path / "new.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file_name"] for row in rows] == list(IMAGES)
    assert [row["corrected_label"] for row in rows] == ["cat", "dog", "dog", "dog", "dog"]


def test_an_image_that_is_gone_is_named(labelloop, tmp_path):
    root = image_folder(tmp_path / "images")
    run = folder_run(root, tmp_path / "run")
    (root / "cat" / "2.png").unlink()
    ended = labelloop("export", run, "--to", "imagefolder", "--output", tmp_path / "fixed")
    assert ended.code == 1
    assert "1 images of the run are gone: cat/2.png" in ended.err
    assert not list(tmp_path.glob("*fixed*"))


def test_undo_says_what_it_cannot_find(labelloop, tmp_path):
    root = image_folder(tmp_path / "images")
    run = folder_run(root, tmp_path / "run")
    assert labelloop("export", run, "--to", "imagefolder", "--output", tmp_path / "fixed").code == 0
    (root / "cat" / "1.png").unlink()  # the output only links to it
    ended = labelloop("undo", tmp_path / "fixed.undo.zip", "--output", tmp_path / "back")
    assert ended.code == 1
    assert "cat/1.png is neither in" in ended.err
    assert not list(tmp_path.glob("*back*"))


def test_images_named_in_a_table(labelloop, tmp_path):
    root = image_folder(tmp_path / "images")
    names = list(IMAGES)
    given = ["cat", "cat", "cat", "dog", ""]
    lines = "".join(f"{name},{label},\n" for name, label in zip(names, given, strict=True))
    (root / "table.csv").write_text("file_name,label,clean_label\n" + lines)
    origin = origin_of("image-table", root / "table.csv", {}, label_column="label", file_name_column="file_name")
    table = from_arrays(np.zeros((5, 2), np.float32), given, ["cat"] + [""] * 4, ids=names, origin=origin)
    run = run_of(table, tmp_path / "run", CORRECTED)
    flags = ("--action", "keep", "--output", tmp_path / "fixed")
    assert labelloop("export", run, "--to", "imagefolder", *flags).code == 0
    assert set(tree(tmp_path / "fixed")) == {"cat/1.png", "cat/2.png", "cat/3.png", "dog/1.png"}  # one has no label


@pytest.mark.parametrize("name", ["a/../../../evil", ".", "..", "/evil"])
def test_a_class_that_is_a_path_is_no_folder(labelloop, tmp_path, name):
    data = tmp_path / "deep" / "data"
    data.mkdir(parents=True)
    (data / "table.csv").write_text(f"file_name,label,clean_label\n1.png,{name},{name}\n2.png,dog,\n")
    for image in ("1.png", "2.png"):
        (data / image).write_bytes(image.encode())
    origin = origin_of("image-table", data / "table.csv", {}, label_column="label", file_name_column="file_name")
    rows = from_arrays(np.zeros((2, 2), np.float32), [name, "dog"], [name, ""], ids=["1.png", "2.png"], origin=origin)
    run = run_of(rows, tmp_path / "run", {})
    before = tree(tmp_path)
    ended = labelloop("export", run, "--to", "imagefolder", "--output", tmp_path / "deep" / "out")
    assert (ended.code, f"the class {name!r} cannot be the name of a folder" in ended.err) == (1, True), ended.err
    assert tree(tmp_path) == before


def test_an_output_inside_the_input_is_refused(labelloop, tmp_path):
    root = image_folder(tmp_path / "images")
    run = folder_run(root, tmp_path / "run")
    before = tree(root)
    ended = labelloop("export", run, "--to", "imagefolder", "--output", root / "new" / "fixed")
    assert (ended.code, "the input, which must not change" in ended.err) == (2, True)
    assert labelloop("export", run, "--to", "csv", "--output", root / "fixed.csv").code == 2
    assert tree(root) == before
    assert not (root / "new").exists()


def test_a_table_of_an_image_folder_says_why_it_has_no_undo_file(labelloop, tmp_path):
    run = folder_run(image_folder(tmp_path / "images"), tmp_path / "run")
    done = labelloop("export", run, "--to", "csv", "--output", tmp_path / "images.csv")
    assert (done.code, "no undo file: no image was moved or changed" in done.out) == (0, True)
    assert not (tmp_path / "images.csv.undo.zip").exists()
