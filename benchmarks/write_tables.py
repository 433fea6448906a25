"""Writes the tables of README.md from the stored runs in evidence/, between the marks that name them.

`python benchmarks/write_tables.py` writes; `--check` only says whether the file is up to date, and exits with 1 if not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from labelloop.experiments.demo import demo_table
from labelloop.experiments.grid import read_grid
from labelloop.results.tables import best, last, render, table

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "evidence"


def demo() -> str:
    record = json.loads((EVIDENCE / "demo.json").read_text(encoding="utf-8"))
    return f"```text\n{demo_table(record)}\n```"


def embeddings() -> str:
    name = "embeddings-idn40"
    experiments = read_grid(ROOT / "benchmarks" / "grids" / f"{name}.toml")
    records = [
        json.loads((EVIDENCE / name / f"{e.key}.json").read_text(encoding="utf-8")) | {"title": e.title}
        for e in experiments
    ]
    columns, lasts = table(records, last)
    _, bests = table(records, best)
    cells = {
        title: {"last epoch": lasts[title][columns[0]], "best epoch (chosen on test data)": bests[title][columns[0]]}
        for title in lasts
    }
    return render(
        ["last epoch", "best epoch (chosen on test data)"], cells, "test accuracy, mean ± deviation (seeds), in %"
    )


def overhead() -> str:
    record = json.loads((EVIDENCE / "overhead.json").read_text(encoding="utf-8"))
    ratios = sorted(record["ratios"])
    middle = ratios[len(ratios) // 2]
    return f"{middle:.3f} times the time of cross-entropy ({len(ratios)} repeats, {ratios[0]:.3f} to {ratios[-1]:.3f})"


TABLES = {"demo": demo, "embeddings-idn40": embeddings, "overhead": overhead}


def filled(text: str) -> str:
    """The text with every marked part made anew."""

    def part(match: re.Match[str]) -> str:
        name, line = match["name"], "\n" if "\n" in match["body"] else ""
        return f"<!-- {name} -->{line}{TABLES[name]()}{line}<!-- /{name} -->"

    names = "|".join(map(re.escape, TABLES))
    return re.sub(rf"<!-- (?P<name>{names}) -->(?P<body>.*?)<!-- /(?P=name) -->", part, text, flags=re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    made = filled(text)
    if options.check:
        return int(made != text)
    path.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
