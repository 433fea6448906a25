# ruff: noqa: E501 (the lines of the page are as long as those of other pages)
"""docs/reliability.md, written from evidence/torture.json: what was tried, how often, and what was lost."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "evidence" / "torture.json"
PAGE = ROOT / "docs" / "reliability.md"

INTRODUCTION = """# Reliability

This page is written by `make torture`, which does to LabelLoop what a machine does on a bad day, and counts what was lost. The numbers are of the
stored run `evidence/torture.json`. SQLite's [testing page](https://www.sqlite.org/testing.html) was the model.

## What holds

- A command that is killed at any moment is repeated as it was typed (`fit` with `--resume`), and ends in the same bytes.
- A finished run has a manifest with the size and SHA-256 of every result. Each reader compares; `labelloop verify RUN` lists every file as whole,
  damaged, missing or foreign. Runs of older versions have no manifest, and open with a word.
- A decision in a review is on disk before it is acknowledged. Each line has a checksum.
- One process holds a run folder. The system keeps the lock, so that a killed process never leaves one behind.
- A damaged file ends in one line with the file and the field, exit code 1, and nothing written.

[SECURITY.md](../SECURITY.md) says what opening a stranger's files may do.
"""


def page(found: Mapping[str, Any]) -> str:
    """The page as text."""
    fuzz, races, flips = found["fuzz"], found["races"], found["flips"]
    tried, believed = (sum(one[key] for one in flips.values()) for key in ("flips", "believed"))
    lines = [
        INTRODUCTION,
        "## What was tried",
        "",
        "| what | how often | lost, believed or escaped |",
        "|---|---|---|",
        _line("a process killed just before an event of writing, then repeated", found["killed"]),
        _line("an event of writing that fails with a full disk, then repeated", found["failed"]),
        f"| a single bit flipped in a result file ({len(flips)} files) | {tried:,} | {believed:,} |",
        f"| a file of a run damaged, then read by every command that reads it | {fuzz['cases']:,} | {sum(fuzz['escaped'].values()):,} |",
        f"| {races['processes']} processes racing for one lock: tries | {races['tries']:,} (held {races['held']:,} times) | {races['held_by_two']:,} |",
        "",
        "## Kills by command",
        "",
        "An event is a file opened for writing, written to, synced, renamed, linked or deleted, or a folder made.",
        "",
        "| command | events | killed at | other bytes | failed at | other bytes |",
        "|---|---|---|---|---|---|",
        *_commands(found),
        "",
        _steps(found),
        "",
    ]
    return "\n".join(lines)


def _line(what: str, found: Mapping[str, Any]) -> str:
    commands = found["commands"]
    return f"| {what} | {sum(one['stopped'] for one in commands):,} | {sum(len(one['wrong']) for one in commands):,} |"


def _commands(found: Mapping[str, Any]) -> list[str]:
    failed = {one["command"]: one for one in found["failed"]["commands"]}
    rows = []
    for one in found["killed"]["commands"]:
        other = failed.get(one["command"])
        more = "| | |" if other is None else f"| {other['stopped']} | {len(other['wrong'])} |"
        rows.append(f"| `{one['command']}` | {one['events']} | {one['stopped']} | {len(one['wrong'])} {more}")
    return rows


def _steps(found: Mapping[str, Any]) -> str:
    kill, fail = found["killed"]["step"], found["failed"]["step"]
    if kill == fail == 1:
        return "Every event was stopped once."
    return f"In this stored run every {_nth(kill)} event was killed and every {_nth(fail)} one failed; `make torture` takes every one."


def _nth(step: int) -> str:
    return {1: "single", 2: "second", 3: "third"}.get(step, f"{step}th")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    options = parser.parse_args()
    text = page(json.loads(STORE.read_text(encoding="utf-8")))
    if options.check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
