"""A bench: runs the missing experiments of a grid in parallel processes, and survives being killed at any moment.

FOLDER/KEY.json is the record of a finished run; FOLDER/.work/KEY holds its files until then, and a lock while its
process lives, so that two benches on one folder share the work. A killed run continues from its checkpoint, to the same
result.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from labelloop.bench import PARENT
from labelloop.bench.experiment import Experiment, check_experiments
from labelloop.bench.tables import best, last, render, table
from labelloop.errors import DataError, UsageError
from labelloop.runs.files import read_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

POLL_SECONDS = 0.05
FAILED, BUSY = 1, 75  # exit codes of an experiment's process
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a grid: the record of every finished run, and the failed runs with their reasons."""

    records: list[dict[str, Any]]
    failures: dict[str, str]


def run_bench(
    experiments: Sequence[Experiment], folder: Path, jobs: int = 1, progress: bool = True, workers: int = 0
) -> Outcome:
    """Runs every experiment that has no result yet.

    Args:
        experiments: What to run.
        folder: Holds the record of every run, named by its key.
        jobs: Parallel processes, with one thread each.
        workers: Processes of each run that decode image files; they do not change the result.
        progress: Whether to show progress: a bar in a terminal, else a line on stderr per run.

    Raises:
        UsageError: Settings that do not fit. Nothing has run then.
        DataError: Data that cannot be used. Nothing has run then.
    """
    if fcntl is None:
        raise UsageError(
            "a bench needs Linux or macOS, for file locks and fork; on Windows run it in WSL. "
            "`labelloop fit --method NAME` runs one method at a time on any system"
        )
    if jobs < 1:
        raise UsageError(f"--jobs must be at least 1, not {jobs}")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; give a folder for the runs")
    wanted = {experiment.key: experiment for experiment in experiments}
    bench = _Bench(folder, wanted, progress, workers)
    if bench.waiting:
        check_experiments(bench.waiting)
        folder.mkdir(parents=True, exist_ok=True)
        bench.run(jobs)
    finished = [experiment for experiment in experiments if bench.result(experiment).exists()]
    records = [
        read_json(bench.result(experiment)) | {"experiment": asdict(experiment), "title": experiment.title}
        for experiment in finished
    ]
    failures = {e.words: reason for e, reason in bench.failures if not bench.result(e).exists()}
    return Outcome(records, failures)


def bench_report(outcome: Outcome) -> str:
    """The tables of a bench, and the failed runs with their reasons."""
    records = outcome.records
    parts = []
    if records:
        parts = [
            render(*table(records, last), "Test accuracy after the last epoch, mean ± deviation (seeds), in %"),
            render(*table(records, best), "The same at the best epoch: chosen on test data, so for comparison only"),
        ]
        correcting = [record for record in records if any(row.get("changed_labels") for row in record["history"])]
        if correcting:
            caption = "Accuracy of the corrected labels after the last epoch"
            parts.append(render(*table(correcting, partial(last, key="corrected_label_accuracy")), caption))
    parts += [f"failed: {words}\n  {reason}" for words, reason in outcome.failures.items()]
    return "\n\n".join(parts)


