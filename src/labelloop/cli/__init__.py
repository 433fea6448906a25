"""The command line. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 ended by `kill`.

A command is one file here, with its flags and its call, and one line in COMMANDS. Nothing heavy is imported before a
command runs, so that --help is fast. Errors, warnings and signals are one line each, with flags for argument names.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Protocol, TextIO

from labelloop import __version__
from labelloop.cli.memory import is_memory, lacking_memory, watched
from labelloop.errors import DataError, ElsewhereError, UsageError, with_flags

COMMANDS = {
    "fit": "labelloop.cli.fit",
    "predict": "labelloop.cli.predict",
    "correct": "labelloop.cli.correct",
    "embed": "labelloop.cli.embed",
    "plan": "labelloop.cli.plan",
    "review": "labelloop.cli.review",
    "refit": "labelloop.cli.refit",
    "report": "labelloop.cli.report",
    "export": "labelloop.cli.export",
    "undo": "labelloop.cli.undo",
    "verify": "labelloop.cli.verify",
    "noise": "labelloop.cli.noise",
    "bench": "labelloop.cli.bench",
    "paper": "labelloop.cli.paper",
    "demo": "labelloop.cli.demo",
}
INTERRUPTED = 130
COLLECT_AFTER = 50_000  # new objects; by default after 700, and a tenth of a small fit goes into looking at torch's own
CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
ONE_LINE = CONTROL | {ord(mark): " " for mark in "\n\t"}  # of a message, which may quote a library or a stranger
ENDED = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Command(Protocol):
    """What the module of a command defines."""

    HELP: str  # its line in the list of commands
    DESCRIPTION: str  # shown above its flags

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        """Adds its flags. `parser.set_defaults(kept=...)` may set a function of the options whose text ends the message
        of a command that was interrupted or found the disk full: what is kept, and how to continue.
        """

    def run(self, options: argparse.Namespace) -> int:
        """Runs the command and returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    try:
        return _main(sys.argv[1:] if arguments is None else arguments)
    except MemoryError:  # before a command began, or while it was watched
        print(f"labelloop: {lacking_memory()}", file=sys.stderr)
        return 1


def _main(given: Sequence[str]) -> int:
    named = given[:1] if given and given[0] in COMMANDS else COMMANDS  # a command needs no flags of others
    options = make_parser(named).parse_args(given)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads slow each other down; torch reads it once
    gc.set_threshold(COLLECT_AFTER)
    warnings.showwarning = show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file name may not be valid text
    return watched(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    with as_interrupts(), contextlib.redirect_stdout(Plain(sys.stdout)):
        try:
            code = options.run(options)
            sys.stdout.flush()
            return code
        except KeyboardInterrupt as interrupt:
            with contextlib.suppress(OSError):  # of a terminal that was closed
                print(f"\nlabelloop: interrupted{_kept(options)}", file=sys.stderr)
            return getattr(interrupt, "code", INTERRUPTED)
        except Exception as error:
            return _failed(error, options)


def _failed(error: Exception, options: argparse.Namespace) -> int:
    """Says in one line what is wrong, and returns the exit code; what nobody expected is raised again."""
    if isinstance(error, ElsewhereError):  # another process of the same run has printed the reason
        return 1
    if isinstance(error, BrokenPipeError):  # the reader of the output, such as `head`, closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if is_memory(error):
        said = lacking_memory()
    elif isinstance(error, UsageError | DataError):
        said = in_one_line(error)
    elif isinstance(error, OSError):
        said = of_the_system(error) + (options.kept(options) if is_full(error) else "")
    else:
        raise error
    print(f"labelloop: {said}", file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


def make_parser(names: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of these commands."""
    parser = argparse.ArgumentParser(
        prog="labelloop",
        description="Correct noisy labels with a few clean rows, and train on the result.",
    )
    parser.add_argument("--version", action="version", version=f"labelloop {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in names:
        command: Command = import_module(COMMANDS[name])
        flags = commands.add_parser(
            name,
            help=command.HELP,
            description=command.DESCRIPTION,
            allow_abbrev=False,  # an abbreviated flag is probably a typo
        )
        flags.set_defaults(run=command.run, kept=lambda options: "")
        command.add_flags(flags)
    return parser


def _kept(options: argparse.Namespace) -> str:
    """What is kept of an interrupted command; nothing if that cannot be told, as in the middle of an import."""
    try:
        return str(options.kept(options))
    except Exception:  # a library that was imported halfway can fail in any way
        return ""


def in_one_line(message: object) -> str:
    """A message for the terminal, with flags in place of arguments."""
    return with_flags(message).strip().translate(ONE_LINE)


class Plain:
    """A stream that shows control characters instead of sending them: a class or a file of a stranger may hold some
    that write into the terminal's title, or over what stands there.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(text.translate(CONTROL))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


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
        print(f"labelloop: warning: {in_one_line(message)}", file=sys.stderr)


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
