"""`labelloop plan`: which rows to label next, and whether it is worth it."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from labelloop.cli.flags import add_run
from labelloop.progress import clock

HELP = "choose the rows to label next, and say whether it is worth it"
DESCRIPTION = (
    "Write the rows of RUN that are most likely wrong to a CSV file to fill in, and estimate how much more clean rows"
    " would improve the corrected labels. Existing files are never overwritten."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--count", type=int, default=200, metavar="N", help="how many rows (default 200)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="a .csv file (default: verify.csv in RUN)")


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.plan import plan_run

    text, curve = plan_run(options.run_folder, options.output, options.count)
    print(text)
    if curve and find_spec("matplotlib"):
        from labelloop.report.figure import draw_learning_curve

        output = options.output or options.run_folder / "verify.csv"
        with clock("drawing the learning curve"):
            drawn = draw_learning_curve(curve, output.with_suffix(".curve"))
        print("drawn:", *drawn)
    return 0
