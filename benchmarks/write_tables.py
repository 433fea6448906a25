"""Writes the numbers of README.md and docs/ from the stored runs in evidence/, between the marks that name them.

`python benchmarks/write_tables.py` writes; `--check` only says which files are not up to date, and exits with 1 if
there are any. `--figures` also draws docs/figures.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import encoders_page
import front_page
import new_user_page
import recipe_cost
import recipe_page
from believe_page import page as believe_page
from results_page import Page, correction_shares, overhead_setting
from vs_cleanlab_page import page as vs_cleanlab_page

from labelloop.paper.evidence import read_evidence
from labelloop.paper.figures import draw
from labelloop.paper.items import panels
from labelloop.paper.tally import DEFAULT_ROW
from labelloop.workflows.demo import demo_table

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "evidence"


def demo() -> str:
    record = json.loads((EVIDENCE / "demo.json").read_text(encoding="utf-8"))
    return f"```text\n{demo_table(record)}\n```"


def overhead() -> str:
    record = json.loads((EVIDENCE / "overhead.json").read_text(encoding="utf-8"))
    shares, ratios = correction_shares(record), record["ratios"]
    return (
        f"{1 + statistics.median(shares):.3f} times the time of training alone ({1 + min(shares):.3f} to "
        f"{1 + max(shares):.3f} in {len(shares)} runs; {overhead_setting(record)}), and a whole run "
        f"{statistics.median(ratios):.3f} times that of cross-entropy alongside "
        f"({min(ratios):.3f} to {max(ratios):.3f})"
    )


def costs() -> str:
    path = EVIDENCE / "step_cost.json"
    if not path.exists():
        return "not measured yet"
    record = json.loads(path.read_text(encoding="utf-8"))
    lines = ["| a step of | times cross-entropy's |", "|---|---|"]
    return "\n".join(
        lines + [f"| {row} | {ratio:.2f} |" for row, ratio in record["ratios"].items() if row != "cross-entropy"]
    )


def vs_cleanlab() -> str:
    return vs_cleanlab_page(json.loads((EVIDENCE / "vs_cleanlab.json").read_text(encoding="utf-8")))


def believe() -> str:
    if not (EVIDENCE / "believe.json").exists():
        return "not measured yet"
    return believe_page(json.loads((EVIDENCE / "believe.json").read_text(encoding="utf-8")))


def encoder_record() -> dict[str, Any]:
    return json.loads((EVIDENCE / "encoders.json").read_text(encoding="utf-8"))


PAGE = Page()
WHERE = {
    "closed-loop": "closed loop",
    "default": DEFAULT_ROW,
    "glc": "GLC",
    "fasten": "FasTEN",
    "mw-net": "MW-Net",
    "l2b": "L2B",
    "emlc": "EMLC",
    "dmlp": "DMLP",
    "dmlp-nossl": "DMLP without pretraining",
    "co-teaching": "Co-teaching",
    "dividemix": "DivideMix",
    "logistic-corrector": "logistic corrector",
    "clean-only": "clean rows only",
    "noisy-and-clean": "noisy + clean",
    "fine-tune": "fine-tune on clean",
}
TABLES: dict[str, Callable[[], str]] = {
    "demo": demo,
    "main-table": partial(front_page.main_table, PAGE.items, PAGE.runs),
    "standing": partial(front_page.standing, PAGE.items, PAGE.runs),
    "tally-counts": partial(front_page.counts, PAGE.items, PAGE.runs),
    "default-runs": partial(front_page.default_runs, PAGE.items, PAGE.runs),
    "loop-worth": partial(front_page.loop_worth, PAGE.items, PAGE.runs),
    "against-before": lambda: front_page.against_before(PAGE.items, PAGE.runs, read_evidence(EVIDENCE / "version-0.1")),
    "intervals-held": partial(front_page.intervals_held, PAGE.items, PAGE.runs),
    "overhead": overhead,
    "costs": costs,
    "vs-cleanlab": vs_cleanlab,
    "new-user-tally": new_user_page.tally,
    "new-user-held": new_user_page.held,
    "new-user-made": new_user_page.made,
    "new-user-tables": new_user_page.table,
    "new-user-texts": partial(new_user_page.table, "texts.jsonl"),
    "believe": believe,
    "encoder-texts": lambda: encoders_page.labels(encoder_record(), ("page-texts", "texts")),
    "encoder-images": lambda: encoders_page.labels(encoder_record(), ("page-images", "images", "images-40")),
    "encoder-speed": lambda: encoders_page.speed(encoder_record()),
    "counts": PAGE.counts,
    "claims": PAGE.claims,
    "ranking": partial(PAGE.ranking, "closed loop"),
    "efficiency": PAGE.efficiency,
    "tally": partial(recipe_page.tally, PAGE.items["cells"], PAGE.runs),
    "tally-alike": partial(recipe_page.tally, PAGE.items["alike"], PAGE.runs),
    "recipe-gains": partial(recipe_page.gains, PAGE.items["recipe"], PAGE.runs),
    "parts-needed": partial(recipe_page.needed, PAGE.items["recipe"], PAGE.runs),
    "chosen": recipe_page.chosen,
    "recipe-cost": lambda: front_page.named(recipe_cost.cost()),
    "cost-curve": lambda: recipe_cost.curve(PAGE.runs),
    "fit-on-tables": recipe_page.fit_on_tables,
    "correct-on-data": recipe_page.correct_on_data,
    "correct-tally": recipe_page.correct_tally,
    "cells": partial(recipe_page.measures, PAGE.items["cells"], PAGE.runs, PAGE.items["cells"].values),
    "correction-cost": PAGE.correction_cost,
    "augmented": PAGE.augmented,
    "tables": PAGE.tables,
    **{f"where {name}": partial(PAGE.method_summary, row) for name, row in WHERE.items()},
}
FIGURES = {
    "dynamics": "figure2",
    "every-noise": "figure6",
    "human-labels": "figure4",
    "weights": "weights",
    "time": "figure3",
}


def filled(text: str) -> str:
    """The text with every marked part written again."""

    def part(match: re.Match[str]) -> str:
        name, line = match["name"], "\n" if "\n" in match["body"] else ""
        return f"<!-- {name} -->{line}{TABLES[name]()}{line}<!-- /{name} -->"

    names = "|".join(map(re.escape, TABLES))
    return re.sub(rf"<!-- (?P<name>{names}) -->(?P<body>.*?)<!-- /(?P=name) -->", part, text, flags=re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--figures", action="store_true")
    options = parser.parse_args()
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        made = filled(text)
        if made != text:
            stale.append(path.name)
            if not options.check:
                path.write_text(made, encoding="utf-8")
    if options.figures:
        for name, figure in FIGURES.items():
            item = PAGE.items[figure]
            draw(item.shows, panels(item, "small", PAGE.runs), ROOT / "docs" / "figures" / name)
    if options.check and stale:
        print(f"not up to date: {', '.join(stale)}; python benchmarks/write_tables.py writes them", file=sys.stderr)
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
