"""Tables for docs/tables-of-a-new-user.md from the runs of new_user_tables.py and new_user_texts.py."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

EVIDENCE = Path(__file__).resolve().parents[1] / "evidence" / "new_user"
OURS, GIVEN = "labelloop correct", "given"
TIE = 0.005  # of the mean over seeds, or the deviation of the difference if that is more
CELL = ("table", "clean", "paired")

Lines = list[dict[str, Any]]


def read(name: str) -> Lines:
    path = EVIDENCE / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def cells(lines: Lines) -> dict[tuple[Any, ...], dict[str, dict[int, float]]]:
    """By cell, by method and by seed, the share of right labels; only cells in which ours and a rival ran."""
    found: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for line in lines:
        cell = found.setdefault(tuple(line[key] for key in CELL), {})
        cell.setdefault(line["method"], {})[line["seed"]] = line["right"]
        cell.setdefault(GIVEN, {})[line["seed"]] = line["given"]
    return {key: cell for key, cell in found.items() if OURS in cell and set(cell) - {OURS, GIVEN}}


def best_rival(cell: dict[str, dict[int, float]]) -> tuple[str, float, str]:
    """The best rival by its mean over the seeds that ours has too, by how much ours is ahead, and the verdict."""
    ours = cell[OURS]
    means = {}
    for method, seeds in cell.items():
        common = sorted(set(seeds) & set(ours))
        if method not in (OURS, GIVEN) and common:
            means[method] = [ours[seed] - seeds[seed] for seed in common]
    name = min(means, key=lambda method: np.mean(means[method]))
    ahead = means[name]
    margin = max(TIE, float(np.std(ahead, ddof=1)) if len(ahead) > 1 else 0.0)
    mean = float(np.mean(ahead))
    return name, mean, "tied" if abs(mean) <= margin else "first" if mean > 0 else "behind"


def tally() -> str:
    """How often ours is first, tied and behind, in words."""
    found = cells(read("tables.jsonl"))
    if not found:
        return "not measured yet"
    verdicts = [best_rival(cell)[2] for cell in found.values()]
    seeds = {len(cell[OURS]) for cell in found.values()}
    few = f"{min(seeds)} to " if len(seeds) > 1 else ""
    first, tied, behind = (verdicts.count(word) for word in ("first", "tied", "behind"))
    return (
        f"{len(found)} cells of {len({key[0] for key in found})} tables, {few}{max(seeds)} seeds each: ahead of the"
        f" best rival in {first}, tied in {tied}, behind in {behind}."
    )


def table(name: str = "tables.jsonl") -> str:
    """A row per cell: right labels as given, ours, and the best rival."""
    found = cells(read(name))
    if not found:
        return "not measured yet"
    lines = [
        "| data | clean rows | given kept | seeds | as given | `labelloop correct` | best rival | |",
        "|---|---:|---|---:|---:|---:|---|---|",
    ]
    for key, cell in sorted(found.items(), key=lambda pair: (pair[0][0].lower(), pair[0][1], not pair[0][2])):
        rival, ahead, verdict = best_rival(cell)
        given, ours = (np.mean(list(cell[method].values())) for method in (GIVEN, OURS))
        kept = "yes" if key[2] else "no"
        shown = f"{100 * (ours - ahead):.1f}, {rival}"
        lines.append(
            f"| {key[0]} | {key[1]} | {kept} | {len(cell[OURS])} | {100 * given:.1f} | {100 * ours:.1f} | {shown}"
            f" | {verdict} |"
        )
    return "\n".join(lines)


def held() -> str:
    """How often the interval of the estimate contains the share of right labels."""
    lines = [line for line in read("tables.jsonl") if line.get("estimate")]
    if not lines:
        return "not measured yet"
    inside = sum(line["estimate"]["low"] <= line["right"] <= line["estimate"]["high"] for line in lines)
    return f"The 95% interval of the estimate contains the true share of right labels in {inside} of {len(lines)} runs."


def made() -> str:
    """How many runs of ours were made at which commit."""
    runs = [line["versions"].get("commit", "unknown")[:10] for line in read("tables.jsonl") if line["method"] == OURS]
    counts = ", ".join(f"{count} at {commit}" for commit, count in Counter(runs).most_common())
    return f"Runs of `correct` on the tables, by commit: {counts}."
