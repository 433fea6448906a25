"""`labelloop undo`: restore the input of an export, byte for byte."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import flag

HELP = "restore the input of an export, byte for byte"
DESCRIPTION = "Restore the input of an export. Existing files are never overwritten."


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "file", "FILE", "the .undo.zip next to the output of an export", Path)
    flag(parser, "--output", "PATH", "where to restore it (default: where it was)", Path)


def run(options: argparse.Namespace) -> int:
    from labelloop.export.undo import undo

    print(undo(options.file, options.output))
    return 0
