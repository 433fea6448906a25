"""`make bench`: what counts as met, how turns are timed, and a page that is what the stored measurements say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench():
    """The modules of benchmarks/ by name."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield {name: importlib.import_module(name) for name in ("clocks", "performance_page", "performance_parts")}
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_a_target_is_met_or_missed_by_the_median(bench):
    clocks = bench["clocks"]
    least = clocks.Measured("x", [0.9, 0.96, 1.4], clocks.Target(0.95, most=False))
    most = clocks.Measured("y", [0.9, 1.2, 1.3], clocks.Target(1.0), "epochs")
    assert (least.to_json()["met"], most.to_json()["met"]) == (True, False)
    assert clocks.line(least.to_json()) == "| x | 0.96 | 0.9 to 1.4, 3 repeats | at least 0.95 | met |"
    assert clocks.line(most.to_json()).endswith("| at most 1 | MISSED |")
    assert clocks.Measured("z", [2.0]).to_json()["met"] is None


def test_ways_take_turns_and_the_first_turn_does_not_count(bench):
    calls = []
    seconds = bench["clocks"].in_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b", "a", "b", "b", "a"]
    assert [len(values) for values in seconds.values()] == [2, 2]
    assert bench["clocks"].ratios({"a": [2.0, 6.0], "b": [1.0, 2.0]}, "a", "b") == [2.0, 3.0]


def test_a_part_measures(bench):
    parts = bench["performance_parts"]
    found = parts.throughput(parts.TINY)
    assert [measured.target.bound for measured in found] == [0.95, 0.95]
    assert all(0.05 < measured.value < 20 for measured in found)


def test_the_page_is_what_the_stored_measurements_say(bench):
    page = bench["performance_page"]
    stored, streaming = (json.loads(path.read_text(encoding="utf-8")) for path in (page.STORE, page.STREAMING))
    text = page.page(stored, streaming)
    assert text == page.PAGE.read_text(encoding="utf-8"), "run python benchmarks/performance_page.py"
    lines = [entry["name"] for part in stored.values() for entry in part["lines"]]
    assert lines
    assert all(name in text for name in lines)
    for part in stored.values():
        assert part["quiet"] or "so these numbers are rough" in text


def test_the_arithmetic_follows_what_was_measured(bench):
    page = bench["performance_page"]
    streaming = json.loads(page.STREAMING.read_text(encoding="utf-8"))

    def stored(seconds: float) -> dict:
        run = {"train": 1.0, "extract": 0.4, "corrector": 0.1, "combination": 0.0, "update": 0.2}
        part = {"quiet": True, "size": "quick", "made": "2026-01-01T00:00:00", "load_of_others": 0.0, "processors": 2}
        line = {"name": "a", "value": 1.0, "values": [1.0], "unit": "", "target": None, "met": None}
        trained = {"rows": 1000, "seconds": {"ours": [seconds] * 3}}
        return {
            "throughput": {**part, "lines": [{**line, "about": trained}]},
            "corrections": {**part, "lines": [{**line, "about": {"rows": 1000, "seconds": [run]}}]},
        }

    assert page.per_row(stored(0.5)) == pytest.approx({"epoch": 0.0005, "correction": 0.0002})
    slow, fast = (page.page(stored(seconds), streaming) for seconds in (5.0, 0.5))
    assert slow != fast
    assert "Nothing below was run" in fast
    assert "Clothing1M" in fast
    assert "A billion rows" in fast
