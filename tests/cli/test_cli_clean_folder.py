"""Clean images in class folders of their own, joined to an image folder by content or by name."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from cli_tools import contents, labels_of, run_json, settings
from PIL import Image

QUICK = ("epochs=2", "rounds=1", "network_options.widths=[4, 4]")
CLASSES = ("cat", "ship")


def picture(number: int) -> Image.Image:
    """Dark for even numbers, bright for odd ones; no two alike."""
    pixels = np.random.default_rng(number).integers(0, 128, (8, 8, 3)) + 100 * (number % 2)
    return Image.fromarray(pixels.astype(np.uint8))


def save(path: Path, number: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(number).save(path)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """24 images: cats are even and ships are odd, but 00.png to 03.png are in the wrong folder."""
    for i in range(24):
        save(tmp_path / "photos" / CLASSES[(i % 2) ^ (i < 4)] / f"{i:02d}.png", i)
    save(tmp_path / "photos" / "unlabelled" / "24.png", 24)
    return tmp_path / "photos"


def test_the_same_images_are_joined_and_the_others_added(photos, labelloop, tmp_path):
    clean, run = tmp_path / "clean", tmp_path / "run"
    for i in (0, 1, 8, 9):
        save(clean / CLASSES[i % 2] / f"{i:02d}.png", i)  # content and name
    save(clean / "cat" / "any" / "other.png", 10)  # content alone
    save(clean / "ship" / "05.png", 5).write_bytes(save(tmp_path / "x.bmp", 5).read_bytes())  # name alone
    save(clean / "cat" / "24.png", 24)  # it had no label
    save(clean / "ship" / "new.png", 101)
    save(clean / "cat" / "new.png", 100)
    ended = labelloop("fit", photos, "--output-dir", run, "--clean-folder", clean, *settings(QUICK))
    assert ended.code == 0, ended.err
    assert "1 images have the name of an image of" in ended.err
    assert "other content: ship/05.png" in ended.err
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    labels = labels_of(run)
    assert labels["id"] == [*names, "clean:cat/new.png", "clean:ship/new.png"]
    rows = {name: i for i, name in enumerate(labels["id"])}
    verified = {"ship/00.png": "cat", "cat/01.png": "ship", "cat/08.png": "cat", "ship/09.png": "ship"}
    verified |= {"cat/10.png": "cat", "ship/05.png": "ship", "unlabelled/24.png": "cat"}
    verified |= {"clean:cat/new.png": "cat", "clean:ship/new.png": "ship"}
    assert {name for name, row in rows.items() if labels["verified"][row]} == set(verified)
    assert {name: labels["corrected_label"][rows[name]] for name in verified} == verified
    given = [None if name.startswith(("unl", "clean:")) else name.split("/")[0] for name in labels["id"]]
    assert labels["given_label"] == given
    about = run_json(run)
    assert (about["data"]["clean_paired"], about["data"]["clean_unpaired"], about["data"]["noisy"]) == (6, 3, 18)
    assert about["source"]["options"] == {"clean_folder": str(clean), "added_rows": 2}

    for to in ("csv", "imagefolder"):  # the input comes back, without what was added
        done = labelloop("export", run, "--to", to, "--output", tmp_path / f"fixed{'.csv' if to == 'csv' else ''}")
        assert done.code == 0, done.err
    with (tmp_path / "fixed.csv").open(newline="") as file:
        assert [row["file_name"] for row in csv.DictReader(file)] == names
    assert (tmp_path / "fixed" / "cat" / "00.png").read_bytes() == (photos / "ship" / "00.png").read_bytes()
    assert len(list((tmp_path / "fixed").rglob("*.png"))) == len(names)


def test_the_prefix_of_added_images_is_no_folder(photos, labelloop, tmp_path):
    (photos / "cat").rename(photos / "clean:cat")
    for i in range(4):
        save(tmp_path / "clean" / ("clean:cat", "ship")[i % 2] / f"new{i}.png", 100 + i)
    flags = ("--clean-folder", tmp_path / "clean", *settings(QUICK))
    ended = labelloop("fit", photos, "--output-dir", tmp_path / "run", *flags)
    assert ended.code == 0, ended.err
    ids = labels_of(tmp_path / "run")["id"]
    assert ids[-4:] == [
        f"_clean:{n}" for n in ("clean:cat/new0.png", "clean:cat/new2.png", "ship/new1.png", "ship/new3.png")
    ]


def test_two_images_alike_are_told_apart_by_name(photos, labelloop, tmp_path):
    save(photos / "ship" / "twin.png", 4)
    for i in (4, 5):
        save(tmp_path / "clean" / CLASSES[i % 2] / f"{i:02d}.png", i)
    flags = ("--clean-folder", tmp_path / "clean", *settings(QUICK))
    assert labelloop("fit", photos, "--output-dir", tmp_path / "run", *flags).code == 0
    labels = labels_of(tmp_path / "run")
    assert [n for n, known in zip(labels["id"], labels["verified"], strict=True) if known] == [
        "cat/04.png",
        "ship/05.png",
    ]


def no_folder(photos: Path, clean: Path) -> None:
    pass


def empty(photos: Path, clean: Path) -> None:
    (clean / "cat").mkdir(parents=True)


def unknown_class(photos: Path, clean: Path) -> None:
    save(clean / "cta" / "1.png", 100)


def no_class(photos: Path, clean: Path) -> None:
    save(clean / "1.png", 100)


def unlabelled(photos: Path, clean: Path) -> None:
    save(clean / "unlabelled" / "1.png", 100)


def ambiguous_name(photos: Path, clean: Path) -> None:
    for folder, number in (("cat", 50), ("ship", 51)):
        save(photos / folder / "a" / "1.png", number)
    save(clean / "cat" / "a" / "1.png", 100)


def ambiguous_content(photos: Path, clean: Path) -> None:
    save(photos / "ship" / "twin.png", 4)
    save(clean / "cat" / "new.png", 4)


def two_classes(photos: Path, clean: Path) -> None:
    for name in CLASSES:
        save(clean / name / "04.png", 4)


BAD = [
    (no_folder, ["no such folder", "--clean-folder"]),
    (empty, ["no images", ".png"]),
    (unknown_class, ["no class 'cta'", "did you mean 'cat'?"]),
    (no_class, ["1 images are in no class folder: 1.png"]),
    (unlabelled, ["1 images are in no class folder: unlabelled/1.png"]),
    (ambiguous_name, ["cat/a/1.png: 2 images of", "this name: cat/a/1.png, ship/a/1.png", "rename"]),
    (ambiguous_content, ["cat/new.png: 2 images of", "this content: cat/04.png, ship/twin.png"]),
    (two_classes, ["cat/04.png and ship/04.png are both cat/04.png", "in two classes"]),
]


@pytest.mark.parametrize(("write", "words"), BAD)
def test_what_is_wrong_is_named_and_nothing_is_left_behind(write, words, photos, labelloop, tmp_path):
    write(photos, tmp_path / "clean")
    before = contents(tmp_path)
    flags = ("--clean-folder", tmp_path / "clean", *settings(QUICK))
    ended = labelloop("fit", photos, "--output-dir", tmp_path / "run", *flags)
    assert ended.code == 1
    for word in words:
        assert word in ended.err.splitlines()[-1]
    assert contents(tmp_path) == before


def test_a_clean_folder_inside_the_photos(photos, labelloop, tmp_path):
    ended = labelloop("fit", photos, "--output-dir", tmp_path / "run", "--clean-folder", photos / "cat")
    assert ended.code == 1
    assert "move it out" in ended.err


def test_wrong_usage(photos, labelloop, tmp_path):
    flags = ("--clean-folder", tmp_path, "--clean-file", tmp_path / "c.csv")
    ended = labelloop("fit", photos, "--output-dir", tmp_path / "run", *flags)
    assert ended.code == 2
    assert "not allowed with argument --clean-f" in ended.err
    (tmp_path / "rows.csv").write_text("a,label\n1,x\n2,y\n")
    ended = labelloop("fit", tmp_path / "rows.csv", "--output-dir", tmp_path / "run", "--clean-folder", tmp_path)
    assert ended.code == 2
    assert "--clean-folder needs class folders of images" in ended.err
