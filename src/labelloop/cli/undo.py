"""`labelloop undo`: restore the input of an export, byte for byte."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "restore the input of an export, byte for byte"
DESCRIPTION = "Restore the input of an export. Existing files are never overwritten."


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the .undo.zip next to the output of an export")
    parser.add_argument("--output", type=Path, metavar="PATH", help="where to restore it (default: where it was)")


def run(options: argparse.Namespace) -> int:
    from labelloop.export.undo import undo

    print(undo(options.file, options.output))
    return 0
