"""Takes finished runs of `labelloop paper ... --rerun` and `labelloop bench` into evidence/, one line of JSON a run.

`python benchmarks/store_evidence.py FOLDER...` adds what the paper's tables and figures ask for at the small scale and
the repository does not hold yet; `--replace` also takes runs anew that it does hold. What nothing asks for any more is
dropped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from labelloop.paper.evidence import read_evidence_lines
from labelloop.paper.grids import read_items
from labelloop.runs.files import read_json

EVIDENCE = Path(__file__).resolve().parents[1] / "evidence"
EXACT = ("epoch", "stage", "loss", "test_accuracy")  # what a repeated run must reproduce bit for bit
ROUNDED = (
    *("clean_accuracy", "clean_val_accuracy", "corrected_label_accuracy", "changed_labels", "good_labels_broken"),
    *("rarest_labels_broken", "corrected_label_nll", "corrected_label_ece", "peak_memory_mib"),
)
DIGITS = 5
DROPPED = ("title", "history", "rounds")


def compact(key: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """A run's record in its stored form."""
    history = record["history"]
    columns: dict[str, Any] = {}
    for name in (*EXACT, *ROUNDED):
        values = [row.get(name) for row in history]
        if any(value is not None for value in values):
            columns[name] = values if name in EXACT else [_rounded(value) for value in values]
    phases = sorted({phase for row in history for phase in row.get("seconds", {})})
    columns["seconds"] = {phase: [_rounded(row["seconds"].get(phase, 0.0), 3) for row in history] for phase in phases}
    kept = {name: value for name, value in record.items() if name not in DROPPED}
    rounds = [
        {"epoch": one["epoch"], "weights": [_rounded(weight) for weight in one["weights"]]}
        for one in record.get("rounds", [])
        if "weights" in one
    ]
    return {"key": key, **kept, "rounds": rounds, "history": columns}


def write_evidence(path: Path, runs: Iterable[Mapping[str, Any]]) -> None:
    """Writes compact runs to a file, sorted by key, so that a new run is one new line."""
    lines = [json.dumps(run, allow_nan=False, ensure_ascii=False) for run in sorted(runs, key=lambda run: run["key"])]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _rounded(value: Any, digits: int = DIGITS) -> Any:
    return round(value, digits) if isinstance(value, float) else value


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
