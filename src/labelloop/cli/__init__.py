"""The command line. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 ended by `kill`.

A command is one file here, with its flags and its call, and one line in COMMANDS. Nothing heavy is imported before a
command runs, so that --help is fast.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from labelloop import __version__
from labelloop.cli.messages import INTERRUPTED, as_interrupts, is_full, of_the_system, show_warning, with_flags
from labelloop.errors import DataError, ElsewhereError, UsageError

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
    options = make_parser().parse_args(arguments)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads slow each other down; torch reads it once
    warnings.showwarning = show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file name may not be valid text
    with as_interrupts():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        code = options.run(options)
        sys.stdout.flush()
        return code
    except ElsewhereError:  # another process of the same run has printed the reason
        return 1
    except UsageError as error:
        print(f"labelloop: {with_flags(error)}", file=sys.stderr)
        return 2
    except DataError as error:
        print(f"labelloop: {with_flags(error)}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of the output, such as `head`, closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        kept = options.kept(options) if is_full(error) else ""
        print(f"labelloop: {of_the_system(error)}{kept}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        with contextlib.suppress(OSError):  # of a terminal that was closed
            print(f"\nlabelloop: interrupted{_kept(options)}", file=sys.stderr)
        return getattr(interrupt, "code", INTERRUPTED)
    except MemoryError:
        print("labelloop: not enough memory; free some, use a smaller file, or --max-memory", file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="labelloop",
        description="Train on noisy labels with a small clean set, and get the labels corrected.",
    )
    parser.add_argument("--version", action="version", version=f"labelloop {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command: Command = import_module(module)
        flags = commands.add_parser(
            name,
            help=command.HELP,
            description=command.DESCRIPTION,
            allow_abbrev=False,  # an abbreviated flag is probably a typo
        )
        flags.set_defaults(run=command.run, kept=_nothing_kept)
        command.add_flags(flags)
    return parser


def _kept(options: argparse.Namespace) -> str:
    """What is kept of an interrupted command; nothing if that cannot be told, as in the middle of an import."""
    try:
        return str(options.kept(options))
    except Exception:  # a library that was imported halfway can fail in any way
        return ""


def _nothing_kept(options: argparse.Namespace) -> str:
    return ""
