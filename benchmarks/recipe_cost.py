"""What the default costs beside cross-entropy on images, with fewer rounds too, and what GLC and FasTEN cost there.

    python benchmarks/recipe_cost.py --repeats 3 --store evidence/recipe_cost.json

The methods take turns on one core, as the tables have them, and the sums of all phases but evaluation are compared,
repeat by repeat: other work disturbs single runs. A target is met if the median ratio keeps to its bound.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported

import torch

from labelloop.bench.experiment import Experiment, run_experiment
from labelloop.bench.tables import last
from labelloop.paper.grids import read_item
from labelloop.paper.items import records_of
from labelloop.paper.tally import DEFAULT_ROW, of_labels
from labelloop.runs.run_json import versions

STORED = Path(__file__).resolve().parents[1] / "evidence" / "recipe_cost.json"
CURVE = {"- rounds (labels corrected once)": "rounds=0", "- all rounds but one": "rounds=1", DEFAULT_ROW: "rounds=3"}
ROWS = ("cross-entropy", DEFAULT_ROW, "FasTEN", "GLC", *(row for row in CURVE if row != DEFAULT_ROW))
BOUND = 1.9  # of the default on images, in units of a cross-entropy run: less than the two of GLC
SEED = 9  # no table reports it


def experiments() -> dict[str, Experiment]:
    """The methods under instance-dependent noise of 0.4 on images without augmentation."""
    found = {}
    for part in (*read_item("cells").at("small"), *read_item("recipe").at("small")):
        for one in part.experiments:
            if part.protocol == "images" and one.noise == "instance" and one.name in ROWS:
                found[one.name] = replace(one, seed=SEED)
    return found


def seconds(experiment: Experiment) -> dict[str, float]:
    """The seconds of every phase of a run but evaluation."""
    found: dict[str, float] = {}
    for row in run_experiment(experiment, progress=False)["history"]:
        for phase, value in row["seconds"].items():
            found[phase] = found.get(phase, 0.0) + value
    return {phase: value for phase, value in found.items() if phase != "evaluate"}


def ratios(record: Mapping[str, Any]) -> dict[str, list[float]]:
    """Of every method, repeat by repeat, over cross-entropy."""
    plain = [sum(run.values()) for run in record["runs"][ROWS[0]]]
    return {
        name: [sum(run.values()) / base for run, base in zip(runs, plain, strict=True)]
        for name, runs in record["runs"].items()
        if name != ROWS[0]
    }


def stored() -> dict[str, Any] | None:
    """The stored measurement, if there is one."""
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else None


def curve(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """What rounds cost and what they bring on images, a line a setting; from the stored runs."""
    part = next(one for one in read_item("recipe").at("small") if one.protocol == "images")
    record, records = stored() or {"runs": {ROWS[0]: []}}, records_of(part, runs)
    lines = ["| `--set` | runs of cross-entropy | labels right | test accuracy | seeds |", "|---|---|---|---|---|"]
    for row, words in CURVE.items():
        mine = [one for one in records if one["title"] == row]
        right, test = (
            statistics.mean(100 * (value(one) or 0.0) for one in mine) if mine else None
            for value in (of_labels("corrected_label_accuracy"), last)
        )
        found = ratios(record).get(row)
        numbers = ["–" if found is None else f"{statistics.median(found):.2f}"]
        numbers += ["–" if value is None else f"{value:.1f}" for value in (right, test)]
        lines.append(f"| `{words}` | {' | '.join(numbers)} | {len(mine)} |")
    return "\n".join(lines)


def cost(record: Mapping[str, Any] | None = None) -> str:
    """In words, for docs/recipe.md."""
    record = stored() if record is None else record
    if record is None:
        return "not measured yet"
    words = [
        f"{name} {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
        for name, found in ratios(record).items()
        if name == DEFAULT_ROW or name not in CURVE
    ]
    repeats = len(record["runs"][ROWS[0]])
    return f"{'; '.join(words)}; median and range of {repeats} repeats, in units of a cross-entropy run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", nargs="*", default=ROWS[1:], choices=ROWS[1:], help="beside cross-entropy")
    parser.add_argument("--store", type=Path, help="write the measurement to this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wanted = experiments()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in (ROWS[0], *options.rows)}
    for _ in range(options.repeats):
        for name, found in runs.items():
            found.append(seconds(wanted[name]))
    record = {"runs": runs, "seed": SEED, "versions": versions()}
    print(cost(record))
    if ours := ratios(record).get(ROWS[1]):
        print(f"bound {BOUND}: {'kept' if statistics.median(ours) <= BOUND else 'BROKEN'}")
    if options.store:
        options.store.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
