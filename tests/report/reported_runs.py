"""Run folders made by hand: small, quick, and broken in the ways that a test wants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from labelloop.runs.labels import label_table
from labelloop.types import MISSING

CLASSES = ("cat", "dog", "<script>alert('x')</script>")


def made_run(
    folder: Path,
    rows: int = 60,
    classes: tuple[str, ...] = CLASSES,
    seed: int = 0,
    ids: list[str] | None = None,
    **record: Any,
) -> Path:
    """Writes a finished run: a fifth of the rows is clean, about a third of the labels is wrong."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    count = len(classes)
    true = rng.integers(count, size=rows)
    given = np.where(rng.random(rows) < 0.3, rng.integers(count, size=rows), true)
    clean = np.where(np.arange(rows) % 5 == 0, true, MISSING)
    sure = rng.uniform(0.5, 1, rows)
    targets = np.repeat(((1 - sure) / (count - 1))[:, None], count, axis=1).astype(np.float32)
    targets[np.arange(rows), true] = sure
    targets[clean != MISSING] = np.eye(count, dtype=np.float32)[clean[clean != MISSING]]
    names = np.array(ids if ids is not None else [f"row-{k}" for k in range(rows)])
    table = label_table(names, list(classes), given, clean, targets, true)
    pq.write_table(table, folder / "labels.parquet")
    np.save(folder / "targets.npy", targets)
    share = {"value": 0.9, "low": 0.8, "high": 0.95, "rows": 12}
    run = {
        "schema_version": 2,
        "method": "closed-loop",
        "config": {"epochs": 4, "lr_drops": [0.5], "batch_size": 8},
        "seed": seed,
        "data": {"source": "a <b>bold</b> file.csv", "rows": rows, "classes": list(classes), "test": {"rows": 9}},
        "state": "finished",
        "stop_reason": "epoch limit",
        "rounds": [
            {"round": 1, "epoch": 2, "weights": [0.25, 0.75]},
            {"round": 2, "epoch": 3, "weights": [0.2, 0.1, 0.7]},
        ],
        "labels_from": "held-out networks",
        "estimate": {
            "corrected_label_accuracy": share,
            "good_labels_broken": {**share, "value": 0.02, "rows": 8},
            "wrong_labels_fixed": {**share, "value": 0.75, "rows": 4},
            "notes": ["a note with <em>tags</em>"],
            "reliability": [{"from": 0.9, "to": 1.0, "confidence": 0.95, **share}],
        },
        **record,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    lines = [
        {"epoch": k, "loss": 2.0 / k, "test_accuracy": 0.5 + 0.1 * k, "seconds": {"train": 1.5, "evaluate": 0.5}}
        for k in range(1, 5)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder
