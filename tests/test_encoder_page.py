"""The tables of encoders on the pages: every stored run counts, and a missing one is not made up."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = runpy.run_path(str(ROOT / "benchmarks" / "encoders_page.py"))
RECORD = json.loads((ROOT / "evidence" / "encoders.json").read_text(encoding="utf-8"))


def test_the_pages_show_what_is_stored():
    """tests/test_readme.py holds every page against every file; this names the rows that must be there."""
    shown = {
        "text-embeddings.md": ("page-texts", "texts"),
        "image-folder.md": ("page-images", "images", "images-40"),
    }
    for name, datas in shown.items():
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert PAGE["labels"](RECORD, datas) in text
    assert PAGE["speed"](RECORD) in (ROOT / "docs" / "text-embeddings.md").read_text(encoding="utf-8")
    for data in ("page-texts", "page-images", "texts"):
        for way in ("none", "frozen"):
            seeds = {run["seed"] for run in RECORD["labels"] if (run["data"], run["way"]) == (data, way)}
            assert seeds == {0, 1, 2}, (data, way)


def test_a_table_is_the_mean_over_seeds_and_leaves_out_what_is_not_stored():
    run = {"data": "texts", "way": "none", "rows": 1000, "given_label_accuracy": 0.5, "cpu_seconds": 2.0}
    runs = [{**run, "seed": s, "corrected_label_accuracy": right} for s, right in enumerate((0.7, 0.8))]
    lines = PAGE["labels"]({"labels": runs}, ("texts", "images")).splitlines()[4:]
    assert lines == ["| 1,000 comments, labels from keyword rules | none | 2 | 50.0 | 75.0 ± 7.1 | 2 |"]


def test_encoding_keeps_up_with_the_bare_library():
    assert len(RECORD["throughput"]) == 3
    for name, one in RECORD["throughput"].items():
        assert one["cpu_ratio"] >= 0.95, name
        assert len(one["cpu_seconds"]["ours"]) == len(one["cpu_seconds"]["bare"]) >= 15
    in_memory, mapped = (RECORD["memory"][f"80000 rows, {how}"] for how in ("in memory", "mapped"))
    assert mapped["anonymous_mib"] < in_memory["features_mib"] / 4
