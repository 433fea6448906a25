"""The demo: real digits, corrupted labels, the closed loop beside the rows a sceptic asks for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from labelloop.data.datasets.digits import digits
from labelloop.data.table import from_arrays
from labelloop.errors import DataError, UsageError
from labelloop.methods.configure import recipe_config
from labelloop.noise import NOISES
from labelloop.runs.files import write_json
from labelloop.runs.folder import holds_run, read_record
from labelloop.runs.versions import versions
from labelloop.seeds import stream
from labelloop.splits import clean_split
from labelloop.types import MISSING
from labelloop.workflows.fit import Result, fit_table

NOISE, RATE, CLEAN_ROWS = "instance", 0.4, 200
ROWS = {
    "cross-entropy": "cross-entropy on the noisy labels",
    "clean-only": "the clean rows alone",
    "noisy-and-clean": "noisy + clean",
    "fine-tune": "noisy, then fine-tune on clean",
    "closed-loop": "closed loop",
}


def run_demo(folder: Path, seeds: int = 3) -> str:
    """Runs every method on every seed and returns the table."""
    if seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {seeds}")
    for place in (folder, *(folder / f"{method}-seed{seed}" for method in ROWS for seed in range(seeds))):
        _is_demo(place)  # refuses before the first run, not in the middle
    started = time.perf_counter()
    results: dict[str, list[Result]] = {method: [] for method in ROWS}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a network this small only loses time by sharing its sums out
    try:
        with tqdm(total=len(ROWS) * seeds, unit="run", disable=None, leave=False) as bar:
            for seed in range(seeds):
                for method, runs in results.items():
                    runs.append(_run(method, seed, folder))
                    bar.update()
    finally:
        torch.set_num_threads(threads)
    record = {
        "noise": NOISE,
        "rate": RATE,
        "clean_rows": CLEAN_ROWS,
        "noisy_rows": len(digits()[1]) - CLEAN_ROWS,
        "versions": versions(),
        "last": {method: [run.history[-1] for run in runs] for method, runs in results.items()},
    }
    write_json(folder / "demo.json", record)
    seconds = time.perf_counter() - started
    return (
        f"{demo_table(record)}\n\n{seconds:.0f} s; the runs are in {folder}, the corrected labels of seed 0 in\n"
        f"{folder / 'closed-loop-seed0' / 'labels.parquet'}"
    )


def _run(method: str, seed: int, folder: Path) -> Result:
    inputs, labels, test_inputs, test_labels = digits()
    noisy, clean = clean_split(labels, CLEAN_ROWS, stream(seed, "clean-split"))
    given, verified = np.full((2, len(labels)), MISSING)
    corrupted = NOISES[NOISE](labels[noisy], 10, RATE, stream(seed, "noise"), images=255 * inputs[noisy], index=noisy)
    given[noisy] = corrupted.labels
    verified[clean] = labels[clean]
    place = folder / f"{method}-seed{seed}"
    return fit_table(
        from_arrays(inputs, given, verified, source="digits"),
        from_arrays(test_inputs, test_labels, source="digits, test"),
        recipe_config(method, "practical"),
        method=method,
        seed=seed,
        y_true=labels,
        folder=place,
        overwrite=_is_demo(place),
        progress=False,
        about={"demo": True},
    )


def _is_demo(place: Path) -> bool:
    """Whether a folder holds an earlier demo, which may be replaced; anything else may not."""
    if not holds_run(place):
        return False
    if not read_record(place).about.get("demo"):
        raise DataError(f"{place} holds a run that is no demo; give another folder with --output-dir")
    return True


def demo_table(record: Mapping[str, Any]) -> str:
    """The table of a demo, from its record."""
    last = record["last"]
    seeds = len(last["closed-loop"])
    width = max(map(len, ROWS.values()))
    lines = [
        f"digits: {record['noisy_rows']:,} rows, {record['noise']}-dependent noise of {record['rate']:.0%}, "
        f"{record['clean_rows']} clean rows without a noisy label",
        f"mean ± standard deviation over {seeds} seed{'s' if seeds > 1 else ''}, in %, after the last epoch",
        "",
        "accuracy of the labels",
        f"{'as given':>{width}}  {_cell([row['given_label_accuracy'] for row in last['closed-loop']])}",
        f"{'corrected':>{width}}  {_cell([row['corrected_label_accuracy'] for row in last['closed-loop']])}",
        "",
        "test accuracy",
        *(f"{title:>{width}}  {_cell([row['test_accuracy'] for row in last[key]])}" for key, title in ROWS.items()),
    ]
    return "\n".join(lines)


def _cell(values: Sequence[Any]) -> str:
    return f"{100 * np.mean(values):5.1f} ± {100 * np.std(values, ddof=len(values) > 1):.1f}"
