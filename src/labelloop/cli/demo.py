"""`labelloop demo`: see it work on real data in less than a minute."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import flag

HELP = "see it work on real data in less than a minute"
DESCRIPTION = (
    "Corrupt the labels of scikit-learn's digits, train, and compare with the true labels. No download needed."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--output-dir", "FOLDER", None, Path, Path("labelloop-demo"))
    flag(parser, "--seeds", "N", "how many seeds (default 3)", int, 3)


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.demo import run_demo

    print(run_demo(options.output_dir, options.seeds))
    return 0
