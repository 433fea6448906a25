"""What sharing a run costs and brings: an epoch of small images in two processes against one, each with one thread.

Two processes slow each other down even if they share nothing: they share the machine's memory, and often a core. So
both are compared, too, with two that train half of the rows each and never talk.

    python benchmarks/processes.py [--rows 5120] [--repeats 5] [--output FILE]

Wall time halves at best, and the processor time of both together stays that of one at best. Repeats are interleaved,
and medians are taken; on a busy machine the wall time says nothing, and the script says so.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

EPOCHS = 3  # the first one warms up and is not counted


def work(rows: int) -> None:
    """One process: prints the wall and processor seconds of an epoch."""
    import numpy as np
    import torch

    from labelloop.methods.cross_entropy import Config
    from labelloop.splits import one_hot
    from labelloop.training.epoch import train_epoch
    from labelloop.training.ranks import join
    from labelloop.training.runtime import Runtime
    from labelloop.training.setup import new_classifier, new_optimizer, resolve
    from labelloop.types import MISSING, Problem, Rows

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8)
    train = Rows(images, np.arange(rows), rng.integers(10, size=rows), np.full(rows, MISSING))
    problem = Problem(train, Rows(images, train.index[:0], train.labels[:0], train.labels[:0]), tuple("0123456789"))
    runtime = Runtime(0, "cpu", progress=False, ranks=join())
    config = resolve(Config(), problem)
    model = runtime.prepare(new_classifier(config, problem, 0))
    optimizer, targets = new_optimizer(model, config), one_hot(train.labels, 10)
    wall, processor = [], []
    for epoch in range(1, EPOCHS + 1):
        runtime.from_first(lambda: None)  # together
        start, spent = time.perf_counter(), time.process_time()
        train_epoch(model, train, targets, targets, 0.0, optimizer, config, runtime, epoch)
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - spent)
    print(json.dumps({"wall": sum(wall[1:]), "processor": sum(processor[1:])}))


def measured(count: int, rows: int, *, apart: bool = False) -> dict[str, float]:
    """The same by `count` processes: the wall time of the slowest, the processor time of all and of the busiest.

    Args:
        count: How many.
        rows: Of all together.
        apart: Whether each trains its part of the rows alone.
    """
    command = [sys.executable, __file__, "--rows", str(rows // count if apart else rows), "--work"]
    size, started = 1 if apart else count, []
    meeting = _free_port()
    for rank in range(count):
        own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port() if apart else meeting)}
        own |= {"WORLD_SIZE": str(size), "RANK": str(0 if apart else rank), "OMP_NUM_THREADS": "1"}
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | own))
    said = [json.loads(process.communicate()[0]) for process in started]
    spent = [one["processor"] for one in said]
    return {"wall": max(one["wall"] for one in said), "processor": sum(spent), "busiest": max(spent)}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def compared(rows: int, repeats: int) -> dict[str, list[float]]:
    """Two processes over one, and over two that share nothing, repeat by repeat."""
    turns = [(measured(1, rows), measured(2, rows), measured(2, rows, apart=True)) for _ in range(repeats)]
    found = {name: [two[name] / one[name] for one, two, _ in turns] for name in ("wall", "processor", "busiest")}
    return found | {"over_apart": [two["processor"] / apart["processor"] for _, two, apart in turns]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5120)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.rows)
        return
    load = os.getloadavg()[0]
    found = compared(options.rows, options.repeats)
    for name, ratios in found.items():
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        words = {"busiest": "processor time of the busier one, two processes over one"}.get(
            name, f"{name} time, two processes over one"
        )
        if name == "over_apart":
            words = "processor time, two processes over two that share nothing"
        print(f"{words}: {statistics.median(ratios):.2f} ({spread}, {len(ratios)} repeats)")
    if load > 0.5:
        print(f"the machine was busy (load {load:.1f}): only the processor time means something")
    if options.output:
        record = {"rows": options.rows, "load": load, **found}
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
