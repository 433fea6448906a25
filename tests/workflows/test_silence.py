"""Whatever may take longer than two seconds has a bar or a clock with a name."""

from __future__ import annotations

import csv
import io
import sys
import threading
import time
from importlib import import_module

import numpy as np
import pytest
from tqdm import tqdm

from labelloop import progress
from labelloop.cli import main
from labelloop.progress import bar, clock

# Where the time of each command goes, and what must be shown meanwhile. Names as their callers have them.
SLOW = {
    "workflows.encode.read_table": "reading rows.csv",
    "training.cross_fit.train_epoch": "cross-fitted network",
    "methods.labelloop.train_epoch": "training",
    "relabel.rounds.column_scores": "correcting labels",
    "relabel.rounds.relabel": "correcting labels",
    "methods.labelloop.guarded": "correcting labels",
    "methods.closed_loop.loop.train_epoch": "training",
    "methods.closed_loop.loop.estimate_loop": "estimating the accuracy of the labels",
    "workflows.fit.extract": "predicting all rows",
    "workflows.fit._store": "writing the run",
    "workflows.correct.correct_labels": "correcting labels",
    "workflows.ending.write_report": "writing the report",
    "workflows.plan.read_stored_run": "reading the run",
    "workflows.plan._shown": "reading your file",
    "workflows.refit.correct_scores": "learning curve|correcting labels",
    "export.export.export": "writing the export",
    "report.html.write_report": "writing the report",
    "trained_model.extract": "predicting",
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch) -> Terminal:
    """In the test itself: pytest puts its own in place after a fixture."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def shown() -> list[str]:
    """The names of all bars and clocks that run now."""
    clocks = [thread.name.removeprefix("clock: ") for thread in threading.enumerate() if thread.name[:6] == "clock:"]
    return clocks + [each.desc or "" for each in getattr(tqdm, "_instances", ())]


@pytest.fixture
def watched(monkeypatch):
    """What was shown at each call of something slow."""
    found: dict[str, list[list[str]]] = {name: [] for name in SLOW}
    for name in SLOW:
        module, function = f"labelloop.{name}".rsplit(".", 1)
        real = getattr(import_module(module), function)

        def watching(*args, name=name, real=real, **kwargs):
            found[name].append(shown())
            return real(*args, **kwargs)

        monkeypatch.setattr(import_module(module), function, watching)
    return found


def rows_file(path):
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 70)
    given = np.where(rng.random(70) < 0.2, 1 - true, true)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "label", "clean_label"])
        for row in range(70):
            clean = true[row] if row % 3 == 0 else ""
            writer.writerow([*(true[row] + rng.normal(size=2)).round(3), given[row], clean])


@pytest.mark.slow
def test_no_command_is_silent_where_its_time_goes(tmp_path, watched, monkeypatch):
    terminal = use_terminal(monkeypatch)
    monkeypatch.setattr("labelloop.relabel.calibration.TREES", 3)  # few trees say nothing, and take no time
    monkeypatch.setattr("labelloop.workflows.plan.SHARES", (1.0,))
    data, run = tmp_path / "rows.csv", tmp_path / "run"
    rows_file(data)
    few = [part for value in ("epochs=3", "warm_up=1", "correct_every=1") for part in ("--set", value)]
    for command in (
        ["fit", data, "--output-dir", run, "--set", "epochs=3", "--set", "rounds=1"],
        ["fit", data, "--output-dir", tmp_path / "loop", "--method", "closed-loop", *few],
        ["predict", run, data, "--output", tmp_path / "said.csv"],
        ["correct", data, "--output-dir", tmp_path / "instant"],
        ["plan", tmp_path / "instant", "--count", "3"],
        ["export", run, "--to", "csv", "--output", tmp_path / "out.csv"],
        ["report", run],
    ):
        assert main([str(part) for part in command]) == 0, terminal.getvalue()
    (tmp_path / "clean.csv").write_text(f"row,given_label,clean_label\n1,{_given(data, 1)},1\n")
    again = ["refit", tmp_path / "instant", "--clean-file", tmp_path / "clean.csv", "--output-dir", tmp_path / "again"]
    assert main([str(part) for part in again]) == 0, terminal.getvalue()
    never = [name for name, calls in watched.items() if not calls]
    assert not never, "a test that sees nothing finds nothing"
    silent = {name: calls for name, calls in watched.items() if not all(_names(SLOW[name], call) for call in calls)}
    assert not silent


def _names(wanted: str, names: list[str]) -> bool:
    return any(name.startswith(tuple(wanted.split("|"))) for name in names)


def _given(path, row):
    with path.open() as file:
        return list(csv.DictReader(file))[row]["label"]


def test_a_clock_is_drawn_after_a_while_and_wiped_away(monkeypatch):
    terminal = use_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress, "OFTEN", 0.01)
    with clock("counting sheep"):
        for _ in range(500):
            if "counting sheep: 00:0" in terminal.getvalue():
                break
            time.sleep(0.01)
    assert "counting sheep: 00:0" in terminal.getvalue()
    assert terminal.getvalue().rstrip(" ").endswith("\r")
    assert not any(thread.name.startswith("clock") for thread in threading.enumerate())


def test_what_is_quick_or_not_wanted_is_not_shown(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with clock("quick"):
        pass
    with clock("unwanted", progress=False):
        assert shown() == []
    assert list(bar([1, 2], "quick", "item")) == [1, 2]
    assert terminal.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with clock("no terminal"):
        assert shown() == []
