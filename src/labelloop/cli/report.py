"""`labelloop report`: the results of a run as one HTML page that needs no network."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import flag, switch
from labelloop.progress import clock

HELP = "write the results of a run, or of several side by side, as one HTML page"
DESCRIPTION = (
    "Write report.html into RUN: the result, figures and a table of all changes, in one file that opens offline."
    " Several runs are shown side by side, in report.html in the current folder. An unfinished run is reported as far"
    " as it got."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "runs", "RUN", "the folder of a run", Path, nargs="+")
    flag(parser, "--output", "FILE", "the page to write (default: report.html)", Path)
    switch(parser, "--figures", "also draw reliability.png and .svg into each RUN; needs matplotlib")


def run(options: argparse.Namespace) -> int:
    from labelloop.report.html import write_report

    with clock("writing the report"):
        written = write_report(options.runs, options.output)
    print(f"written: {written}")
    if options.figures:
        from labelloop.report.figure import draw_reliability

        for folder in options.runs:
            with clock("drawing reliability"):
                drawn = draw_reliability(folder)
            print("drawn:", *drawn)
    return 0
