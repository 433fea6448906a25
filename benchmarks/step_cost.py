"""What one step of each method costs beside one of cross-entropy: small-cnn, 32 x 32 x 3, batch 128, one thread.

The methods take turns, and each ratio is the median over the repeats of one turn divided by cross-entropy's in the
same repeat, because other work on the machine disturbs single turns. Seconds are CPU time of this process, and wall.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch

from labelloop.large_arrays import keep_freed_memory
from labelloop.methods import METHODS, l2b, mwnet
from labelloop.runs.run_json import versions
from labelloop.seeds import stream
from labelloop.training.runtime import Runtime
from labelloop.training.setup import resolve
from labelloop.types import MISSING, Problem, Rows

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "methods"))
import double_backward  # the reference of the tests, to measure what forward mode saves

BATCH = 128
# Name of the row: (method, settings, the most it may cost as a multiple of cross-entropy).
ROWS: dict[str, tuple[str, dict[str, Any], float | None]] = {
    "cross-entropy": ("cross-entropy", {}, None),
    "FasTEN": ("fasten", {}, 1.9),
    "L2B": ("l2b", {"warm_up": 0}, 3.6),
    "MW-Net": ("mw-net", {}, 4.6),
    "EMLC, K = 1": ("emlc", {"student_steps": 1}, 5.5),
    "EMLC, K = 5": ("emlc", {"student_steps": 5}, 4.2),
    "L2B, double backward": ("l2b", {"warm_up": 0}, None),
    "MW-Net, double backward": ("mw-net", {}, None),
}
SAVED = 1.3  # double backward must cost at least this multiple of forward mode


class Clocked(Runtime):
    """Adds up the CPU time and the wall time of everything but evaluation."""

    cpu = wall = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        if name != "evaluate":
            self.cpu += time.process_time() - cpu
            self.wall += time.perf_counter() - wall


def random_problem(steps: int, clean: int) -> Problem:
    rng, rows = stream(0, "images"), steps * BATCH
    images = rng.integers(0, 256, (rows + clean, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(rows + clean) % 10
    none = np.full(rows + clean, MISSING)
    train = Rows(images, np.arange(rows), labels[:rows], none[:rows])
    verified = Rows(images, np.arange(rows, rows + clean), none[rows:], labels[rows:])
    return Problem(train, verified, tuple(map(str, range(10))))


def one_epoch(row: str, problem: Problem) -> Clocked:
    method, settings, _ = ROWS[row]
    config = METHODS[method].config(network="small-cnn", epochs=1, batch_size=BATCH, learning_rate=0.01, **settings)
    runtime = Clocked(0, device="cpu", progress=False)
    with ExitStack() as stack:
        if "double" in row:
            stack.enter_context(mock.patch.object(l2b, "gains", double_backward.gains))
            stack.enter_context(mock.patch.object(mwnet, "weighting_gradient", double_backward.weighting_gradient))
        METHODS[method].fit(problem, resolve(config, problem), runtime)
    return runtime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn; a multiple of 5")
    parser.add_argument("--clean", type=int, default=1000, help="clean rows")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--give-memory-back", action="store_true", help="as malloc does by default, unlike our commands"
    )
    parser.add_argument("--store", type=Path, help="write the measurement to this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.give_memory_back:
        keep_freed_memory()
    problem = random_problem(options.steps, options.clean)
    rows = [row for row, (method, _, _) in ROWS.items() if method in METHODS]
    for row in rows:  # the first turn of each also compiles and allocates
        one_epoch(row, random_problem(5, options.clean))
    cpu: dict[str, list[float]] = {row: [] for row in rows}
    wall: dict[str, list[float]] = {row: [] for row in rows}
    for _ in range(options.repeats):
        for row in rows:
            clocks = one_epoch(row, problem)
            cpu[row].append(clocks.cpu / options.steps)
            wall[row].append(clocks.wall / options.steps)

    print(
        f"\n{options.repeats} repeats of {options.steps} steps; medians. Load of the machine: {os.getloadavg()[0]:.1f}"
    )
    print(f"{'':24} {'ms, CPU':>8} {'x, CPU':>7} {'spread':>12} {'x, wall':>8} {'bound':>6}")
    found = {}
    for row in rows:
        ratios, walls = against(cpu, row, "cross-entropy"), against(wall, row, "cross-entropy")
        bound = ROWS[row][2]
        found[row] = statistics.median(ratios)
        verdict = "" if bound is None else f"{bound:6.1f} {'kept' if found[row] <= bound else 'BROKEN'}"
        print(
            f"{row:24} {statistics.median(cpu[row]) * 1e3:8.1f} {found[row]:7.2f} "
            f"{min(ratios):5.2f} .. {max(ratios):.2f} {statistics.median(walls):8.2f} {verdict}"
        )
    for name in ("L2B", "MW-Net"):
        saved = statistics.median(against(cpu, f"{name}, double backward", name))
        found[f"{name}: double backward / forward mode"] = saved
        verdict = "kept" if saved >= SAVED else "BROKEN"
        print(f"{name}: double backward costs {saved:.2f} times forward mode; at least {SAVED}: {verdict}")
    if options.store:
        record = {"settings": {k: v for k, v in vars(options).items() if k != "store"}, "ratios": found}
        record |= {"cpu_seconds_a_step": cpu, "wall_seconds_a_step": wall, "versions": versions()}
        options.store.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def against(seconds: dict[str, list[float]], row: str, base: str) -> list[float]:
    """The ratio of two rows, repeat by repeat."""
    return [a / b for a, b in zip(seconds[row], seconds[base], strict=True)]


if __name__ == "__main__":
    main()
