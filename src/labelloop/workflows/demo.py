"""The demo: real digits, corrupted labels, and the closed loop compared with the simplest baselines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from labelloop.data.table import from_arrays
from labelloop.errors import DataError, UsageError
from labelloop.methods import recipe_config
from labelloop.runs.files import write_json
from labelloop.runs.folder import LABELS, holds_run, read_record
from labelloop.runs.run_json import versions
from labelloop.types import MISSING
from labelloop.workflows.compose import NoisySetting, RunOptions, load_data, noisy_problem
from labelloop.workflows.fit import Result, fit_table

NOISE, RATE, CLEAN_ROWS = "instance", 0.4, 200
TITLES = {
    "cross-entropy": "cross-entropy on the noisy labels",
    "clean-only": "the clean rows alone",
    "noisy-and-clean": "noisy + clean",
    "fine-tune": "noisy, then fine-tune on clean",
    "closed-loop": "closed loop (the paper's method)",
    "labelloop": "LabelLoop (the default)",
}
CORRECTING = ("closed-loop", "labelloop")  # methods that return labels of their own


def run_demo(folder: Path, seeds: int = 3) -> str:
    """Runs every method on every seed and returns the table."""
    if seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {seeds}")
    for place in (folder, *(folder / f"{method}-seed{seed}" for method in TITLES for seed in range(seeds))):
        _is_demo(place)  # refuses before the first run
    started = time.perf_counter()
    results: dict[str, list[Result]] = {method: [] for method in TITLES}
    labels: dict[str, list[float]] = {method: [] for method in TITLES}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads would only slow down so small a network
    try:
        with tqdm(total=len(TITLES) * seeds, unit="run", disable=None, leave=False) as bar:
            for seed in range(seeds):
                for method, runs in results.items():
                    result, right = _run(method, seed, folder)
                    runs.append(result)
                    labels[method].append(right)
                    bar.update()
    finally:
        torch.set_num_threads(threads)
    record = {
        "noise": NOISE,
        "rate": RATE,
        "clean_rows": CLEAN_ROWS,
        "noisy_rows": len(results["labelloop"][0].corrected_labels) - CLEAN_ROWS,
        "versions": versions(),
        "labels": {method: labels[method] for method in CORRECTING},
        "last": {method: [run.history[-1] for run in runs] for method, runs in results.items()},
    }
    write_json(folder / "demo.json", record)
    seconds = time.perf_counter() - started
    return (
        f"{demo_table(record)}\n\n{seconds:.0f} s; the runs are in {folder}, the corrected labels of seed 0 in\n"
        f"{folder / 'labelloop-seed0' / LABELS}"
    )


def _run(method: str, seed: int, folder: Path) -> tuple[Result, float]:
    """One method on the same rows as in `labelloop bench`, and the share of noisy rows that come back right."""
    setting = NoisySetting("digits", clean=CLEAN_ROWS, noise=NOISE, rate=RATE, seed=seed)
    data = load_data(setting)
    problem, truth, _ = noisy_problem(setting, data)
    given, clean = np.full((2, len(data)), MISSING)
    for rows in (problem.train, problem.clean):
        given[rows.index], clean[rows.index] = rows.labels, rows.clean_labels
    assert truth.test is not None
    place = folder / f"{method}-seed{seed}"
    result = fit_table(
        from_arrays(data.inputs, given, clean, source="digits"),
        recipe_config(method),
        RunOptions(seed, progress=False, folder=place, overwrite=_is_demo(place), report=method == "labelloop"),
        method=method,
        test=from_arrays(truth.test.inputs, truth.test.clean_labels, source="digits, test"),
        y_true=data.labels,
        about={"demo": True},
    )
    noisy = problem.train.index
    return result, float((result.corrected_labels[noisy] == data.labels[noisy]).mean())


def _is_demo(place: Path) -> bool:
    """Whether a folder holds an earlier demo, which may be replaced; anything else may not."""
    if not holds_run(place):
        return False
    if not read_record(place).about.get("demo"):
        raise DataError(f"{place} holds a run that is not a demo; give another folder with --output-dir")
    return True


def demo_table(record: Mapping[str, Any]) -> str:
    """The table of a demo, from its record."""
    last = record["last"]
    seeds = len(last["labelloop"])
    width = max(map(len, TITLES.values()))
    lines = [
        f"digits: {record['noisy_rows']:,} rows, {record['noise']}-dependent noise of {record['rate']:.0%}, "
        f"{record['clean_rows']} clean rows without a noisy label",
        f"mean ± standard deviation over {seeds} seed{'s' if seeds > 1 else ''}, in %, after the last epoch",
        "",
        "accuracy of the labels",
        f"{'as given':>{width}}  {_cell([row['given_label_accuracy'] for row in last['labelloop']])}",
        *(f"{title:>{width}}  {_cell(record['labels'][key])}" for key, title in TITLES.items() if key in CORRECTING),
        "",
        "test accuracy",
        *(f"{title:>{width}}  {_cell([row['test_accuracy'] for row in last[key]])}" for key, title in TITLES.items()),
    ]
    return "\n".join(lines)


def _cell(values: Sequence[Any]) -> str:
    return f"{100 * np.mean(values):5.1f} ± {100 * np.std(values, ddof=len(values) > 1):.1f}"
