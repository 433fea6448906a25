"""Images for tests: real ones of CIFAR-10 where it is at hand, made ones elsewhere."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

CLASSES = ("cat", "ship")


def pictures(each: int) -> np.ndarray:
    """Pixels [2 * each, 32, 32, 3]: even rows are cats, odd rows are ships; dark and bright where they are made."""
    place = os.environ.get("LABELLOOP_DATA")
    files = sorted((Path(place) / "cifar10").glob("test-*.parquet")) if place else []
    if files:
        rows = next(pq.ParquetFile(files[0]).iter_batches(20 * each)).to_pylist()
        images = [[row["img"]["bytes"] for row in rows if row["label"] == k][:each] for k in (3, 8)]  # cat, ship
        return np.stack([np.asarray(Image.open(io.BytesIO(b))) for pair in zip(*images, strict=True) for b in pair])
    rng = np.random.default_rng(0)
    bright = 100 * (np.arange(2 * each) % 2)[:, None, None, None]
    return (rng.integers(0, 128, (2 * each, 32, 32, 3)) + bright).astype(np.uint8)