class _Bench:
    """The state of one bench: what is waiting, running and failed."""

    def __init__(self, folder: Path, wanted: dict[str, Experiment], show: bool, workers: int) -> None:
        self.folder = folder
        self.workers = workers
        self.failures: list[tuple[Experiment, str]] = []
        self.waiting = [experiment for experiment in wanted.values() if not self.result(experiment).exists()]
        self._old_failures = {experiment.key: _stamp(self._failure(experiment)) for experiment in self.waiting}
        self._progress = _Progress(len(wanted), len(wanted) - len(self.waiting), show)

    def result(self, experiment: Experiment) -> Path:
        return self.folder / f"{experiment.key}.json"

    def place(self, experiment: Experiment) -> Path:
        return self.folder / ".work" / experiment.key

    def _failure(self, experiment: Experiment) -> Path:
        return self.place(experiment) / "failure.txt"

    def run(self, jobs: int) -> None:
        """Runs what is waiting, and waits for what other benches are running."""
        worker: _Worker | None = None
        try:
            while self.waiting or (worker and worker.running):
                for experiment in self._ready():
                    worker = worker if worker and worker.lives() else _Worker()
                    if len(worker.running) == jobs:
                        break
                    worker.start(experiment, self.place(experiment), self.result(experiment), self.workers)
                    self.waiting.remove(experiment)
                if worker and worker.running:
                    for experiment, code in worker.ended():
                        self._take_back(experiment, code)
                elif self.waiting:
                    time.sleep(POLL_SECONDS)  # everything left is being run by another bench
        finally:
            if worker:
                worker.end()
            self._progress.close()

    def _ready(self) -> Iterator[Experiment]:
        """What is waiting and not locked. Records that another bench has finished meanwhile are picked up."""
        for experiment in list(self.waiting):
            if self.result(experiment).exists():
                self._done(experiment)
            elif not _is_free(self.place(experiment) / "lock"):
                continue
            elif _stamp(self._failure(experiment)) not in (None, self._old_failures[experiment.key]):
                self._failed(experiment, FAILED)
            else:
                yield experiment

    def _take_back(self, experiment: Experiment, code: int) -> None:
        self.waiting.insert(0, experiment)
        if self.result(experiment).exists():
            self._done(experiment)
        elif code != BUSY:
            self._failed(experiment, code)

    def _done(self, experiment: Experiment) -> None:
        self.waiting.remove(experiment)
        accuracy = last(read_json(self.result(experiment)))
        self._progress.step(f"{experiment.words}: " + ("done" if accuracy is None else f"{100 * accuracy:.1f}%"))

    def _failed(self, experiment: Experiment, code: int) -> None:
        self.waiting.remove(experiment)
        failure, log = self._failure(experiment), self.place(experiment) / "log.txt"
        if code == FAILED and failure.exists():
            reason = failure.read_text(encoding="utf-8").splitlines()[0]
        else:
            ending = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
            reason = f"the process was {ending}; its output is in {log}"
        self.failures.append((experiment, reason))
        self._progress.step(f"{experiment.words}: failed: {reason}")


class _Worker:
    """A process that runs experiments, each in its own process."""

    def __init__(self) -> None:
        # Ctrl-C reaches every process of a terminal. Only the bench should handle it, and end the others in order.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "labelloop.bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=os.environ | ONE_THREAD | {"OMP_WAIT_POLICY": "passive", PARENT: str(os.getpid())},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.running: dict[str, Experiment] = {}

    def lives(self) -> bool:
        return self._process.poll() is None

    def start(self, experiment: Experiment, place: Path, result: Path, workers: int) -> None:
        request = {"key": experiment.key, "place": str(place), "result": str(result), "workers": workers}
        request["experiment"] = asdict(experiment)
        self.running[experiment.key] = experiment
        with suppress(BrokenPipeError):  # if the worker was killed, its answers end too
            self._requests.write(json.dumps(request, default=str).encode() + b"\n")

    def ended(self) -> list[tuple[Experiment, int]]:
        """Experiments that have ended, with exit codes; all of them, with the worker's code, if it has died."""
        if not select.select([self._answers], [], [], POLL_SECONDS)[0]:
            return []
        line = self._answers.readline().split()
        if line:
            return [(self.running.pop(line[0].decode()), int(line[1]))]
        self.end()
        left, self.running = list(self.running.values()), {}
        return [(experiment, self._process.returncode) for experiment in left]

    def end(self) -> None:
        """Ends the worker and its experiments by closing its pipe, which it reads once it has started."""
        self._requests.close()
        self._answers.close()
        self._process.terminate()  # works while it starts; later it ignores this
        self._process.wait()


class _Progress:
    """The progress of a bench: a bar in a terminal, else a line for every run that ends."""

    def __init__(self, total: int, done: int, show: bool) -> None:
        self._total, self._before, self._done = total, done, done
        self._started = time.monotonic()
        self._lines = show and not sys.stderr.isatty()
        self._bar = tqdm(total=total, initial=done, unit="run", disable=not show or self._lines, leave=False)

    def step(self, text: str) -> None:
        self._done += 1
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update()
        if self._lines:
            seconds = (time.monotonic() - self._started) / (self._done - self._before) * (self._total - self._done)
            left = f", about {tqdm.format_interval(seconds)} left" if self._done < self._total else ""
            print(f"{self._done} of {self._total} runs{left}: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self._bar.close()


def _is_free(lock: Path) -> bool:
    """Whether no process holds the lock."""
    if not lock.exists():
        return True
    with lock.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _stamp(path: Path) -> int | None:
    """The modification time of a file, or None if there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
