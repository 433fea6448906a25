"""A bench: runs what is missing of a grid in parallel processes, and survives being killed at any moment.

FOLDER/KEY.json is the record of a finished run; FOLDER/.work/KEY holds what it needs until then. A lock is held there
while its process lives, so two benches on one folder share the work between them. A killed run continues from its
checkpoint, to the same result.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from labelloop.errors import UsageError
from labelloop.experiments.experiment import Experiment
from labelloop.results.run_folder import read_json, write_atomically
from labelloop.results.tables import best, last, render, table

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Outcome:
    """What became of a grid: a record for every finished run, a reason for every failed one."""

    records: list[dict[str, Any]]
    failures: dict[str, str]


def run_bench(experiments: Sequence[Experiment], folder: Path, jobs: int = 1, progress: bool | None = None) -> Outcome:
    """Runs every experiment that has no result yet.

    Args:
        experiments: What to run.
        folder: Holds the record of every run, named by its key.
        jobs: Processes at a time, one thread each.
        progress: Whether to draw a progress bar; None draws one only in a terminal.
    """
    if jobs < 1:
        raise UsageError(f"--jobs must be at least 1, not {jobs}")
    folder.mkdir(parents=True, exist_ok=True)
    results = {experiment.key: folder / f"{experiment.key}.json" for experiment in experiments}
    waiting = [e for e in {e.key: e for e in experiments}.values() if not results[e.key].exists()]
    running: dict[str, subprocess.Popen[bytes]] = {}
    failures: dict[str, str] = {}
    hide = None if progress is None else not progress
    bar = tqdm(total=len(results), initial=len(results) - len(waiting), unit="run", disable=hide, leave=False)
    try:
        while waiting or running:
            for key, process in list(running.items()):
                if process.poll() is not None:
                    del running[key]
                    if not results[key].exists():
                        failures[key] = _reason(folder / ".work" / key, process.returncode)
                    bar.update()
            for experiment in list(waiting):
                if len(running) >= jobs:
                    break
                if results[experiment.key].exists():  # by another bench, meanwhile
                    waiting.remove(experiment)
                    bar.update()
                elif started := _start(experiment, folder):
                    waiting.remove(experiment)
                    running[experiment.key] = started
            time.sleep(POLL_SECONDS)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
        bar.close()
    finished = [e for e in experiments if results[e.key].exists()]
    records = [read_json(results[e.key]) | {"title": e.title} for e in finished]
    return Outcome(records, failures)


def bench_report(outcome: Outcome) -> str:
    """The tables of a bench, and the runs that failed with their reasons."""
    records = outcome.records
    parts = []
    if records:
        parts = [
            render(*table(records, last), "Test accuracy after the last epoch, mean ± deviation (seeds), in %"),
            render(*table(records, best), "The same at the best epoch: chosen on test data, so for comparison only"),
        ]
        labels = [record for record in records if record["rounds"]]
        if labels:
            caption = "Accuracy of the corrected labels after the last epoch"
            parts.append(render(*table(labels, partial(last, key="corrected_label_accuracy")), caption))
    parts += [f"failed: {key}\n  {reason.splitlines()[-1]}" for key, reason in outcome.failures.items()]
    return "\n\n".join(parts)


def _start(experiment: Experiment, folder: Path) -> subprocess.Popen[bytes] | None:
    """Starts a process for the experiment, unless another bench is at it."""
    place, result = folder / ".work" / experiment.key, folder / f"{experiment.key}.json"
    place.mkdir(parents=True, exist_ok=True)
    lock = os.open(place / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if result.exists():
            return None
        text = json.dumps(asdict(experiment), indent=1)
        write_atomically(place / "experiment.json", lambda path: path.write_text(text, encoding="utf-8"))
        (place / "failure.txt").unlink(missing_ok=True)
        # The child inherits the lock and holds it for as long as it lives, whatever becomes of this process.
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        with (place / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "labelloop.experiments.worker", str(place), str(result)],
                pass_fds=[lock],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | threads,
            )
    finally:
        os.close(lock)


def _reason(place: Path, code: int) -> str:
    failure = place / "failure.txt"
    if failure.exists():
        return failure.read_text(encoding="utf-8").strip()
    ending = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"the process was {ending}; its output is in {place / 'log.txt'}"
