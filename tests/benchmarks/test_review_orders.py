"""What the page says about the order of a review is what is stored, and the plan's order is ahead."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = json.loads((ROOT / "evidence" / "review_orders.json").read_text(encoding="utf-8"))["runs"]


def benchmark() -> ModuleType:
    place = ROOT / "benchmarks" / "review_orders.py"
    spec = importlib.util.spec_from_file_location("review_orders", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["review_orders"] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_what_is_stored():
    pytest.importorskip("cleanlab", reason="the benchmark needs cleanlab")
    module = benchmark()
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    for mark, table in (("review-orders", module.table), ("review-needed", module.needed_table)):
        found = re.search(rf"<!-- {mark} -->\n(.*?)\n<!-- /{mark} -->", page, flags=re.DOTALL)
        assert found is not None
        assert found[1] == table(RUNS)
    for data in {line["data"] for line in RUNS}:
        by_order = {
            o: module.needed([x for x in RUNS if (x["data"], x["order"]) == (data, o)], 0.25) for o in module.ORDERS
        }
        ours = by_order.pop("plan")
        assert ours is not None
        assert all(other is None or ours < other for other in by_order.values()), (data, ours, by_order)


def test_decisions_needed_are_read_off_a_straight_line():
    pytest.importorskip("cleanlab", reason="the benchmark needs cleanlab")
    module = benchmark()
    runs = [{"start": 0.8, "decisions": n, "label_accuracy": a} for n, a in ((100, 0.84), (200, 0.88), (300, 0.86))]
    assert module.needed(runs, 0.25) == pytest.approx(125)  # 0.85 lies a quarter of the way from 0.84 to 0.88
    assert module.needed(runs, 0.1) == pytest.approx(50)
    assert module.needed(runs, 0.5) is None


def test_the_order_of_the_plan_is_ahead():
    cells = {(line["data"], line["decisions"]) for line in RUNS}
    assert len({data for data, _ in cells}) >= 3
    for data, decisions in cells:
        means = {}
        for order in ("plan", "random", "cleanlab"):
            found = [
                line["label_accuracy"]
                for line in RUNS
                if (line["data"], line["decisions"], line["order"]) == (data, decisions, order)
            ]
            assert found
            means[order] = sum(found) / len(found)
        best = max(means["random"], means["cleanlab"])
        if decisions <= 300:
            assert means["plan"] > best, (data, decisions, means)
        else:  # labels as good as the reviewer: every order ends where the reviewer's own errors are
            assert means["plan"] > best - 0.001, (data, decisions, means)


def test_no_decision_was_lost_and_filters_are_quick():
    load = json.loads((ROOT / "evidence" / "review_load.json").read_text(encoding="utf-8"))
    assert (load["reviewers"], load["lost"], load["refused"]) == (50, 0, 0)
    assert load["confirmed"] > 500
    assert load["large"]["rows"] == 1_000_000
    assert {each["0.95"] < 50 for each in load["large"]["processor_ms"].values()} == {True}  # milliseconds
    times = json.loads((ROOT / "evidence" / "report_time.json").read_text(encoding="utf-8"))["runs"]
    assert [line["rows"] for line in times] == [50_000, 500_000]
    assert all(line["bytes"] < 20_000_000 for line in times)
    table = times[-1]["filter"]
    assert table["rows"] >= 98_000
    assert max(table["filters_ms"]) < 200
