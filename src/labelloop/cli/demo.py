"""`labelloop demo`: see it work on real data in less than a minute."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "see it work on real data in less than a minute"
DESCRIPTION = (
    "Corrupt the labels of scikit-learn's digits, train, and compare with the true labels. No download needed."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output-dir", type=Path, default=Path("labelloop-demo"), metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many seeds (default 3)")


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.demo import run_demo

    print(run_demo(options.output_dir, options.seeds))
    return 0
