"""Synthetic embeddings with noisy labels, of any size: Gaussian classes, 30% of the labels drawn anew, some clean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NOISE = 0.3
SPREAD = 0.25  # of the class means, in standard deviations of a feature
PART = 62_500  # rows


def rows(start: int, count: int, width: int, classes: int, clean: int, total: int) -> dict[str, np.ndarray]:
    """Some of the rows: the same whichever others are made beside them."""
    rng = np.random.default_rng([0, start])
    means = np.random.default_rng(0).standard_normal((classes, width), dtype=np.float32)
    true = rng.integers(0, classes, count)
    x = rng.standard_normal((count, width), dtype=np.float32)
    x += SPREAD * means[true]
    given = np.where(rng.random(count) < NOISE, rng.integers(0, classes, count), true)
    verified = np.where(rng.random(count) < clean / total, true, -1)
    return {"embedding": x, "label": given, "clean_label": verified, "true": true}


def write_parts(folder: Path, total: int, width: int, classes: int, clean: int) -> Path:
    """A folder of Parquet parts, unless it is there."""
    if folder.is_dir():
        return folder
    partial = folder.with_name(f"{folder.name}.partial")
    partial.mkdir(parents=True)
    for start in range(0, total, PART):
        made = rows(start, min(PART, total - start), width, classes, clean, total)
        embedding = pa.FixedSizeListArray.from_arrays(made["embedding"].ravel(), width)
        table = pa.table({
            "embedding": embedding,
            "label": pa.array([f"c{k}" for k in made["label"]]),
            "clean_label": pa.array([f"c{k}" if k >= 0 else None for k in made["clean_label"]]),
        })  # fmt: skip
        pq.write_table(table, partial / f"part-{start // PART:05d}.parquet", compression="none")
    partial.rename(folder)
    return folder


def arrays(total: int, width: int, classes: int, clean: int) -> dict[str, np.ndarray]:
    """All rows at once."""
    parts = [rows(s, min(PART, total - s), width, classes, clean, total) for s in range(0, total, PART)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
