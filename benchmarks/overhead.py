"""What the closed loop costs beside cross-entropy: the same images, network and epochs, side by side, by phase.

The paper corrects 12 times in 100 epochs and reports 1.064 times the time of training alone. Here: 25 epochs with 3
corrections. The two take turns, and the medians of the repeats are compared, because other work disturbs single runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported

import numpy as np
import torch

from labelloop.data.datasets import load_dataset
from labelloop.errors import DataError
from labelloop.methods import METHODS
from labelloop.noise import NOISES
from labelloop.runs.run_json import versions
from labelloop.seeds import stream
from labelloop.splits import clean_split
from labelloop.training.runtime import Runtime
from labelloop.training.setup import resolve
from labelloop.types import MISSING, Problem, Rows

PHASES = ("train", "extract", "corrector", "combination", "update")
BOUND = 1.08


def problem_of(rows: int, clean: int) -> tuple[str, Problem]:
    """Real CIFAR-10 images with symmetric noise, or random ones where CIFAR-10 is not at hand."""
    try:
        data = load_dataset("cifar10", limit=rows + clean)
        name, images, labels = "CIFAR-10", data.inputs, data.labels
    except DataError:
        rng = stream(0, "images")
        name, labels = "random images", rng.integers(0, 10, rows + clean)
        images = rng.integers(0, 256, (rows + clean, 32, 32, 3), dtype=np.uint8)
    given = NOISES["symmetric"](labels, 10, 0.4, stream(0, "noise")).labels
    noisy_index, clean_index = clean_split(labels, clean, stream(0, "clean-split"))
    none = np.full(len(labels), MISSING)
    train = Rows(images, noisy_index, given[noisy_index], none[noisy_index])
    verified = Rows(images, clean_index, none[clean_index], labels[clean_index])
    return name, Problem(train, verified, tuple(map(str, range(10))))


def seconds(problem: Problem, method: str, epochs: int) -> dict[str, float]:
    """The seconds of every phase of one run."""
    kind = METHODS[method].config
    loop = {"warm_up": epochs * 2 // 5, "correct_every": epochs // 5} if method == "closed-loop" else {}
    config = resolve(kind(network="small-cnn", epochs=epochs, **loop), problem)
    runtime = Runtime(progress=False)
    METHODS[method].fit(problem, config, runtime)
    return {phase: sum(row["seconds"].get(phase, 0.0) for row in runtime.history) for phase in PHASES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4500)
    parser.add_argument("--clean", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=25, help="a multiple of 5: 3 corrections")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--store", type=Path, help="write the measurement to this JSON file")
    options = parser.parse_args()
    name, problem = problem_of(options.rows, options.clean)
    runs: dict[str, list[dict[str, float]]] = {"cross-entropy": [], "closed-loop": []}
    for _ in range(options.repeats):
        for method, found in runs.items():
            found.append(seconds(problem, method, options.epochs))
    middle = {
        method: {phase: statistics.median(run[phase] for run in found) for phase in PHASES}
        for method, found in runs.items()
    }
    ratios = [
        sum(loop.values()) / sum(plain.values())
        for loop, plain in zip(runs["closed-loop"], runs["cross-entropy"], strict=True)
    ]
    ratio = statistics.median(ratios)
    print(f"{name}: {options.rows} + {options.clean} rows, small-cnn, {options.epochs} epochs, 3 corrections,")
    print(f"{torch.get_num_threads()} threads, median of {options.repeats} repeats, in seconds\n")
    print(f"{'phase':12}  cross-entropy  closed loop")
    for phase in PHASES:
        print(f"{phase:12}  {middle['cross-entropy'][phase]:13.2f}  {middle['closed-loop'][phase]:11.2f}")
    print(f"\nclosed loop / cross-entropy: {ratio:.3f} (each repeat: {', '.join(f'{r:.3f}' for r in ratios)})")
    print(f"bound {BOUND}: {'kept' if ratio <= BOUND else 'BROKEN'}")
    if options.store:
        record = {"settings": {k: v for k, v in vars(options).items() if k != "store"}, "data": name}
        record |= {"threads": torch.get_num_threads(), "runs": runs, "ratios": ratios, "versions": versions()}
        options.store.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
