"""Streaming images from files beside bare decoding: the same JPEGs and as many processes, in turns.

Bare decoding opens, decodes and resizes every image to pixels and throws them away. Streaming is what `fit` and
`predict` read a set from that does not fit into memory: `ImageFiles` through `batches`, whose batches arrive in the
process that trains. Their pixels are the same. Views as training draws them (crop, mirror, colours) are timed once, and
not bounded: they are work of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported

import numpy as np
from PIL import Image

from labelloop.data.image_files import ImageFiles, Resized
from labelloop.data.pillow import TrainTransform
from labelloop.runs.run_json import versions
from labelloop.seeds import stream
from labelloop.training.batches import batches
from labelloop.types import MISSING, Rows

BOUND = 0.9  # images a second: streaming by bare decoding
SIDE = 64
BATCH = 128


def write_images(folder: Path, count: int) -> list[Path]:
    """JPEGs of soft colours with a little grain, about as large as photographs of this size are."""
    rng = stream(0, "images")
    paths = [folder / f"{i // 1000}" / f"{i}.jpg" for i in range(count)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((SIDE, SIDE))
        grain = rng.integers(-12, 13, (SIDE, SIDE, 3))
        Image.fromarray(np.clip(np.asarray(coarse) + grain, 0, 255).astype(np.uint8)).save(path, quality=90)
    return paths


def decode(path: str, side: int = SIDE) -> np.ndarray:
    """An image as pixels [side, side, 3], and nothing else."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR))


def decode_all(paths: list[str]) -> None:
    for path in paths:
        decode(path)


def bare(paths: list[str], workers: int) -> None:
    """Every process has its share from the start, so that nothing is sent to it or back."""
    fork = get_context("fork")
    processes = [fork.Process(target=decode_all, args=(paths[k::workers],)) for k in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0


def streamed(files: ImageFiles, workers: int) -> None:
    none = np.full(len(files), MISSING)
    rows = Rows(files, np.arange(len(files)), none, none)
    order = stream(0, "batches").permutation(len(files))
    seen = sum(len(x) for _, x in batches(rows, order, BATCH, workers=workers))
    assert seen == len(files)


def seconds(run: Callable[[], None]) -> dict[str, float]:
    """By the clock, and of the processors, which other work on the machine does not stretch as much."""
    before, start = _processor(), time.perf_counter()
    run()
    return {"clock": time.perf_counter() - start, "processor": _processor() - before}


def _processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def measure(paths: list[str], workers: int, repeats: int) -> dict[str, list[dict[str, float]]]:
    files = ImageFiles(paths, Resized(SIDE, SIDE))
    for path, pixels in zip(paths[:10], (files[i] for i in range(10)), strict=False):
        assert np.array_equal(decode(path).transpose(2, 0, 1), pixels)  # both do the same work
    ways = {"bare": partial(bare, paths, workers), "streamed": partial(streamed, files, workers)}
    bare(paths, workers)  # the files are read once before anything is timed
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, run in ways.items():
            runs[name].append(seconds(run))
    views = ImageFiles(paths, TrainTransform(0, SIDE))
    return {**runs, "views": [seconds(partial(streamed, views, workers))]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="images (default 20000)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--store", type=Path, help="write the measurement to this JSON file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = write_images(Path(folder), options.count)
        size = sum(path.stat().st_size for path in paths) / len(paths)
        runs = measure([str(path) for path in paths], options.workers, options.repeats)
    print(f"{options.count} JPEGs of {SIDE} x {SIDE} ({size:.0f} bytes), {options.workers} workers, in turns\n")
    print(f"{'':8}  images a second  ms of processor an image")
    for name, found in runs.items():
        rate = options.count / statistics.median(run["clock"] for run in found)
        cost = 1000 * statistics.median(run["processor"] for run in found) / options.count
        print(f"{name:8}  {rate:15.0f}  {cost:24.3f}")
    ratios = [b["clock"] / s["clock"] for b, s in zip(runs["bare"], runs["streamed"], strict=True)]
    ratio = statistics.median(ratios)
    kept = ratio >= BOUND
    print(f"\nstreamed / bare: {ratio:.3f} (each turn: {', '.join(f'{r:.3f}' for r in ratios)})")
    print(f"bound {BOUND}: {'kept' if kept else 'BROKEN'}")
    if options.store:
        settings = {k: v for k, v in vars(options).items() if k != "store"}
        record = {"settings": settings, "bytes": size, "runs": runs, "ratios": ratios, "ratio": ratio}
        options.store.write_text(json.dumps({**record, "versions": versions()}, indent=1) + "\n", encoding="utf-8")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
