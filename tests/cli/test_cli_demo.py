"""`labelloop demo`: the table, the folder, and what it leaves alone."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import contents, labels_of, run_json

from labelloop.cli import main
from labelloop.methods import recipe_config
from labelloop.workflows import demo as demo_module

PAPERS, OURS = "closed loop (the paper's method)", "LabelLoop (the default)"
TITLES = (
    "cross-entropy on the noisy labels",
    "the clean rows alone",
    "noisy + clean",
    "noisy, then fine-tune on clean",
    PAPERS,
    OURS,
)


@pytest.fixture(scope="module")
def short() -> Iterator[None]:
    """Makes the demo's runs short; its numbers mean nothing then."""

    def config(method, recipe="default"):
        values = {"epochs": 3, "network_options": {"hidden": [4]}}
        if method == "closed-loop":
            values |= {"warm_up": 1, "corrector": {"max_epochs": 2, "hidden": 4}}
        values |= {"rounds": 0, "learners": "networks"} if method == "labelloop" else {}
        values |= {"fine_tune_epochs": 1} if method == "fine-tune" else {}
        return recipe_config(method, recipe, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_module, "recipe_config", config)
        yield


@pytest.fixture(scope="module")
def made(short, tmp_path_factory) -> tuple[Path, str]:
    """The folder of a short demo, to be copied, and what was printed."""
    folder, out = tmp_path_factory.mktemp("made") / "demo", io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["demo", "--seeds", "1", "--output-dir", str(folder)]) == 0
    return folder, out.getvalue()


def numbers_of(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """The two tables: accuracy of the labels, test accuracy."""
    found: tuple[dict[str, float], dict[str, float]] = {}, {}
    for part, lines in zip(found, text.split("accuracy of the labels\n")[1].split("test accuracy\n"), strict=True):
        for line in lines.splitlines():
            if cell := re.fullmatch(r"\s*(\S.*?)\s+(\d+\.\d) ± (\d+\.\d)", line):
                part[cell[1]] = float(cell[2])
    return found


@pytest.mark.page
def test_the_default_comes_first_and_the_folder_is_named(labelloop, tmp_path):
    folder = tmp_path / "demo"
    ended = labelloop("demo", "--seeds", 1, "--output-dir", folder)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    labels, tested = numbers_of(ended.out)
    assert set(tested) == set(TITLES)
    assert set(labels) == {"as given", PAPERS, OURS}
    assert max(TITLES, key=tested.__getitem__) == max(labels, key=labels.__getitem__) == OURS
    assert labels[OURS] > tested[OURS] - 5 > 80
    assert 55 < labels["as given"] < 65
    assert str(folder) in ended.out
    place = folder / "labelloop-seed0"
    assert str(place / "labels.parquet") in ended.out
    assert len(labels_of(place)["id"]) == run_json(place)["data"]["rows"] == 1200
    assert run_json(place)["data"]["clean_unpaired"] == 200
    assert len([path for path in folder.iterdir() if path.is_dir()]) == len(TITLES)


def test_a_second_demo_replaces_the_first(made, labelloop, tmp_path):
    shutil.copytree(made[0], tmp_path / "demo")
    (tmp_path / "demo/mine.txt").write_text("mine")
    labels = (tmp_path / "demo/labelloop-seed0/labels.parquet").read_bytes()
    second = labelloop("demo", "--seeds", 1, "--output-dir", tmp_path / "demo")
    assert second.code == 0, second.err
    assert numbers_of(second.out) == numbers_of(made[1])
    assert (tmp_path / "demo/labelloop-seed0/labels.parquet").read_bytes() == labels
    assert (tmp_path / "demo/mine.txt").read_text() == "mine"


@pytest.mark.parametrize("place", [".", "labelloop-seed0", "cross-entropy-seed0"])
def test_a_folder_with_another_run_is_refused_before_anything_is_run(place, made, labelloop, tmp_path):
    folder = shutil.copytree(made[0], tmp_path / "demo")
    (folder / place / "run.json").write_text('{"method": "closed-loop"}')
    before = contents(tmp_path)
    ended = labelloop("demo", "--seeds", 1, "--output-dir", folder)
    assert ended.code == 1
    assert str(folder / place) in ended.err
    assert "--output-dir" in ended.err
    assert contents(tmp_path) == before


def test_a_file_in_place_of_the_folder_is_refused(short, labelloop, tmp_path):
    (tmp_path / "demo").write_text("mine")
    ended = labelloop("demo", "--seeds", 1, "--output-dir", tmp_path / "demo")
    assert ended.code == 1
    assert str(tmp_path / "demo") in ended.err
    assert (tmp_path / "demo").read_text() == "mine"


def test_an_interrupted_demo_does_not_advise_a_flag_it_lacks(labelloop, tmp_path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_module, "run_demo", interrupted)
    ended = labelloop("demo", "--output-dir", tmp_path / "demo")
    assert ended.code == 130
    assert "interrupted" in ended.err
    assert "--resume" not in ended.err
