"""A command under a memory limit (`ulimit -v`) runs in a child process, and the parent reports how it ended.

Libraries that get no memory may end the process, or ask for it for ever. Neither leaves Python a chance to report it.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEAR = 2**30  # bytes below the limit at which a library may wait for memory
ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
PATIENCE = 10.0  # seconds that it may ask in vain
SAID = (
    r"allocat|lock at fork|(out of|not enough|insufficient) memory|map segment|start new thread|temporarily unavailable"
)
LACKING = re.compile(SAID, re.IGNORECASE)  # what libraries say of it
NO_EXCEPTION = re.compile(r"without (setting an )?exception")  # of Python, where it had no memory for one


def is_memory(error: BaseException | None) -> bool:
    """Whether an error, or one behind it, says that memory is lacking."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        if not isinstance(error, ValueError | OSError) and LACKING.search(str(error)):
            return True
        if isinstance(error, SystemError) and NO_EXCEPTION.search(str(error)) and _limit() is not None:
            return True
        error = error.__cause__ or error.__context__
    return False


def lacking_memory() -> str:
    """What to say and to do if memory is lacking."""
    limit = _limit()
    allowed = "" if limit is None else f": `ulimit -v` allows {limit // 1024} KiB"
    raise_it = "free some" if limit is None else "raise it with `ulimit -v unlimited`, set OMP_NUM_THREADS=1"
    return f"not enough memory{allowed}; {raise_it}, use a smaller file, or --max-memory. No existing file is lost"


def watched(command: Callable[[], int]) -> int:
    """Runs a command; where memory is limited, in a child that may end as it likes."""
    if _limit() is None or sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return command()
    sys.unraisablehook = _unless_memory
    reading, writing = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _obey(command, parent, writing)
    os.close(writing)
    taken = [number for number in ENDING if _passes_on(number, child)]
    code = _wait(child)
    for number in taken:
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    spoke = os.read(reading, 1)
    os.close(reading)
    if -code in ENDING:
        return 128 - code
    if not spoke:
        os.write(2, f"labelloop: {lacking_memory()}\n".encode())
        return 1
    return code


def _unless_memory(found: Any) -> None:
    """What Python prints of an error that nobody can catch, such as one in a fork; a lack of memory is said once."""
    if not is_memory(found.exc_value):
        sys.__unraisablehook__(found)


def _obey(command: Callable[[], int], parent: int, writing: int) -> None:
    """The child: runs the command, and leaves a word behind if that ended by itself."""
    with suppress(Exception):
        from labelloop.bench import end_with_parent

        end_with_parent(parent)
    code = 1
    try:
        code = command()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.write(writing, b".")
    except BaseException as error:
        if not is_memory(error):
            sys.excepthook(*sys.exc_info())
            os.write(writing, b".")
    finally:
        os._exit(code)


def _passes_on(number: signal.Signals, child: int) -> bool:
    """Lets the child have a signal that only this process gets; a terminal sends Ctrl-C to both."""
    if signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler):
        return False
    to_both = number == signal.SIGINT and os.isatty(0)

    def pass_on(number: int, frame: Any) -> None:
        if not to_both:
            os.kill(child, number)

    signal.signal(number, pass_on)
    return True


def _wait(child: int) -> int:
    """Waits for the child, and ends it if it waits for memory in vain; returns its exit code."""
    before, since = _steps(child), time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
        now, waited = _steps(child), time.monotonic() - since
        if now is None or before is None or now.done != before.done:
            before, since = now, time.monotonic()
            continue
        asked, worked = now.system - before.system, now.user - before.user
        in_vain = waited > PATIENCE and asked > max(worked / 2, waited / 50)  # it asks again and again
        asleep = waited > 3 * PATIENCE and now.asleep and not asked and not worked  # for a thread that never began
        if in_vain or asleep:
            os.kill(child, signal.SIGKILL)


@dataclass(frozen=True)
class Steps:
    """What a process has done: its addresses, memory and bytes read and written; seconds it worked; whether it sleeps
    until a thread of its own wakes it.
    """

    done: tuple[str, ...]
    user: float
    system: float
    asleep: bool


def _steps(child: int) -> Steps | None:
    """What a process has done so far; None where it is not near its limit, or where nobody knows."""
    limit, place = _limit(), Path("/proc") / str(child)
    with suppress(OSError, ValueError, IndexError):
        addresses, resident = (place / "statm").read_text().split()[:2]
        if limit is None or int(addresses) * os.sysconf("SC_PAGE_SIZE") < limit - NEAR:
            return None
        ticks = (place / "stat").read_text().rpartition(")")[2].split()[11:13]
        user, system = (int(tick) / os.sysconf("SC_CLK_TCK") for tick in ticks)
        alone = not (place / "task" / str(child) / "children").read_text()
        asleep = alone and (place / "wchan").read_text().startswith("futex")
        return Steps((addresses, resident, (place / "io").read_text()), user, system, asleep)
    return None


def _limit() -> int | None:
    """The bytes of addresses that the shell allows; None if it sets no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit
