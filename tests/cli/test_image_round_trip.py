"""Images all the way: fit, predict, export, fit on the export, and the input back byte for byte."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from cli_tools import contents, labels_of, run_json, settings
from PIL import Image
from real_images import CLASSES, pictures

pytestmark = pytest.mark.slow

QUICK = ("epochs=2", "rounds=1", "network_options.widths=[4, 4]")
COUNT = 120


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return pictures(COUNT // 2)


def given(i: int) -> str:
    """Two in ten are in the wrong folder."""
    return CLASSES[(i % 2) ^ (i % 10 < 2)]


def save(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_a_folder_out_and_in_again(ending, pixels, labelloop, tmp_path):
    photos, clean, fixed = tmp_path / "photos", tmp_path / "clean", tmp_path / "fixed"
    for i, image in enumerate(pixels):
        save(photos / given(i) / f"{i:03d}.{ending}", image)
        if i % 3 == 0:
            save(clean / CLASSES[i % 2] / f"{i:03d}.{ending}", image)
    before = contents(photos)
    first, second = tmp_path / "first", tmp_path / "second"
    flags = ("--clean-folder", clean, *settings(QUICK))
    ended = labelloop("fit", photos, "--output-dir", first, *flags)
    assert ended.code == 0, ended.err
    labels = labels_of(first)
    assert labels["verified"] == [int(name[-7:-4]) % 3 == 0 for name in labels["id"]]
    predicted = labelloop("predict", first, photos)
    rows = list(csv.DictReader(io.StringIO(predicted.out)))
    assert [row["id"] for row in rows] == labels["id"]
    assert [row["predicted_label"] for row in rows] == labels["predicted_label"]

    copy = ["--copy"] if ending == "jpg" else []  # links else
    done = labelloop("export", first, "--to", "imagefolder", "--output", fixed, *copy)
    assert done.code == 0, done.err
    corrected = {Path(name).name: label for name, label in zip(labels["id"], labels["corrected_label"], strict=True)}
    assert {path.name: path.parent.name for path in fixed.rglob(f"*.{ending}")} == corrected

    ended = labelloop("fit", fixed, "--output-dir", second, *flags)
    assert ended.code == 0, ended.err
    again = labels_of(second)
    assert {Path(name).name: label for name, label in zip(again["id"], again["given_label"], strict=True)} == corrected
    for name, label, known in zip(again["id"], again["given_label"], again["verified"], strict=True):
        number = int(name[-7:-4])
        assert known == (number % 3 == 0)
        assert not known or label == CLASSES[number % 2]  # the export has put it where it belongs
    assert run_json(second)["data"]["clean_paired"] == COUNT // 3

    assert contents(photos) == before
    back = labelloop("undo", tmp_path / "fixed.undo.zip", "--output", tmp_path / "back")
    assert back.code == 0, back.err
    assert contents(tmp_path / "back") == before


@pytest.mark.parametrize("replace", [True, False], ids=["replaced", "added"])
def test_a_table_of_images_out_and_in_again(replace, pixels, labelloop, tmp_path):
    lines = ["file_name,label,clean_label,note"]
    for i, image in enumerate(pixels):
        name = f"{i:03d}.{'png' if i % 2 else 'jpg'}"
        save(tmp_path / "photos" / name, image)
        lines.append(f'photos/{name},{given(i)},{"" if i % 3 else CLASSES[i % 2]},"kept, as it is"')
    table, fixed = tmp_path / "rows.csv", tmp_path / "fixed.csv"
    table.write_bytes("\r\n".join(lines).encode() + b"\r\n")
    before = table.read_bytes()
    first, second = tmp_path / "first", tmp_path / "second"
    assert labelloop("fit", table, "--output-dir", first, *settings(QUICK)).code == 0
    labels = labels_of(first)
    flags = ["--replace"] if replace else []
    done = labelloop("export", first, "--to", "csv", "--output", fixed, *flags)
    assert done.code == 0, done.err

    flags = [] if replace else ["--label-column", "corrected_label"]
    ended = labelloop("fit", fixed, "--output-dir", second, *flags, *settings(QUICK))
    assert ended.code == 0, ended.err
    again = labels_of(second)
    assert again["id"] == labels["id"] == [line.split(",")[0] for line in lines[1:]]
    assert again["given_label"] == labels["corrected_label"]
    assert again["verified"] == labels["verified"] == [i % 3 == 0 for i in range(COUNT)]
    assert run_json(second)["source"]["kind"] == "image-table"

    assert "nothing to undo" in labelloop("undo", tmp_path / "fixed.csv.undo.zip").out
    table.unlink()
    assert labelloop("undo", tmp_path / "fixed.csv.undo.zip").code == 0
    assert table.read_bytes() == before
