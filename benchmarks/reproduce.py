"""Runs some stored runs again and compares: three of each protocol, drawn at random.

    python benchmarks/reproduce.py FOLDER --protocols embeddings digits --count 3 --draw 0

New runs are kept in FOLDER, so that it can be stopped and continued. Losses and accuracies have to be equal bit for
bit, everything else that is stored to its last stored digit, but for times, memory and versions. Exits with 1 where
one differs. Another processor rounds differently: runs stored on one agree with it in about four digits of the first
losses, no more.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from store_evidence import compact

from labelloop.bench.pool import run_bench
from labelloop.paper.evidence import read_evidence_lines
from labelloop.paper.grids import read_items
from labelloop.runs.files import read_json

EVIDENCE = Path(__file__).resolve().parents[1] / "evidence"


def differences(stored: dict[str, Any], again: dict[str, Any]) -> list[str]:
    """What is not the same."""
    columns, others = stored["history"], again["history"]
    names = [
        name for name in columns if name not in ("seconds", "peak_memory_mib") and columns[name] != others.get(name)
    ]
    return names + [name for name in ("rounds", "noisy_labels_sha256") if stored.get(name) != again.get(name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--protocols", nargs="*", help="default: all")
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--draw", type=int, default=0, help="the seed of the draw")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    stored = {line["key"]: line for line in read_evidence_lines(EVIDENCE)}
    known: dict[str, dict[str, Any]] = defaultdict(dict)
    for item in read_items().values():
        for part in item.at("small"):
            known[part.protocol] |= {e.key: e for e in part.experiments if e.key in stored}
    drawn = []
    for protocol in options.protocols or sorted(known):
        keys = sorted(known[protocol])
        chosen = random.Random(f"{options.draw}-{protocol}").sample(keys, min(options.count, len(keys)))
        drawn += [known[protocol][key] for key in chosen]
    failures = run_bench(drawn, options.folder, jobs=options.jobs).failures
    odd = len(failures)
    for one in drawn:
        place = options.folder / f"{one.key}.json"
        if not place.exists():
            continue
        found = differences(stored[one.key], compact(one.key, read_json(place)))
        print(f"{one.key}: {'equal' if not found else 'differs in ' + ', '.join(found)}")
        odd += bool(found)
    print(f"{len(drawn) - odd} of {len(drawn)} stored runs came out the same")
    return 1 if odd else 0


if __name__ == "__main__":
    sys.exit(main())
