"""Small files for the tests of the command line, ways to run it, and what a folder holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from labelloop.runs.lock import LOCK

NAMES = ("ant", "bee", "cat")
COLUMNS = ("a", "b", "c", "d")
# Two corrections in a fraction of a second.
QUICK = ("epochs=5", "rounds=1", "learners=networks", "batch_size=32", "network_options.hidden=[8]")
# The paper's method: three corrections, after epochs 2, 3 and 4.
QUICK_LOOP = (
    "epochs=5",
    "warm_up=2",
    "correct_every=1",
    "batch_size=32",
    "network_options.hidden=[8]",
    "corrector.hidden=8",
    "corrector.max_epochs=8",
)
QUICK_BASELINE = ("epochs=3", "network_options.hidden=[8]")


@dataclass(frozen=True)
class Small:
    """Rows of all four kinds: 0-11 clean unpaired, 12-23 clean paired, 110-119 unlabelled, the rest noisy."""

    X: np.ndarray  # [120, 4]
    true: np.ndarray
    y: np.ndarray  # -1 where missing
    y_clean: np.ndarray
    ids: list[str]

    def names(self, labels: np.ndarray) -> list[str]:
        return ["" if label < 0 else NAMES[label] for label in labels]


def small(n: int = 120, seed: int = 0) -> Small:
    rng = np.random.default_rng(seed)
    true = rng.permutation(np.arange(n) % 3)
    true[:24] = np.arange(24) % 3
    X = (np.random.default_rng(9).normal(size=(3, 4)) * 2)[true] + rng.normal(size=(n, 4))
    y = np.where(rng.random(n) < 0.3, (true + 1) % 3, true)
    y[12], y[13] = (true[12] + 1) % 3, true[13]  # a paired row with a wrong label and one with the right one
    y_clean = np.where(np.arange(n) < 24, true, -1)
    y[:12] = y[110:] = -1
    return Small(X.astype(np.float32), true, y, y_clean, [f"row-{i}" for i in range(n)])


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    table = pa.table({name: pa.array(list(values)) for name, values in columns.items()})
    pa.csv.write_csv(table, path)
    return path


def numbers(data: Small) -> dict[str, Any]:
    return {name: data.X[:, j] for j, name in enumerate(COLUMNS)}


def named_csv(path: Path, data: Small, **more: Any) -> Path:
    """The data with names for labels; `more` adds or replaces columns."""
    labels = {"label": data.names(data.y), "clean_label": data.names(data.y_clean)}
    return write_csv(path, {"id": data.ids, **numbers(data), **labels, **more})


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str


def settings(values: Sequence[str]) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "labelloop", *map(str, arguments)]


def in_process_of_its_own(*arguments: object, timeout: float = 120) -> Ran:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=timeout, env=dict(os.environ))
    return Ran(done.returncode, done.stdout, done.stderr)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder; the lock, which each command leaves, aside."""
    found = sorted(path for path in folder.rglob("*") if path.name != LOCK)
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in found}


def labels_of(run: Path) -> dict[str, list[Any]]:
    return pq.read_table(run / "labels.parquet").to_pydict()


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl without what a clock or the machine says."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("seconds", "peak_memory_mib")} for row in rows]


def run_json(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())
