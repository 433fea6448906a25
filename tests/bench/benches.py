"""A bench in a process and session of its own, whose runs can be held at a chosen moment.

The bench, its workers and its runs are forks of the test process, so none of them imports torch anew. In every other
way they are what `labelloop bench` starts: processes with pipes, signals and locks.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from forked import Started, start

from labelloop.bench import PARENT, pool, worker
from labelloop.bench.experiment import Experiment
from labelloop.cli import main

PATIENCE = 300  # seconds that any single step may take on a busy machine

Moment = tuple[object, str, int]  # the call of a function of a module or class at which a run is held, counted from 1


def wait_until(happened, what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < until, f"waited {PATIENCE} s for {what}"
        time.sleep(0.02)


class ForkedWorker:
    """Stands in for subprocess.Popen: the worker of a bench as a fork."""

    def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
        assert command == [sys.executable, "-m", "labelloop.bench.worker"]
        assert env[PARENT] == str(os.getpid())
        (read_requests, write_requests), (read_answers, write_answers) = os.pipe(), os.pipe()
        self._ended: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(read_requests, 0)
            os.dup2(write_answers, 1)
            for pipe in (read_requests, write_requests, read_answers, write_answers):
                os.close(pipe)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
            os.environ |= env
            with suppress(BrokenPipeError), FileIO(0, closefd=False) as requests:
                worker.serve(requests)
            os._exit(0)
        os.close(read_requests)
        os.close(write_answers)
        self.stdin, self.stdout = FileIO(write_requests, "w"), FileIO(read_answers)

    @property
    def returncode(self) -> int | None:
        return self._ended

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        return self._wait(0)

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 15)

    def _wait(self, how: int) -> int | None:
        if self._ended is None:
            ended, status = os.waitpid(self.pid, how)
            self._ended = os.waitstatus_to_exitcode(status) if ended else None
        return self._ended


FORKING = SimpleNamespace(Popen=ForkedWorker, PIPE=subprocess.PIPE)  # in place of `subprocess` in labelloop.bench.pool


def start_bench(grid: Path, folder: Path, held: dict[str, Moment] | None = None, **environ: str) -> Started:
    """`labelloop bench` with two jobs, the runs with these keys held for good at their moments."""

    def do() -> int:
        os.environ |= environ
        _in_forks(held or {})
        return main(["bench", str(grid), "--output-dir", str(folder), "--jobs", "2"])

    return start(do)


def start_run_bench(experiments: list[Experiment], folder: Path) -> Started:
    """The same for `run_bench`, of which `outcome_of` has the outcome."""

    def do() -> None:
        _in_forks({})
        print(json.dumps(asdict(pool.run_bench(experiments, folder, progress=False))))

    return start(do)


def outcome_of(bench: Started) -> pool.Outcome:
    ended = bench.wait()
    assert ended.code == 0, ended.err
    return pool.Outcome(**json.loads(ended.out))


def _in_forks(held: dict[str, Moment]) -> None:
    """Makes this process a bench whose workers are forks, in a session of its own, so that one can find them all."""
    os.setsid()
    real = worker.run

    def run(experiment: dict[str, Any], place: Path, *rest: Any) -> int:
        if place.name in held:
            hold_at(held[place.name], place)
        return real(experiment, place, *rest)

    worker.run = run
    pool.subprocess = FORKING


def start_holding(lock: Path) -> Started:
    """A process that holds a lock until it is killed."""
    mark = lock.with_name("is held")

    def do() -> None:
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            mark.write_text("")
            time.sleep(2 * PATIENCE)

    holder = start(do)
    wait_until(mark.exists, "the lock")
    return holder


def hold_at(moment: Moment, place: Path) -> None:
    """Holds this process when it comes to the moment: it says so in a file and waits to be killed."""
    part, name, at = moment
    real, calls = getattr(part, name), iter(range(1, 10**6))

    def holding(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == at:
            (place / "held").write_text(str(os.getpid()))
            time.sleep(2 * PATIENCE)
        return real(*args, **kwargs)

    setattr(part, name, holding)


def wait_until_held(folder: Path, keys: list[str], bench: Started) -> None:
    def happened() -> bool:
        assert bench.lives(), bench.wait()
        return all((folder / ".work" / key / "held").exists() for key in keys)

    wait_until(happened, "runs to come to the moment at which they are held")


def processes(session: int) -> list[int]:
    """The living processes of a session, without those that have ended but were not waited for."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, *numbers = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(numbers[2]) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found
