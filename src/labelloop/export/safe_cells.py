"""Cells that a spreadsheet would take for a formula, with an apostrophe in front: for files that people open there."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

FORMULA = ("=", "+", "-", "@", "\t", "\r")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?%?")


def safe(cell: str) -> str:
    """The cell as a spreadsheet shows it, and does not run it; a number stays one."""
    if cell.lstrip(" ").startswith(FORMULA) and not NUMBER.fullmatch(cell.strip(" ")):
        return f"'{cell}"
    return cell


def safely(write: Callable[[Path], object], delimiter: str) -> Callable[[Path], object]:
    """A function that writes a delimited file, followed by a pass over its cells."""

    def write_safely(path: Path) -> None:
        whole = path.with_name(f"{path.name}.cells")
        try:
            write(whole)
            with whole.open(encoding="utf-8", newline="") as old, path.open("w", encoding="utf-8", newline="") as new:
                csv.field_size_limit(2**31 - 1)
                writer = csv.writer(new, delimiter=delimiter)
                writer.writerows([safe(cell) for cell in row] for row in csv.reader(old, delimiter=delimiter))
        finally:
            whole.unlink(missing_ok=True)

    return write_safely
