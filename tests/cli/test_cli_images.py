"""Images in folders and in tables through fit and predict, and what is wrong with some of them."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_tools import Ran, contents, labels_of, run_json, settings
from PIL import Image
from real_images import CLASSES, pictures

from labelloop.data import image_files as image_store
from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError

pytestmark = pytest.mark.slow

QUICK = (
    "epochs=3",
    "rounds=1",
    "batch_size=16",
    "network_options.widths=[4, 4]",
)


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return pictures(24)


def names(ending: str) -> list[str]:
    """Two in ten are in the wrong folder; two have no label. Sorted, as a folder is read."""
    folders = ["unlabelled" if i >= 46 else CLASSES[(i % 2) ^ (i % 10 < 2)] for i in range(48)]
    return [f"{folder}/{i:02d}.{ending}" for i, folder in enumerate(folders)]


def write_tree(root: Path, pixels: np.ndarray, ending: str = "png") -> list[str]:
    for name, image in zip(names(ending), pixels, strict=True):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / name)
    return sorted(names(ending))


def write_clean(path: Path, ids: list[str], column: str = "file_name") -> Path:
    """The true label of every third image."""
    rows = [f"{name},{CLASSES[int(Path(name).stem) % 2]}" for name in ids[::3]]
    path.write_text("\n".join([f"{column},clean_label", *rows]) + "\n")
    return path


def rows_of(ended: Ran) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(ended.out)))


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_a_folder_for_each_class_with_a_clean_file(ending, pixels, labelloop, tmp_path):
    ids = write_tree(tmp_path / "images", pixels, ending)
    clean = write_clean(tmp_path / "clean.csv", ids)
    run = tmp_path / "run"
    ended = labelloop("fit", tmp_path / "images", "--output-dir", run, "--clean-file", clean, *settings(QUICK))
    assert ended.code == 0, ended.err
    labels, about = labels_of(run), run_json(run)
    assert labels["id"] == ids
    assert labels["given_label"] == [None if name.startswith("unl") else name.split("/")[0] for name in ids]
    assert labels["verified"] == [i % 3 == 0 for i in range(48)]
    assert [labels["corrected_label"][i] for i in range(0, 48, 3)] == [CLASSES[int(n[-6:-4]) % 2] for n in ids[::3]]
    assert None not in labels["corrected_label"]
    source = about["source"]
    assert (source["kind"], source["path"], source["sha256"]) == ("image-folder", str(tmp_path / "images"), None)
    assert (source["label_column"], source["class_names"]) == (None, list(CLASSES))
    assert source["options"]["clean_file"] == str(clean)
    assert not (run / "unreadable.csv").exists()
    found = rows_of(labelloop("predict", run, tmp_path / "images"))
    assert [row["id"] for row in found] == ids
    assert [row["predicted_label"] for row in found] == labels["predicted_label"]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_table_beside_its_images(ending, pixels, labelloop, tmp_path):
    root = tmp_path / "images"
    ids = write_tree(root, pixels)
    given = ["" if name.startswith("unl") else name.split("/")[0] for name in ids]
    clean = ["" if i % 3 else CLASSES[int(name[-6:-4]) % 2] for i, name in enumerate(ids)]
    rows = list(zip(ids, given, clean, strict=True))[::-1]  # the order of the table, not that of the folder
    if ending == "csv":
        text = "file_name,label,clean_label\n" + "".join(",".join(row) + "\n" for row in rows)
    else:
        text = "".join(f'{{"file_name": "{a}", "label": "{b}", "clean_label": "{c}"}}\n' for a, b, c in rows)
    (root / f"metadata.{ending}").write_text(text)
    for number, data in enumerate([root, root / f"metadata.{ending}"]):
        run = tmp_path / f"run{number}"
        assert labelloop("fit", data, "--output-dir", run, *settings(QUICK)).code == 0
        labels, source = labels_of(run), run_json(run)["source"]
        assert labels["id"] == ids[::-1]
        assert (source["kind"], source["file_name_column"]) == ("image-table", "file_name")
        assert source["path"] == str(root / f"metadata.{ending}")
        found = rows_of(labelloop("predict", run, data))
        assert [row["predicted_label"] for row in found] == labels["predicted_label"]


def test_images_that_cannot_be_read_are_listed_and_left_out(pixels, labelloop, tmp_path):
    root, run = tmp_path / "images", tmp_path / "run"
    ids = write_tree(root, pixels)
    clean = write_clean(tmp_path / "clean.csv", ids)
    whole = (root / ids[4]).read_bytes()
    (root / ids[4]).write_bytes(whole[: len(whole) // 2])
    (root / ids[9]).write_bytes(b"no image")
    flags = (root, "--output-dir", run, "--clean-file", clean, *settings(QUICK))
    stopped = labelloop("fit", *flags)
    assert stopped.code == 1
    for word in ("2 of 48 images cannot be read", "4.2%", "1%", str(run / "unreadable.csv"), "--max-unreadable"):
        assert word in stopped.err
    assert [path.name for path in run.iterdir()] == ["unreadable.csv"]
    ended = labelloop("fit", *flags, "--max-unreadable", "0.05")
    assert ended.code == 0, ended.err
    assert "warning" in ended.err
    listed = list(csv.DictReader((run / "unreadable.csv").read_text().splitlines()))
    assert [(row["id"], row["path"]) for row in listed] == [(ids[i], str(root / ids[i])) for i in (4, 9)]
    assert all(row["reason"].startswith("cannot be decoded") for row in listed)
    labels = labels_of(run)
    assert labels["id"] == ids
    gone = [i for i, label in enumerate(labels["corrected_label"]) if label is None]
    assert gone == [4, 9]
    assert [labels["predicted_label"][i] for i in gone] == [None, None]
    about = run_json(run)["data"]
    assert sum(about[key] for key in ("noisy", "unlabelled", "clean_paired", "clean_unpaired")) == 46
    predicted = labelloop("predict", run, root)
    assert predicted.code == 0
    assert "2 images get no prediction" in predicted.err
    assert [i for i, row in enumerate(rows_of(predicted)) if row["predicted_label"] == ""] == [4, 9]


def test_images_too_many_for_memory_are_streamed(pixels, labelloop, tmp_path, monkeypatch):
    monkeypatch.setattr(image_store, "IN_MEMORY", 1000)
    root, run = tmp_path / "images", tmp_path / "run"
    ids = write_tree(root, pixels)
    (root / ids[9]).write_bytes(b"no image")
    flags = ("--clean-file", write_clean(tmp_path / "clean.csv", ids), "--max-unreadable", "0.1", "--image-size", "16")
    ended = labelloop("fit", root, "--output-dir", run, *flags, *settings(QUICK))
    assert ended.code == 0, ended.err
    assert run_json(run)["config"]["augment"] == "own"
    labels = labels_of(run)
    assert [i for i, label in enumerate(labels["corrected_label"]) if label is None] == [9]
    predicted = [row["predicted_label"] or None for row in rows_of(labelloop("predict", run, root))]
    assert predicted == labels["predicted_label"]


def test_workers_that_decode_change_nothing(pixels, labelloop, tmp_path, monkeypatch):
    monkeypatch.setattr(image_store, "IN_MEMORY", 1000)
    root = tmp_path / "images"
    clean = write_clean(tmp_path / "clean.csv", write_tree(root, pixels))
    found = []
    for workers in (0, 2):
        run = tmp_path / f"run-{workers}"
        flags = ("--clean-file", clean, "--image-size", "16", "--workers", workers, "--set", "epochs=2")
        ended = labelloop("fit", root, "--output-dir", run, "--method", "cross-entropy", *flags)
        assert ended.code == 0, ended.err
        predicted = labelloop("predict", run, root, "--workers", workers)
        assert predicted.code == 0, predicted.err
        found.append((predicted.out, (run / "model.safetensors").read_bytes()))
    assert found[0] == found[1]
    for command in (("fit", root, "--output-dir", tmp_path / "none"), ("predict", tmp_path / "run-0", root)):
        ended = labelloop(*command, "--workers", "-1")
        assert (ended.code, "'-1' is not a number of processes; give 0 or more" in ended.err) == (2, True)


def test_test_images_may_have_the_names_of_clean_ones(pixels, labelloop, tmp_path):
    """train/cat/1.png and test/cat/1.png are two images, unless they hold the same pixels."""
    clean = write_clean(tmp_path / "clean.csv", write_tree(tmp_path / "train", pixels))
    write_tree(tmp_path / "test", 255 - pixels)
    flags = ("--clean-file", clean, "--method", "cross-entropy", "--set", "epochs=1")
    fit = ("fit", tmp_path / "train", "--output-dir", tmp_path / "run", *flags)
    ended = labelloop(*fit, "--test", tmp_path / "test")
    assert (ended.code, "test accuracy" in ended.out, "warning" in ended.err) == (0, True, False), ended.err
    ended = labelloop(*fit, "--overwrite", "--test", tmp_path / "train" / ".." / "train")
    assert (ended.code, "test rows have the same id as a clean row" in ended.err) == (1, True)
    shutil.copytree(tmp_path / "train", tmp_path / "copy")
    ended = labelloop(*fit, "--overwrite", "--test", tmp_path / "copy")
    assert (ended.code, "test rows have the same input as a clean row" in ended.err) == (1, True)


def test_predict_gives_the_same_in_memory_and_streamed(pixels, labelloop, tmp_path, monkeypatch):
    root, run = tmp_path / "images", tmp_path / "run"
    clean = write_clean(tmp_path / "clean.csv", write_tree(root, pixels))
    flags = ("--image-size", "16", *settings(QUICK))
    assert labelloop("fit", root, "--output-dir", run, "--clean-file", clean, *flags).code == 0
    before = labelloop("predict", run, root).out
    monkeypatch.setattr(image_store, "IN_MEMORY", 1000)
    assert labelloop("predict", run, root).out == before


def test_the_size_of_the_images(pixels, tmp_path):
    write_tree(tmp_path / "a", pixels)
    assert read_table(tmp_path / "a").inputs.shape == (48, 32, 32, 3)
    assert np.array_equal(read_table(tmp_path / "a").inputs[0], pixels[names("png").index(sorted(names("png"))[0])])
    assert read_table(tmp_path / "a", ReadOptions(image_size=8)).inputs.shape == (48, 8, 8, 3)
    Image.new("L", (100, 50)).save(tmp_path / "a" / "cat" / "99.png")
    assert read_table(tmp_path / "a").inputs.shape == (49, 64, 64, 3)


def one_class(root: Path, ids: list[str]) -> list[object]:
    for name in ids:
        if name.startswith("ship"):
            (root / name).unlink()
    return [root]


def loose_image(root: Path, ids: list[str]) -> list[object]:
    (root / ids[0]).rename(root / "loose.png")
    return [root]


def parts_for_classes(root: Path, ids: list[str]) -> list[object]:
    (root / "cat").rename(root / "train")
    (root / "ship").rename(root / "test")
    return [root]


def no_images(root: Path, ids: list[str]) -> list[object]:
    (root / "empty").mkdir()
    return [root / "empty"]


def linked_class(root: Path, ids: list[str]) -> list[object]:
    (root / "cat").rename(root.parent / "elsewhere")
    (root / "cat").symlink_to(root.parent / "elsewhere")
    return [root]


def table(*rows: str) -> object:
    def write(root: Path, ids: list[str]) -> list[object]:
        text = [f"{name},{name.split('/')[0]},cat" for name in ids[:8]]
        (root / "rows.csv").write_text("\n".join(["file_name,label,clean_label", *text, *rows]) + "\n")
        return [root / "rows.csv"]

    return write


def clean_file(text: str) -> object:
    def write(root: Path, ids: list[str]) -> list[object]:
        (root.parent / "c.csv").write_text(text.format(first=ids[0]))
        return [root, "--clean-file", root.parent / "c.csv"]

    return write


BAD = [
    (one_class, ["class folders: cat", "two or more"]),
    (loose_image, ["1 images are in no class folder", "loose.png", "unlabelled/"]),
    (parts_for_classes, ["test, train", "look like parts", "--test"]),
    (no_images, ["no images", ".png"]),
    (linked_class, ["links to folders are not followed: cat", "links to files"]),
    (table("../x.png,cat,"), ["lead out of", "../x.png", "use paths inside"]),
    (table("/etc/x.png,cat,"), ["lead out of", "/etc/x.png"]),
    (table("a/../../x.png,cat,"), ["lead out of", "a/../../x.png"]),
    (table(",cat,"), ["no file name in row 8", "fill it in"]),
    (clean_file("file_name,clean_label\n{first},cat\ncat/xx.png,cat\n"), ["1 of 2 ids are not in", "cat/xx.png"]),
    (clean_file("file_name,clean_label\n{first},cta\n"), ["c.csv", "'cta'", "row 0", "'cat'"]),
    (clean_file("file_name,clean_label\n{first},cat\n{first},ship\n"), ["occur more than once", "rows 0, 1"]),
    (clean_file("name,clean_label\n{first},cat\n"), ["no column of ids", "name, clean_label"]),
    (clean_file(""), ["c.csv", "the file is empty"]),
    (clean_file("file_name,clean_label\n{first},cat,more\n"), ["c.csv", "line 2 has 3 fields"]),
]


@pytest.mark.parametrize(("write", "words"), BAD)
def test_bad_images_are_named_and_nothing_is_left_behind(write, words, pixels, labelloop, tmp_path):
    arguments = write(tmp_path / "images", write_tree(tmp_path / "images", pixels))
    before = contents(tmp_path)
    ended = labelloop("fit", *arguments, "--output-dir", tmp_path / "run", *settings(QUICK))
    assert ended.code == 1
    for word in words:
        assert word in ended.err.splitlines()[-1]
    assert contents(tmp_path) == before


def test_wrong_usage_of_images(pixels, labelloop, tmp_path):
    write_tree(tmp_path / "images", pixels)
    ended = labelloop("fit", tmp_path / "images", "--output-dir", tmp_path / "run", "--image-size", "0")
    assert ended.code == 2
    assert "--image-size is 0" in ended.err
    ended = labelloop("fit", tmp_path / "images", "--output-dir", tmp_path / "images" / "run")
    assert ended.code == 2
    assert "is inside the data" in ended.err
    assert not (tmp_path / "images" / "run").exists()
    (tmp_path / "rows.csv").write_text("a,label\n1,x\n2,y\n")
    (tmp_path / "c.csv").write_text("id,clean_label\n0,x\n")
    flags = ("--output-dir", tmp_path / "run", "--clean-file", tmp_path / "c.csv")
    ended = labelloop("fit", tmp_path / "rows.csv", *flags)
    assert ended.code == 2
    assert "these rows have none" in ended.err
    with pytest.raises(DataError, match="no column 'pictures'"):
        read_table(tmp_path / "rows.csv", ReadOptions(file_name_column="pictures"))
