"""Tables for the pages from the runs of vs_cleanlab.py: one per setting, and where cleanlab is as good or better."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

OURS = ("labelloop.correct", "labelloop.fit")
OWN_MODEL = "labelloop.fit, its own network"
COLUMNS = {  # the measure: its heading, and whether it is a share in per cent
    "auroc": ("AUROC", False),
    "auprc": ("AUPRC", False),
    "f1": ("F1", False),
    "label_accuracy": ("labels right", True),
    "good_broken": ("good broken", True),
    "wrong_fixed": ("wrong fixed", True),
    "test_relabelled": ("test, relabelled", True),
    "test_dropped": ("test, dropped", True),
    "cpu_seconds": ("CPU s", False),
}
LESS_IS_BETTER = ("good_broken", "cpu_seconds")

Runs = list[dict[str, Any]]


class Verdict(NamedTuple):
    """cleanlab's best variant in one setting beside ours, by one measure."""

    setting: str
    row: str
    ahead: float  # mean over seeds of theirs minus ours, so that more is better for cleanlab
    tie: bool  # within the deviation of the difference over seeds


def settings_of(runs: Runs) -> dict[str, Runs]:
    found: dict[str, Runs] = {}
    for run in runs:
        found.setdefault(f"{run['data']}, {run['noise']}", []).append(run)
    return found


def values(runs: Runs, row: str, measure: str) -> list[float]:
    """One per seed; none where the variant has no such measure."""
    if row == OWN_MODEL:
        row, measure = "labelloop.fit", {"test_relabelled": "test_own_model"}.get(measure, "")
    return [run["rows"][row][measure] for run in runs if measure in run["rows"][row]]


def cell(found: list[float], measure: str) -> str:
    if not found:
        return "–"
    mean, deviation = np.mean(found), np.std(found, ddof=1) if len(found) > 1 else 0.0
    if measure == "cpu_seconds":
        return f"{mean:.1f}"
    if COLUMNS[measure][1]:
        return f"{100 * mean:.1f} ± {100 * deviation:.1f}"
    return f"{mean:.3f} ± {deviation:.3f}"


def table(runs: Runs) -> list[str]:
    lines = ["| | " + " | ".join(heading for heading, _ in COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    rows = [*runs[0]["rows"], OWN_MODEL]
    return lines + [f"| {row} | " + " | ".join(cell(values(runs, row, m), m) for m in COLUMNS) + " |" for row in rows]


def verdict(setting: str, runs: Runs, measure: str, ours: str) -> Verdict:
    """The best of cleanlab's variants is chosen afterwards, which favours cleanlab."""
    sign = -1 if measure in LESS_IS_BETTER else 1
    mine = np.array(values(runs, ours, measure))
    gaps = {r: sign * (np.array(values(runs, r, measure)) - mine) for r in runs[0]["rows"] if r.startswith("cleanlab")}
    best = max(gaps, key=lambda row: gaps[row].mean())
    spread = gaps[best].std(ddof=1) if len(mine) > 1 else 0.0
    return Verdict(setting, best, float(gaps[best].mean()), bool(abs(gaps[best].mean()) <= spread))


def said(found: list[Verdict], measure: str) -> str:
    """In how many settings cleanlab is better, equal or worse, with the names of the first two kinds."""
    better, ties = [v for v in found if v.ahead > 0 and not v.tie], [v for v in found if v.tie]
    parts = []
    for what, group in (("better", better), ("as good", ties)):
        named = "; ".join(f"{v.setting} {difference(v.ahead, measure)}" for v in group)
        parts.append(f"{what} in {len(group)}" + (f" ({named})" if group else ""))
    return ", ".join([*parts, f"worse in {len(found) - len(better) - len(ties)} of {len(found)}"])


def difference(ahead: float, measure: str) -> str:
    if measure == "cpu_seconds":
        return f"{ahead:+.1f}"
    return f"{100 * ahead:+.1f}" if COLUMNS[measure][1] else f"{ahead:+.3f}"


def page(record: dict[str, Any]) -> str:
    """The text between the marks."""
    settings = settings_of(record["runs"])
    seeds = sorted({len(runs) for runs in settings.values()})
    releases = sorted({run["versions"]["cleanlab"] for run in record["runs"]})
    lines = [f"cleanlab {' and '.join(releases)}, {' or '.join(map(str, seeds))} seeds, mean ± deviation.", ""]
    for setting, runs in settings.items():
        about = record["settings"][runs[0]["data"]]
        rate = np.mean([run["realised_rate"] for run in runs])
        shared = np.mean([run["cross_validation"]["cpu_seconds"] for run in runs])
        lines.append(
            f"**{setting}**: {about['rows']:,} rows, {about['clean']:,} of them clean, {rate:.1%} of the given"
            f" labels wrong; cross-validation took {shared:.1f} of the CPU seconds"
        )
        lines += ["", *table(runs), ""]
    lines += [
        "cleanlab's best variant in each setting, chosen afterwards (in brackets, the difference; + favours cleanlab):",
        "",
    ]
    lines += ["| measure | against `labelloop.correct` | against `labelloop.fit` |", "|---|---|---|"]
    for measure, (heading, _) in COLUMNS.items():
        cells = [said([verdict(s, runs, measure, ours) for s, runs in settings.items()], measure) for ours in OURS]
        lines.append(f"| {heading} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
