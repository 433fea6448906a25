"""The README's commands and code are run as they stand, and its numbers are those of the stored runs."""

from __future__ import annotations

import csv
import re
import runpy
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from forked import forked
from pages import labelloop
from sklearn.datasets import load_iris

from labelloop.bench.grid import expand

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, marked: bool) -> list[str]:
    mark = r"<!-- run -->\n" if marked else ""
    return re.findall(rf"{mark}```{language}\n(.*?)```", README, flags=re.DOTALL)


def write_flowers(folder: Path) -> np.ndarray:
    """Iris as a user would have it: noisy labels, and some clean ones. Returns the true labels of flowers.csv."""
    iris = load_iris()
    rng = np.random.default_rng(0)
    names = iris.target_names[iris.target]
    noisy = np.where(rng.random(150) < 0.3, rng.permutation(names), names)
    clean = np.where(rng.random(150) < 0.3, names, "")
    columns = ["sepal length", "sepal width", "petal length", "petal width"]
    with (folder / "flowers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "label", "clean_label"])
        writer.writerows([*row, a, b] for row, a, b in zip(iris.data[:120], noisy, clean, strict=False))
    with (folder / "new_flowers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(iris.data[120:])
    return names[:120]


@pytest.mark.page
def test_the_shell_commands(tmp_path):
    write_flowers(tmp_path)
    commands = [line for block in blocks("sh", marked=True) for line in block.splitlines() if line.strip()]
    assert len(commands) >= 2

    def run_all() -> None:
        for command in commands:
            labelloop(command)

    ended = forked(run_all, tmp_path)
    assert ended.code == 0, ended.err
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 31
    assert {"labels.parquet", "targets.npy", "model.safetensors", "model.json", "metrics.jsonl", "run.json"} <= {
        path.name for path in (tmp_path / "runs" / "flowers").iterdir()
    }


@pytest.mark.page
def test_the_python_code(tmp_path):
    pytest.importorskip("pandas")
    truth = write_flowers(tmp_path)
    code = blocks("python", marked=True)
    assert len(code) == 1
    assert len([line for line in code[0].splitlines() if line]) == 6

    def run() -> None:
        names: dict = {"__name__": "__main__"}
        exec(code[0], names)
        flowers = names["flowers"]
        print((flowers["label"] == truth).mean(), (flowers["corrected"] == truth).mean())

    ended = forked(run, tmp_path)
    assert ended.code == 0, ended.err
    before, after = map(float, ended.out.split()[-2:])
    assert after > before + 0.1


def test_it_is_short():
    assert len(README.splitlines()) < 130


def test_the_grid_of_the_page_on_grids():
    grids = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "grids.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(grids) == 1
    assert len(expand(tomllib.loads(grids[0]), "grids.md")) == 24


def test_the_make_targets_exist():
    targets = re.findall(r"(?:^|`)make (\w+)", README, flags=re.MULTILINE)
    assert {"demo", "dist", "test"} <= set(targets)
    rules = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(targets) <= rules


def test_the_numbers_are_those_of_the_stored_runs():
    def check() -> None:
        sys.argv = ["write_tables.py", "--check"]
        sys.path.insert(0, str(ROOT / "benchmarks"))
        runpy.run_path(str(ROOT / "benchmarks" / "write_tables.py"), run_name="__main__")

    ended = forked(check)
    assert ended.code == 0, f"run benchmarks/write_tables.py\n{ended.err}"
    for name in ("main-table", "standing"):
        assert re.search(rf"<!-- {name} -->.*\d.*<!-- /{name} -->", README, flags=re.DOTALL), name


def test_the_files_it_links_to_exist():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) >= 2
    for link in links:
        assert (ROOT / link).exists(), link
