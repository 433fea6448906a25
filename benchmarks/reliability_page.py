# ruff: noqa: E501 (the lines of the page are as long as those of other pages)
"""Writes docs/reliability.md from evidence/torture.json: what was tried, how often, and what was lost."""

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

`make torture` kills commands, fills the disk, flips bits and starves processes of memory, and counts what is lost. It also writes this page; the numbers
come from the stored run `evidence/torture.json`. The model was SQLite's [testing page](https://www.sqlite.org/testing.html).

## What holds

- **Kills.** If a command is killed at any moment, type it again (`fit` with `--resume`), and it ends with the same bytes.
- **Manifests.** A finished run has a manifest with the size and SHA-256 of every result, and every reader checks it. `labelloop verify RUN` lists each
  file as whole, damaged, missing or foreign. Runs of older versions have no manifest, and open with a note.
- **Reviews.** A decision is on disk before it is acknowledged. Each line has a checksum.
- **Locks.** Only one process can hold a run folder. The operating system keeps the lock, so a killed process never leaves one behind.
- **Damaged files.** The command prints one line with the file and the field, exits with code 1, and writes nothing.
- **Memory.** If there is too little, the command prints one line and exits with code 1; repeated with more memory, it works. Under `ulimit -v` a command
  runs in a child process. If a library ends that process or asks for memory without end, the parent reports it (after ten seconds without progress,
  thirty if it sleeps). No limit is refused beforehand; on the machine of this run, `correct` needs about 900 MiB of address space to start, and `fit`
  1,500. If the system's out-of-memory killer strikes without `ulimit -v`, no process is left to print a message; repeating the command works as after
  any kill.

[SECURITY.md](../SECURITY.md) says what a file from someone else may do when you open it.
"""


def page(found: Mapping[str, Any]) -> str:
    """The page as text."""
    fuzz, races, flips, crowd = (found[name] for name in ("fuzz", "races", "flips", "reviewers"))
    flips = flips["files"]
    tried, believed = (sum(one[key] for one in flips.values()) for key in ("flips", "believed"))
    lines = [
        INTRODUCTION,
        "## What was tried",
        "",
        "| what | how often | lost, undetected or uncaught |",
        "|---|---|---|",
        *(_line(words, found[way]) for way, words in WORDS.items() if way in found),
        f"| {crowd['reviewers']} reviewers whose server is killed {crowd['kills']} times: confirmed decisions | {crowd['confirmed']:,} | {crowd['lost'] + crowd['twice']:,} |",
        f"| a single bit flipped in a result file ({len(flips)} files) | {tried:,} | {believed:,} |",
        f"| a file of a run damaged, then read by every command that reads it | {fuzz['cases']:,} | {sum(fuzz['escaped'].values()):,} |",
        f"| {races['processes']} processes racing for one lock: tries | {races['tries']:,} (held {races['held']:,} times) | {races['held_by_two']:,} |",
        "",
        "## By command",
        "",
        "An event is a file opened for writing, written to, synced, renamed, linked or deleted, or a folder made.",
        "Each number is how often the command was stopped in that way. Every repeat ended with the bytes of an undisturbed run, except those counted as lost.",
        "`review` is stopped while decisions come in, and none that it had confirmed may be missing.",
        "",
        "| command | events | killed | full disk | read-only disk | little memory | failed allocation | lost |",
        "|---|---|---|---|---|---|---|---|",
        *_commands(found),
        "",
        *_notes(found),
        "",
        *_ran(found),
        "",
    ]
    return "\n".join(lines)


WORDS = {
    "killed": "a process killed at an event of writing, then repeated",
    "full": "an event of writing that fails with a full disk, then repeated",
    "read-only": "a disk that turns read-only at an event, then repeated",
    "memory": "a command with too little memory, then repeated",
    "allocation": "an allocation that fails, from the thousandth to the ten millionth, then repeated",
}


def _line(what: str, found: Mapping[str, Any]) -> str:
    commands = found["commands"]
    return f"| {what} | {sum(one['ended'] for one in commands):,} | {sum(len(one['wrong']) for one in commands):,} |"


def _commands(found: Mapping[str, Any]) -> list[str]:
    by_way = {way: {one["command"]: one for one in found[way]["commands"]} for way in WORDS if way in found}
    rows = []
    for name, one in by_way["killed"].items():
        there = [by_way.get(way, {}).get(name) for way in WORDS]
        times = " | ".join("" if each is None else str(each["ended"]) for each in there)
        wrong = sum(len(each["wrong"]) for each in there if each is not None)
        rows.append(f"| `{name}` | {one['events']} | {times} | {wrong} |")
    return rows


def _notes(found: Mapping[str, Any]) -> list[str]:
    """What the stored run leaves open."""
    lines = [f"- {words}: not in this stored run" for way, words in WORDS.items() if way not in found]
    steps = {way: found[way]["step"] for way in WORDS if way in found}
    lines += [
        f"- {WORDS[way]}: tried at one event in {step} only"
        for way, step in steps.items()
        if step > 1 and way == "read-only"
    ]
    fuzz = found["fuzz"]
    lines += [
        f"- uncaught in {times} of {fuzz['cases']:,} damaged files: {what}" for what, times in fuzz["escaped"].items()
    ]
    if not lines:
        return ["Every command was stopped at every event, in every way."]
    return ["## What this run leaves open", "", *lines]


def _ran(found: Mapping[str, Any]) -> list[str]:
    """Which commit ran, and how long."""
    ran = [part["ran"] for part in found.values()]
    again = [one for part in found.values() for one in part.get("commands", ()) if "commit" in one]  # after a mend
    commits = sorted({str(one.get("commit", "unknown"))[:10] for one in (*ran, *again)})
    minutes = round(sum(one["seconds"] for one in ran) / 60)
    return [
        f"The stored run was made at commit {', '.join(commits)} and took {minutes} minutes of wall time, on one core beside other work."
    ]


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
