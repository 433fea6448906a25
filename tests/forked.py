"""A process of its own without the seconds that importing torch takes: a fork of the test process.

Use it where a test needs a real process: an exit code, a signal, a working directory. The tests run with one thread
(conftest.py), which is what makes a fork safe.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 300  # seconds; most take less than one, more on a busy machine


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, or minus the signal that killed it, and what it printed."""

    code: int
    out: str
    err: str


def forked(do: Callable[[], int | None], folder: Path | None = None) -> Ended:
    """Calls a function in a fork of this process; what it returns is the exit code, None is 0.

    Args:
        do: What to do. Nothing of it is seen in this process but files, prints and the exit code.
        folder: The working directory.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Arrow's allocator thread, which is made for this
            child = os.fork()
        if child == 0:
            _child(do, folder, out.fileno(), err.fileno())
        code = _wait(child)
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read().decode(), err.read().decode())


def _child(do: Callable[[], int | None], folder: Path | None, out: int, err: int) -> None:
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)  # not what pytest captures
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if folder is not None:
            os.chdir(folder)
        code = int(do() or 0)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int) -> int:
    until = time.monotonic() + PATIENCE
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"a forked process took more than {PATIENCE} s")
        time.sleep(0.005)
