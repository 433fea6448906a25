"""Tables for the pages from the runs of believe.py: rows with both labels, rows without, and the intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

Runs = list[dict[str, Any]]


def page(record: dict[str, Any]) -> str:
    paired, unpaired = ([run for run in record["runs"] if run["paired"] is kind] for kind in (True, False))
    seeds = len({run["seed"] for run in record["runs"]})
    words = (
        f"Means over up to {seeds} seeds, in %, on the rows that are not clean. a → b: the loop alone → the whole run."
    )
    lines = [words, ""]
    lines += ["| clean rows have both labels | given right | labels right | good broken | calibration error | refit |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, runs in _settings(paired).items():
        moves = [_move(runs, measure) for measure in ("right", "good_broken", "calibration_error")]
        refit = f"{_mean(runs, 'before_refit')} → {_mean(runs, 'after_refit')}"
        lines.append(f"| {name} | {_mean(runs, 'given_right')} | {' | '.join(moves)} | {refit} |")
    better = sum(run["run"]["right"] >= run["loop"]["right"] for run in paired)
    lines += [
        "",
        f"The run's labels are at least as good as the loop's in {better} of {len(paired)} runs. {_held(paired)}",
    ]
    lines += [
        "",
        "| clean rows have no given label | given right | labels right | calibration error | confidence | estimated |",
    ]
    lines += ["|---|---|---|---|---|---|"]
    for name, runs in _settings(unpaired).items():
        cells = [_mean(runs, "run", key) for key in ("right", "calibration_error", "confidence")]
        cells = [_mean(runs, "given_right"), *cells, _mean(runs, "run", "estimate", "value")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    gap = max((abs(run["run"]["estimate"]["value"] - run["run"]["right"]) for run in unpaired), default=0.0)
    lines += [
        "",
        f"Here the estimate rests on simulated given labels, and is off by up to {100 * gap:.0f} points.",
    ]
    return "\n".join(lines)


def _settings(runs: Runs) -> dict[str, Runs]:
    found: dict[str, Runs] = {}
    for run in runs:
        noise = "human labels" if run["noise"] == "recorded" else f"{run['noise']} {100 * run['rate']:.0f}%"
        found.setdefault(f"{run['data']}, {noise}, {run['clean_rows']}", []).append(run)
    return found


def _mean(runs: Runs, *keys: str) -> str:
    values = []
    for run in runs:
        value: Any = run
        for key in keys:
            value = value[key]
        values.append(value)
    return f"{100 * np.mean(values):.1f}"


def _move(runs: Runs, measure: str) -> str:
    return f"{_mean(runs, 'loop', measure)} → {_mean(runs, 'run', measure)}"


def _held(runs: Runs) -> str:
    """How often the interval contains the true value."""
    held = sum(r["run"]["estimate"]["low"] <= r["run"]["right"] <= r["run"]["estimate"]["high"] for r in runs)
    return f"The 95% interval of `labels right` contains the true value in {held} of {len(runs)}."
