"""`labelloop report`: what came out of a run, as one page that opens without a network."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.progress import clock

HELP = "what came out of a run, or of several side by side, as one page"
DESCRIPTION = (
    "Write report.html into RUN: the answer, pictures and a table of all changes, in one file that opens without a"
    " network. Several runs are put side by side, in report.html in this folder. A run that is not finished is reported"
    " as far as it goes."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="the folder of a run")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to (default: report.html)")
    parser.add_argument(
        "--figures", action="store_true", help="draw reliability.png and .svg into each RUN too; needs matplotlib"
    )


def run(options: argparse.Namespace) -> int:
    from labelloop.report.html import write_report

    with clock("writing the report"):
        written = write_report(options.runs, options.output)
    print(f"written: {written}")
    if options.figures:
        from labelloop.report.reliability import draw_reliability

        for folder in options.runs:
            with clock("drawing reliability"):
                drawn = draw_reliability(folder)
            print("drawn:", *drawn)
    return 0
