"""Flags, one line each: how they are declared, those that several commands share, and how they are parsed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

Parser = argparse._ActionsContainer  # a parser, or a group of flags that exclude each other


def flag(
    parser: Parser,
    name: str,
    metavar: str | None,
    about: str | None,
    kind: Callable[[str], Any] = str,
    default: Any = None,
    **more: Any,
) -> None:
    """Adds a flag with a value; or an argument that every call has, if its name has no dashes."""
    parser.add_argument(name, metavar=metavar, help=about, type=path if kind is Path else kind, default=default, **more)


def switch(parser: Parser, name: str, about: str) -> None:
    """Adds a flag without a value."""
    parser.add_argument(name, action="store_true", help=about)


def path(text: str) -> Path:
    """A path; an empty text, as from a shell variable that is not set, would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def names(text: str) -> tuple[str, ...]:
    """Splits A,B into names."""
    return tuple(name.strip() for name in text.split(","))


def markers(text: str) -> tuple[str, ...]:
    """Splits A,B into markers of a missing label; the word blank gives none."""
    return () if text == "blank" else names(text)


def processes(text: str) -> int:
    """A number of processes, 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes; give 0 or more")
    return int(text)


def share_of(text: str) -> float:
    """A share such as 2% or 0.02."""
    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1; write 2% or 0.02")
    return value


SHARED: dict[str, str | tuple[Any, ...]] = {  # of a flag with a value: its name, what it says, its type and default
    "--no-report": "write no report.html; `labelloop report` can write it later",
    "--quiet": "no progress bar and no summary",
    "--label-column": ("NAME", "the given label (guessed: label, target, y)"),
    "--id-column": ("NAME", "the id of every row (guessed: id)"),
    "--clean-column": ("NAME", "the clean label (guessed: clean_label, y_clean)"),
    "--split-column": ("NAME", '"train" or "test" for every row (guessed: split)'),
    "--file-name-column": ("NAME", "names of image files (guessed: file_name, image)"),
    "--feature-columns": ("A,B", "default: every column that has no other use", names),
    "--category-columns": ("A,B", "codes that look like numbers, such as zip", names, ()),
    "--leave-out": ("A,B", "columns to leave out", names, ()),
    "--trust-columns": ("A,B", "columns to use even if they look suspicious", names, ()),
    "--embedding-column": ("NAME", "a column of lists of numbers, or an array of an .npz"),
    "--missing": ("A,B", "values that mark a missing label, such as -1; or the word blank, if only blanks do", markers),
    "--na": ("A,B", "further markers of a missing number, such as ?", names, ()),
    "--seed": (None, "same seed, same result (default 0)", int, 0),
    "--device": (None, "auto, cpu, cuda, ... (default auto)", str, "auto"),
    "--jobs": (None, "processes (default: all cores)", int, max(1, os.cpu_count() or 1)),
    "--max-memory": (
        "SIZE",
        "memory to use, such as 4G; larger arrays are kept in files (default: half of the machine's memory)",
    ),
    "--certainty": ("SHARE", "the certainty of --max-error (default 95%%)", share_of, 0.95),
    "--encoder": (
        "LIBRARY:NAME",
        "turns texts or images into features: sentence-transformers:NAME, transformers:NAME, timm:NAME (a name or"
        " a folder), or module:factory",
    ),
    "run_folder": ("RUN", "the folder of a finished run", Path),
}
COLUMNS = (
    *("--label-column", "--id-column", "--feature-columns", "--category-columns", "--leave-out", "--trust-columns"),
    "--embedding-column",
)
MISSING = ("--missing", "--na")


def add(parser: Parser, *shared: str) -> None:
    """Adds flags that several commands share, by their names."""
    for name in shared:
        about = SHARED[name]
        switch(parser, name, about) if isinstance(about, str) else flag(parser, name, *about)


def add_text(parser: Parser) -> None:
    about = "text columns that are not detected automatically; --encoder reads one of them"
    flag(parser, "--text", "A[,B]", about, names, (), dest="text_columns")
    add(parser, "--encoder")


def add_trust(parser: Parser, what: str) -> None:
    switch(parser, "--trust-code", f"allow {what} to name Python code, which is imported and run")


def add_workers(parser: Parser, what: str = "processes that decode streamed images") -> None:
    flag(parser, "--workers", None, f"{what} (default 0)", processes, 0)


def passed(options: argparse.Namespace, *chosen: str) -> dict[str, Any]:
    """The values of these flags, to be passed on under their names."""
    return {name: getattr(options, name) for name in chosen}


def read_options(options: argparse.Namespace) -> Any:
    """The flags about reading the data as `ReadOptions`: every flag that has the name of one of its fields."""
    from labelloop.workflows.encode import ReadOptions

    asked = passed(options, *(field.name for field in fields(ReadOptions) if field.name in options))
    return ReadOptions(**asked, progress=False if getattr(options, "quiet", False) else None)
