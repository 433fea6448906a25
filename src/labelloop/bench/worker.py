"""Runs experiments, each in its own process: `python -m labelloop.bench.worker`, started by a bench.

A request is a line of JSON: the experiment, its key, its working folder, and the path of its record. The answer is a
line with key and exit code. Importing torch takes seconds, so this process does it once and forks for every
experiment. When the bench ends, in any way, its end of the pipe closes, and the experiments end too.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any

from labelloop.bench import PARENT, end_with_parent

if __name__ == "__main__":
    end_with_parent(int(os.environ[PARENT]) if PARENT in os.environ else None)  # before the imports, which take seconds

import torch

from labelloop.bench.experiment import Experiment, run_experiment
from labelloop.errors import DataError, UsageError
from labelloop.runs.files import write_atomically
from labelloop.runs.folder import holds_run, read_metrics, read_record
from labelloop.workflows.compose import keep_freed_memory, read_checkpoint

# Imported here once for all experiments; otherwise on first use by digits, the logistic corrector and optimisers.
for name in ("sklearn.datasets", "sklearn.linear_model", "torch._dynamo"):
    import_module(name)

DONE, FAILED, BUSY = 0, 1, 75
POLL_SECONDS = 0.02


def serve(requests: FileIO) -> None:
    """Answers requests until the bench is gone."""
    keep_freed_memory()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the pipe says when to stop, and then the experiments stop too
    # The only other thread is that of Arrow's allocator, which supports forking.
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    running: dict[int, str] = {}
    while True:
        if select.select([requests], [], [], POLL_SECONDS if running else None)[0]:
            line = requests.readline()
            if not line:
                for child in running:
                    os.kill(child, signal.SIGKILL)  # safe at any moment: every file is written atomically
                return
            request = json.loads(line) | {"worker": os.getpid()}
            child = os.fork()
            if child == 0:
                _child(request)
            running[child] = request["key"]
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                print(running.pop(child), os.waitstatus_to_exitcode(status), flush=True)


def _child(request: dict[str, Any]) -> None:
    """Runs the experiment with its output in log.txt, and ends the process."""
    code = FAILED
    try:
        end_with_parent(request["worker"])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        place = Path(request["place"])
        place.mkdir(parents=True, exist_ok=True)
        log = os.open(place / "log.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        code = run(request["experiment"], place, Path(request["result"]), request["workers"])
    except BaseException:  # no exception may escape: the caller is the loop that answers requests
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(experiment: dict[str, Any], place: Path, result: Path, workers: int = 0) -> int:
    """Runs an experiment unless another process is running it or has finished it.

    Args:
        experiment: The fields of an Experiment.
        place: Holds the lock, the run with its checkpoint, and failure.txt if it fails: the reason in the first line.
        result: The path of the record.
        workers: Processes that decode image files.
    """
    with (place / "lock").open("w") as lock:  # released when the process dies
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return BUSY
        if result.exists():
            return DONE
        torch.set_num_threads(1)  # small experiments run beside each other
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} run by process {os.getpid()}", flush=True)
        failure = place / "failure.txt"
        failure.unlink(missing_ok=True)
        try:
            wanted = Experiment(**experiment)
            if wanted.key != place.name:
                raise DataError("the noise file changed after the bench was started; start it again")
            _drop_damaged(place / "run")
            record = run_experiment(wanted, place / "run", progress=False, workers=workers)
        except (DataError, UsageError) as error:
            _write(failure, f"{error}\n")
            return FAILED
        except Exception as error:  # an error in one method must not stop the other runs
            first = f"{type(error).__name__}: {error}".splitlines()[0]
            _write(failure, f"{first}\n\n{traceback.format_exc()}")
            return FAILED
        _write(result, json.dumps(record, allow_nan=False) + "\n")
        shutil.rmtree(place / "run")  # its checkpoint is large, and the result has everything
    return DONE


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda place: place.write_text(text, encoding="utf-8"))


def _drop_damaged(folder: Path) -> None:
    """Deletes the rest of a run that cannot be continued, for example after a crash of the machine."""
    try:
        if holds_run(folder) and not read_record(folder).config:
            raise DataError(f"an older version began the run in {folder}")
        read_checkpoint(folder / "checkpoint")
        read_metrics(folder)
    except DataError as error:
        print(f"started again: {error}", flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    with suppress(BrokenPipeError), FileIO(sys.stdin.fileno(), closefd=False) as pipe:  # unbuffered, for select
        serve(pipe)
