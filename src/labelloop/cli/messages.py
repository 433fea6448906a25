"""Errors, warnings and signals as the command line shows them: one line each, with flags instead of argument names."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

COLUMNS = ("label_column", "clean_column", "id_column", "feature_columns", "embedding_column", "split_column")
FLAGS = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *COLUMNS,
        "extra_columns",
        "allow_overlap",
        "file_name_column",
        "image_size",
        "max_unreadable",
        "clean_file",
        "clean_folder",
        "max_memory",
        "trust_code",
    )
} | {
    "labels_path": "--labels",
    "text_column": "--text",
    "train_encoder": "--train-encoder",
}

INTERRUPTED = 130
ENDED = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def with_flags(message: object) -> str:
    """A message with arguments written as flags: --label-column, not label_column."""
    text = str(message)
    for name, flag in FLAGS.items():
        text = re.sub(rf"(?<![\w-]){name}(?!\w)", flag, text)
    return text


def is_full(error: OSError) -> bool:
    """Whether the disk has no room left, or the user's part of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def of_the_system(error: OSError) -> str:
    """An error of the operating system: the file, the reason and what to check."""
    if error.filename is None or error.strerror is None:
        return str(error)
    reason = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
    if is_full(error):
        return f"{error.filename}: {reason}; free some space, or choose another folder"
    return f"{error.filename}: {reason}; check the path, and that you may read and write there"


def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Replaces `warnings.showwarning`: prints our warnings, one per line, and drops those of libraries."""
    if issubclass(category, UserWarning):
        print(f"labelloop: warning: {with_flags(message)}", file=sys.stderr)


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
