"""Flags that several commands share, and how they are parsed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any


def add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-report", action="store_true", help="write no report.html; `labelloop report` can write it later"
    )


def add_memory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-memory",
        metavar="SIZE",
        help="memory to use, such as 4G; larger arrays are kept in files (default: half of the machine's memory)",
    )


def add_trust(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--trust-code", action="store_true", help=f"let {what} name Python code of its own, which is imported and run"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the folder of a finished run")


def add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--label-column", metavar="NAME", help="the given label (guessed: label, target, y)")
    parser.add_argument("--id-column", metavar="NAME", help="a name for every row (guessed: id)")
    parser.add_argument(
        "--feature-columns", metavar="A,B", type=names, help="default: every column that has no other use"
    )
    parser.add_argument(
        "--category-columns", metavar="A,B", type=names, default=(), help="codes that look like numbers, such as zip"
    )
    parser.add_argument("--leave-out", metavar="A,B", type=names, default=(), help="columns that are not used")
    parser.add_argument(
        "--trust-columns", metavar="A,B", type=names, default=(), help="columns to use as they are, however suspicious"
    )
    parser.add_argument(
        "--embedding-column", metavar="NAME", help="a column of lists of numbers, or an array of an .npz"
    )


def add_missing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--missing",
        type=markers,
        metavar="A,B",
        help="labels that mean a missing label, such as -1; or the word blank, if only blanks do",
    )
    parser.add_argument(
        "--na", type=names, default=(), metavar="A,B", help="further markers of a missing number, such as ?"
    )


def markers(text: str) -> tuple[str, ...]:
    """Splits A,B into markers of a missing label; the word blank gives none."""
    return () if text == "blank" else names(text)


def add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text",
        dest="text_columns",
        metavar="A[,B]",
        type=names,
        default=(),
        help="columns of texts, if they are not found by themselves; --encoder reads one of them",
    )
    parser.add_argument("--embed", action=Renamed, now="--encoder")


def add_encoder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--encoder",
        metavar="LIBRARY:NAME",
        help="turns texts or images into features: sentence-transformers:NAME, transformers:NAME, timm:NAME (a name or"
        " a folder), or module:factory",
    )


def read_options(options: argparse.Namespace) -> Any:
    """The flags about reading the data as `ReadOptions`: every flag that has the name of one of its fields."""
    from labelloop.workflows.encode import ReadOptions

    names = [field.name for field in fields(ReadOptions)]
    asked = {name: value for name, value in vars(options).items() if name in names}
    return ReadOptions(**asked, progress=False if getattr(options, "quiet", False) else None)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1), help="processes (default: all cores)")


def names(text: str) -> tuple[str, ...]:
    """Splits A,B into names."""
    return tuple(name.strip() for name in text.split(","))


def processes(text: str) -> int:
    """A number of processes, 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes; give 0 or more")
    return int(text)


class Renamed(argparse.Action):
    """A flag that was renamed: the error gives its new name."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, now: str, **_: Any) -> None:
        super().__init__(option_strings, dest, nargs="?", help=argparse.SUPPRESS)
        self.now = now

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error(f"{self.option_strings[0]} is now called {self.now}")


def share_of(text: str) -> float:
    """A share such as 2% or 0.02."""
    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1; write 2% or 0.02")
    return value
