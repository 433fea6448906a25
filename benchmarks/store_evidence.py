"""Takes finished runs of `labelloop paper ... --rerun` and `labelloop bench` into evidence/, one line of JSON a run.

`python benchmarks/store_evidence.py FOLDER...` adds what the paper's tables and figures ask for at the small scale and
the repository does not hold yet; `--replace` also takes runs anew that it does hold. What nothing asks for any more is
dropped.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from labelloop.paper.evidence import compact, read_evidence_lines, write_evidence
from labelloop.paper.grids import read_items
from labelloop.runs.files import read_json

EVIDENCE = Path(__file__).resolve().parents[1] / "evidence"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--replace", action="store_true")
    options = parser.parse_args()
    protocol_of = {
        e.key: part.protocol for item in read_items().values() for part in item.at("small") for e in part.experiments
    }
    stored = {run["key"]: run for run in read_evidence_lines(EVIDENCE)}
    before = set(stored)
    for folder in options.folders:
        for path in sorted(folder.glob("*.json")):
            if path.stem in protocol_of and (options.replace or path.stem not in stored):
                stored[path.stem] = compact(path.stem, read_json(path))
    kept = {key: run for key, run in stored.items() if key in protocol_of}
    for protocol in sorted(set(protocol_of.values())):
        runs = [run for key, run in kept.items() if protocol_of[key] == protocol]
        if runs:
            write_evidence(EVIDENCE / f"{protocol}.jsonl", runs)
    counts, wanted = Counter(protocol_of[key] for key in kept), Counter(protocol_of.values())
    for protocol, count in wanted.items():
        print(f"{protocol}: {counts[protocol]} of {count} runs stored")
    print(f"{len(kept.keys() - before)} new, {len(before - kept.keys())} dropped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
