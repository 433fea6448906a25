"""A noise, a method and a command are added by CONTRIBUTING.md: one file and one line each."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import labelloop.cli
import labelloop.methods
import labelloop.noise
from labelloop.bench.experiment import Experiment, run_experiment

PAGE = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILE = re.compile(
    r"`src/labelloop/(\w+)/(\w+)\.py`:\n\n```python\n(.*?)```\n\nIn `(\w+)` [^:]*: `([^`]+)`", flags=re.DOTALL
)
FOUND = {room: (name, code, table, line) for room, name, code, table, line in FILE.findall(PAGE)}


def add(room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Adds the file that the page shows for a room, and its line to the room's table."""
    name, code, table, line = FOUND[room]
    (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    package = importlib.import_module(f"labelloop.{room}")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    module = importlib.import_module(f"labelloop.{room}.{name}")
    monkeypatch.delitem(sys.modules, module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = eval(f"{{{line}}}", vars(package) | vars(module))
    assert len(entry) == 1
    for key, value in entry.items():
        assert key not in getattr(package, table)
        monkeypatch.setitem(getattr(package, table), key, value)
    return module


def test_the_page_has_one_of_each():
    assert set(FOUND) == {"noise", "methods", "cli"}


def test_a_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    add("noise", tmp_path, monkeypatch)
    noisy = labelloop.noise.NOISES["opposite"](np.array([0, 1, 2, -1]), 3, 1.0, np.random.default_rng(0))
    assert noisy.labels.tolist() == [2, 1, 0, -1]
    assert Experiment(noise="opposite").noise == "opposite"  # grids know it


def test_a_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    add("methods", tmp_path, monkeypatch)
    config = {"epochs": 2, "network_options": {"hidden": [8]}, "smoothing": 0.2}
    experiment = Experiment(method="smoothed", dataset_options={"limit": 200}, clean=40, config=config)
    record = run_experiment(experiment, tmp_path / "run", progress=False)
    assert [row["epoch"] for row in record["history"]] == [1, 2]


def test_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    add("cli", tmp_path, monkeypatch)
    (tmp_path / "model.json").write_text(json.dumps({"classes": ["ant", "bee"]}))
    assert labelloop.cli.main(["classes", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "ant\nbee\n"
