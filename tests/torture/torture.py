"""Everything, part by part: kills and failed writes at every event, little memory, reviewers, flips, damage, races.

    python tests/torture/torture.py --output evidence/torture.json       # `make torture`

Ends with 1 if anything was lost, believed or escaped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "trust")]

from fuzz import READERS, base_runs, fuzz  # noqa: E402
from killing import COMMANDS  # noqa: E402
from races import race  # noqa: E402
from reviewing import crowded  # noqa: E402

from labelloop.errors import DataError  # noqa: E402
from labelloop.export.verify import BAD, verify  # noqa: E402
from labelloop.runs.manifest import read_manifest  # noqa: E402
from labelloop.runs.run_json import versions  # noqa: E402


def stopped(how: str, step: int) -> dict[str, Any]:
    """A record per command, from a process that forks: see killing.py."""
    command = [sys.executable, str(HERE / "killing.py"), "--step", str(step), "--how", how]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {one["command"] for one in found} == {*COMMANDS, "review"}, f"{how}: it broke after {len(found)} commands"
    return {"step": step, "commands": found}


def flipped(run: Path, place: Path, each: int, seed: int) -> dict[str, Any]:
    """Single bits of every result file: how many were tried, and how many `verify` and the readers believed."""
    draw, found = random.Random(seed), {}
    shutil.copytree(run, place / "flipped")
    run = place / "flipped"
    for name in read_manifest(run) or {}:
        whole, believed = (run / name).read_bytes(), 0
        for _ in range(each):
            changed = bytearray(whole)
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            (run / name).write_bytes(changed)
            believed += not any(one.state in BAD and one.name == name for one in verify(run)[0])
            for reader in READERS.get(name, ()):
                (place / "out").mkdir(exist_ok=True)
                try:
                    reader(run, place / "out")
                except DataError:
                    continue
                finally:
                    shutil.rmtree(place / "out", ignore_errors=True)
            (run / name).write_bytes(whole)
        found[name] = {"flips": each, "believed": believed}
    return {"files": found}


def fuzzed(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    cases, escaped, examples = fuzz(base_runs(place), folder(place / "work"), options.cases, seed=11)
    return {"cases": cases, "escaped": dict(escaped), "examples": examples}


def raced(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    held, doubled = race(place, 8, options.races)
    return {"processes": 8, "tries": 8 * options.races, "held": held, "held_by_two": doubled}


def folder(path: Path) -> Path:
    path.mkdir()
    return path


Part = Callable[[Path, argparse.Namespace], dict[str, Any]]
PARTS: dict[str, Part] = {
    "races": raced,
    "reviewers": lambda place, options: crowded(options.reviewers, options.kills),
    "flips": lambda place, options: flipped(base_runs(folder(place / "base"))[0], place, options.flips, seed=5),
    "killed": lambda place, options: stopped("killed", options.step),
    "full": lambda place, options: stopped("full", options.step),
    "read-only": lambda place, options: stopped("read-only", 3 * options.step),
    "memory": lambda place, options: stopped("memory", 6 * options.step),
    "allocation": lambda place, options: stopped("allocation", 2 * options.step),
    "fuzz": fuzzed,
}


def wrong_in(part: Mapping[str, Any]) -> list[str]:
    """What was lost, believed, held by two or escaped."""
    found = [text for one in part.get("commands", ()) for text in one["wrong"]]
    found += [f"{name}: {part[name]}" for name in ("escaped", "held_by_two", "lost", "twice") if part.get(name)]
    return found + [f"{name}: a flip was believed" for name, one in part.get("files", {}).items() if one["believed"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--parts", nargs="*", choices=PARTS, help="only these, beside what the file has (default: all)")
    parser.add_argument("--step", type=int, default=1, help="stop at every event, or at every n-th")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--races", type=int, default=400, help="rounds of each of eight processes")
    parser.add_argument("--reviewers", type=int, default=50)
    parser.add_argument("--kills", type=int, default=20, help="of the reviewers' server")
    options = parser.parse_args()
    parts = options.parts or list(PARTS)
    found: dict[str, Any] = json.loads(options.output.read_text("utf-8")) if options.parts else {}
    for name in parts:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as made:
            found[name] = PARTS[name](Path(made), options)
        found[name]["ran"] = {"seconds": round(time.monotonic() - begun), **versions()}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {wrong_in(found[name]) or 'nothing lost'}", flush=True)
    return int(any(wrong_in(found[name]) for name in parts))


if __name__ == "__main__":
    sys.exit(main())
