"""Seconds and peak memory of every method on the same work: real CIFAR-10 images (in LABELLOOP_DATA).

Each run is a process of its own with one thread, so that its peak memory is its own, and the methods take turns. The
seconds are CPU time of training, without the test: other work on the machine disturbs wall time. A method that trains
twice pays for both.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

OUTPUT = Path(__file__).resolve().parents[1] / "evidence" / "efficiency.json"
EPOCHS = 8
# As in the paper's schedule: 12 corrections in 100 epochs are about 1 in 8.
ROWS = {
    "cross-entropy": ("cross-entropy", {}),
    "closed loop": ("closed-loop", {"warm_up": 7, "correct_every": 1}),
    "FasTEN": ("fasten", {}),
    "MW-Net": ("mw-net", {}),
    "L2B": ("l2b", {"warm_up": 0}),
    "EMLC": ("emlc", {}),
    "GLC": ("glc", {}),
    "DMLP without pretraining": ("dmlp-nossl", {"warm_up": 4}),
    "Co-teaching": ("co-teaching", {"noise_rate": 0.4}),
    "DivideMix": ("dividemix", {"warm_up": 1}),
}


def one(name: str) -> None:
    """Runs a row and prints its seconds and the memory that training added, in MiB."""
    from labelloop.bench.experiment import Experiment
    from labelloop.large_arrays import keep_freed_memory
    from labelloop.methods import METHODS
    from labelloop.training.runtime import Runtime
    from labelloop.training.setup import resolve
    from labelloop.workflows.compose import load_data, noisy_problem

    class Clocked(Runtime):
        """Adds up the CPU time of everything but evaluation."""

        cpu = 0.0

        @contextmanager
        def phase(self, name: str) -> Iterator[None]:
            start = time.process_time()
            yield
            self.cpu += time.process_time() - start if name != "evaluate" else 0.0

    keep_freed_memory()
    method, settings = ROWS[name]
    experiment = Experiment(
        dataset="cifar10",
        dataset_options={"limit": 2560, "test_limit": 100},
        clean=512,
        noise="symmetric",
        method=method,
        recipe="paper",
        config={"network": "small-cnn", "epochs": EPOCHS, "learning_rate": 0.05, **settings},
    )
    problem, _, _ = noisy_problem(experiment, load_data(experiment))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runtime = Clocked(0, device="cpu", progress=False)
    METHODS[method].fit(problem, resolve(experiment.method_config, problem), runtime)
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": runtime.cpu, "memory_mib": added / 1024}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--one", choices=ROWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one)
        return 0
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ROWS}
    for repeat in range(options.repeats):
        for name in ROWS:
            done = subprocess.run([sys.executable, __file__, "--one", name], check=True, capture_output=True, text=True)
            found[name].append(json.loads(done.stdout))
            print(f"repeat {repeat + 1}, {name}: {done.stdout.strip()}", file=sys.stderr, flush=True)
    from labelloop.runs.run_json import versions

    record = {
        "caption": f"CPU seconds of training and memory it adds, median of {options.repeats}: small-cnn, 2,048 "
        f"noisy + 512 clean CIFAR-10 images, {EPOCHS} epochs, one correction, one thread",
        "methods": {
            name: {key: statistics.median(run[key] for run in runs) for key in ("seconds", "memory_mib")}
            for name, runs in found.items()
        },
        "runs": found,
        "versions": versions(),
    }
    options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["methods"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
