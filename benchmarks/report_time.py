"""Seconds to write a report, its size, and how fast its table answers a filter, by the page's own clock.

    python benchmarks/report_time.py [--rows 50000 500000] [--store evidence/report_time.json]

The runs are made up: ten classes, a fifth of the labels changed, so that 500,000 rows have 100,000 changes; each row
has 128 features, from which the report draws its map. The filter is timed in a real browser where chromium and
chromedriver are installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from labelloop.report.html import write_report
from labelloop.runs.labels import label_table
from labelloop.runs.result_files import Preview, RowArrays, write_preview, write_row_arrays
from labelloop.runs.run_json import versions

ROOT = Path(__file__).resolve().parents[1]
FEATURES = 128
CLASSES = [f"class {k}" for k in range(10)]


def made_run(folder: Path, rows: int) -> Path:
    """A finished run with as many rows, a fifth of them changed, and texts for 100,000 of them."""
    rng = np.random.default_rng(0)
    true = rng.integers(10, size=rows)
    given = np.where(rng.random(rows) < 0.2, (true + rng.integers(1, 10, size=rows)) % 10, true)
    clean = np.where(np.arange(rows) % 100 == 1, true, -1)
    sure = rng.uniform(0.3, 1, rows)
    targets = np.repeat(((1 - sure) / 9)[:, None], 10, axis=1).astype(np.float32)
    targets[np.arange(rows), true] = sure
    folder.mkdir()
    ids = np.array([f"row-{k:06d}" for k in range(rows)])
    pq.write_table(label_table(ids, CLASSES, given, clean, targets, true), folder / "labels.parquet")
    np.save(folder / "targets.npy", targets)
    kept = np.flatnonzero(given != true)[:100_000].tolist()
    write_preview(folder, Preview("text", kept, [f"what row {k} says, in a sentence of some length" for k in kept]))
    record = {"schema_version": 2, "method": "correct", "state": "finished", "data": {"rows": rows, "classes": CLASSES}}
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def filter_times(page: Path, place: Path) -> dict[str, list[float]] | None:
    """Milliseconds of ten filters and two new orders each, or None without a browser."""
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    from chromium import Browser, missing

    if missing():
        return None
    took = "Number(document.querySelector('#row-table').dataset.took)"
    with Browser(place / "browser") as browser:
        browser.open(page.as_uri())
        browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'", 300)
        filters = []
        for k in range(10):
            browser.set_value("[data-filter=given]", str(k))
            filters.append(browser.run(f"return {took}"))
        browser.set_value("[data-filter=given]", "-1")
        for least in ("0.5", "0.9"):
            browser.set_value("[data-filter=least]", least)
            filters.append(browser.run(f"return {took}"))
        browser.set_value("[data-filter=least]", "0")
        browser.set_value("[data-filter=words]", "77")
        words = browser.run(f"return {took}")
        browser.set_value("[data-filter=words]", "")
        orders = []
        for key in ("confidence", "given"):
            browser.click(f"#row-table [data-key={key}] button")
            orders.append(browser.run(f"return {took}"))
        shown = browser.run("return Number(document.querySelector('#row-table').dataset.found)")
    return {"rows": shown, "filters_ms": filters, "search_ms": words, "orders_ms": orders}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 500_000])
    parser.add_argument("--store", type=Path, default=ROOT / "evidence" / "report_time.json")
    options = parser.parse_args()
    lines = []
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as place:
            folder = made_run(Path(place) / "run", rows)
            features = np.random.default_rng(1).normal(size=(rows, FEATURES)).astype(np.float16)  # for the map
            missing = np.full(rows, -1)
            write_row_arrays(folder, RowArrays(missing, missing, missing >= 0, {"features": features}))
            started, busy = time.perf_counter(), time.process_time()
            page = write_report([folder])
            seconds, processor = time.perf_counter() - started, time.process_time() - busy
            line = {"rows": rows, "seconds": round(seconds, 2), "processor_seconds": round(processor, 2)}
            found = {"bytes": page.stat().st_size, "filter": filter_times(page, Path(place))}
            lines.append({**line, **found, "load_average": round(os.getloadavg()[0], 1)})
            print(json.dumps(lines[-1]), flush=True)
    content = json.dumps({"runs": lines, "versions": versions()}, indent=1) + "\n"
    options.store.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
