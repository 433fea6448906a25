"""Ctrl-C, `kill` and a closed terminal all end a command in the same way: a message, a record, and no traceback."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

INTERRUPTED = 130
ENDED = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(KeyboardInterrupt):
    """The process was asked to end; `code` is its exit code."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Makes the first of these signals an interrupt, which leaves everything in order; the second ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    process = os.getpid()

    def handle(number: int, frame: Any) -> None:
        if os.getpid() != process:  # a child, which has nothing to leave in order
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        seen.append(number)
        if len(seen) > 1:
            with suppress(OSError):
                os.write(2, b"\nlabelloop: interrupted\n")
            os._exit(INTERRUPTED if number == signal.SIGINT else 128 + number)
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)

    handle.gives_way = True  # type: ignore[attr-defined]  # to what a launcher of several processes needs
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDED)}
    taken = [number for number in ENDED if before[number] == signal.SIG_DFL]  # `nohup` ignores one of them
    taken += [signal.SIGINT] if before[signal.SIGINT] is signal.default_int_handler else []
    for number in taken:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is handle:
                signal.signal(number, before[number])
