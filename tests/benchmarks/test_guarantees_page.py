"""docs/guarantees.md shows what is stored, and what is stored keeps the promises of the page."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = runpy.run_path(str(ROOT / "benchmarks" / "guarantees_page.py"))
STORE = ROOT / "evidence" / "guarantees"


def test_the_page_is_what_is_stored():
    speed = json.loads((STORE / "speed.json").read_text(encoding="utf-8"))
    text = PAGE["page"](PAGE["read"]("runs.jsonl.gz"), PAGE["read"]("certificates.jsonl"), speed)
    assert (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8") == text
    assert speed["rows"] == 1_000_000
    assert speed["seconds"] < 1


def test_stored_intervals_and_certificates_hold_as_often_as_they_say():
    runs = PAGE["read"]("runs.jsonl.gz")
    assert len({one["data"] for one in runs}) >= 18
    for key in ("given_label_accuracy", "corrected_label_accuracy"):
        assert sum(PAGE["holds"](one, key) for one in runs) / len(runs) >= 0.94, key
    claimed = [
        (error, *one["certified"][error]["ours"]) for one in runs for error in one["certified"] if one["clean"] >= 100
    ]
    given = [(float(error), wrong) for error, share, wrong in claimed if share > 0]
    assert len(given) > 50
    assert sum(wrong <= error + 1e-9 for error, wrong in given) / len(given) >= 0.95


RUN = {
    "clean": 30, "paired": True, "data": "a", "noise": "b", "draw": 0, "given": 0.8, "ours": 0.7, "changed": 3,
    "worst_class": 0.2, "worst_unchecked": 0.3, "sure": 0.96, "how": "measured", "recall": [1, 2],
    "precision": [0, 0], "given_label_accuracy": [0.7, 0.9, 0.8, "measured"],
    "corrected_label_accuracy": [0.8, 0.9, 0.7, "measured"],
}  # fmt: skip


def test_a_line_by_hand():
    line = PAGE["intervals"]([RUN]).splitlines()[2]
    assert line == "| 30 clean rows, paired | 1 | 100.0 | 20.0 | 0.0 | 10.0 | 0.0 to 97.5 | 50.0 | – |"
    assert PAGE["sureness"]([RUN]).splitlines()[2] == "| measured | 95 to 99% | 1 | 0.0 | -10.0 |"
    bare = {**RUN, "sure": None, "how": "assumed", "ours": 0.9}
    assert PAGE["sureness"]([RUN, bare]).splitlines()[3] == "| assumed | no number | 1 | 100.0 | 10.0 |"
    assert PAGE["guard"]([RUN]).splitlines()[2].endswith("| 1 | 80.0 | 70.0 | 100 | 1 | 1 | 1 |")
    little = {**RUN, "ours": 0.796}
    assert PAGE["guard"]([little]).splitlines()[2].endswith("| 1 | 80.0 | 79.6 | 100 | 1 | 0 | 1 |")
    block = {"data": "a", "noise": "b", "draws": 250, "counts": {"x: claimed": 200, "x: held": 190, "x: rows": 5}}
    few = {"data": "c", "noise": "d", "draws": 250, "counts": {"x: claimed": 50, "x: held": 0}}
    line = PAGE["last_step"]([block, few]).splitlines()[2]
    assert line == "| x | 250 | 76.00% | 70.2 to 81.2 | 95.0% of 200 (a, b) |"
    assert "In 1 draws" in PAGE["unchecked"]([RUN])
    assert "In 1 of them" in PAGE["unchecked"]([RUN])
