"""`make bench`: speed and memory side by side in one go, each target met or missed; a table, and JSON for the page.

Times are processor seconds, in turns, and the median of the repeats counts: other programs disturb the clock on the
wall, and single turns. It waits a minute for the machine to be quiet, and says when it was not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported

from clocks import HEADER, QUIET, line, load_of_others, wait_until_quiet
from performance_parts import FULL, PARTS, QUICK, TINY

from labelloop.large_arrays import keep_freed_memory
from labelloop.runs.run_json import versions

STORE = Path(__file__).resolve().parents[1] / "evidence" / "performance.json"
SIZES = {"quick": QUICK, "full": FULL, "tiny": TINY}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="quick", help="quick: minutes; full: an hour (default quick)")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts; the others stay as they are stored")
    parser.add_argument("--store", type=Path, help=f"the JSON file; {STORE.name} of the stored runs by default")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for a quiet machine")
    options = parser.parse_args()
    store = options.store or STORE
    stored: dict[str, Any] = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    keep_freed_memory()  # as our commands do
    load = load_of_others() if options.no_wait else wait_until_quiet()
    if load > QUIET:
        print(f"the machine is not quiet: other programs take {load:.1f} processors; ratios may be off", flush=True)
    print(HEADER, flush=True)
    missed = 0
    for name in options.only or PARTS:
        start = time.monotonic()
        entries = [measured.to_json() for measured in PARTS[name](SIZES[options.size])]
        after = load_of_others(0.5)
        for entry in entries:
            print(line(entry), flush=True)
            missed += entry["met"] is False
        stored[name] = {
            "size": options.size,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - start, 1),
            "load_of_others": round(max(load, after), 2),
            "quiet": max(load, after) <= QUIET,
            "processors": os.cpu_count(),
            "versions": versions(),
            "lines": entries,
        }
        store.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    print(f"{missed} targets missed; stored in {store}; `python benchmarks/performance_page.py` writes the page")
    return 0


if __name__ == "__main__":
    sys.exit(main())
