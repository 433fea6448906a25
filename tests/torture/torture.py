"""Everything at once: kills and failed writes at every event, flipped bits, damaged files, lock races.

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
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "trust")]

from fuzz import READERS, base_runs, fuzz  # noqa: E402
from races import race  # noqa: E402

from labelloop.errors import DataError  # noqa: E402
from labelloop.export.verify import BAD, verify  # noqa: E402
from labelloop.runs.manifest import read_manifest  # noqa: E402
from labelloop.runs.run_json import versions  # noqa: E402


def killed(step: int, fails: bool) -> list[dict[str, Any]]:
    """A record per command, from a process that forks: see killing.py."""
    command = [sys.executable, str(HERE / "killing.py"), "--step", str(step), *(["--fails"] if fails else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def flipped(run: Path, place: Path, each: int, seed: int) -> dict[str, dict[str, int]]:
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
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--step", type=int, default=1, help="kill at every event, or at every n-th")
    parser.add_argument("--fail-step", type=int, default=1)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--races", type=int, default=400, help="rounds of each of eight processes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        for name in ("base", "work", "race"):
            (place / name).mkdir()
        runs = base_runs(place / "base")
        cases, escaped, examples = fuzz(runs, place / "work", options.cases, seed=11)
        held, doubled = race(place / "race", 8, options.races)
        found: dict[str, Any] = {
            "versions": versions(),
            "fuzz": {"cases": cases, "escaped": dict(escaped), "examples": examples},
            "races": {"processes": 8, "tries": 8 * options.races, "held": held, "held_by_two": doubled},
            "flips": flipped(runs[0], place, options.flips, seed=5),
        }
        print(json.dumps({key: found[key] for key in ("fuzz", "races", "flips")}), flush=True)
    found["killed"] = {"step": options.step, "commands": killed(options.step, fails=False)}
    found["failed"] = {"step": options.fail_step, "commands": killed(options.fail_step, fails=True)}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    wrong = [text for kind in ("killed", "failed") for one in found[kind]["commands"] for text in one["wrong"]]
    believed = sum(one["believed"] for one in found["flips"].values())
    print("\n".join(wrong), file=sys.stderr)
    return int(bool(wrong or escaped or doubled or believed))


if __name__ == "__main__":
    sys.exit(main())
