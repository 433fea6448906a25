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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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
    return forked_together([do], folder)[0]


def forked_together(dos: Sequence[Callable[[], int | None]], folder: Path | None = None) -> list[Ended]:
    """The same for several functions at once, each in a process of its own."""
    return [child.wait() for child in [start(do, folder) for do in dos]]


def start(do: Callable[[], int | None], folder: Path | None = None) -> Started:
    """Starts a fork and does not wait for it."""
    files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 closed by `wait`
    return Started(_fork(do, folder, *files), files)


@dataclass
class Started:
    """A fork that may still run."""

    pid: int
    files: tuple[IO[bytes], IO[bytes]]
    code: int | None = None

    def lives(self) -> bool:
        if self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if ended else None
        return self.code is None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Waits for its end."""
        until = time.monotonic() + PATIENCE
        while self.lives():
            if time.monotonic() > until:
                self.kill()
                os.waitpid(self.pid, 0)
                raise AssertionError(f"a forked process took more than {PATIENCE} s")
            time.sleep(0.005)
        texts = []
        for file in self.files:
            file.seek(0)
            texts.append(file.read().decode())
            file.close()
        assert self.code is not None
        return Ended(self.code, *texts)


def _fork(do: Callable[[], int | None], folder: Path | None, out: IO[bytes], err: IO[bytes]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Arrow's allocator thread, which is made for this
        child = os.fork()
    if child == 0:
        _child(do, folder, out.fileno(), err.fileno())
    return child


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
