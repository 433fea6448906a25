"""`labelloop undo`: get the input of an export back, byte for byte."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "get the input of an export back, byte for byte"
DESCRIPTION = "Restore what an export was made from. Nothing that exists is overwritten."


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the .undo.zip beside the output of an export")
    parser.add_argument("--output", type=Path, metavar="PATH", help="where to restore it (default: where it was)")


def run(options: argparse.Namespace) -> int:
    from labelloop.export.undo import undo

    print(undo(options.file, options.output))
    return 0
