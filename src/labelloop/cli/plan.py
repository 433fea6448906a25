"""`labelloop plan`: which rows to verify next, and what they would gain."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import add, flag, share_of

HELP = "choose the rows to verify next, and forecast what they would gain"
DESCRIPTION = (
    "Write the rows of RUN that are most likely wrong to a CSV file for you to fill in, and estimate how much further"
    " clean rows would improve the corrected labels. Existing files are never overwritten."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add(parser, "run_folder")
    flag(parser, "--count", "N", "how many rows (default 200, or what --max-error takes)", int)
    about = "choose random rows instead, to certify labels as at most this share wrong, such as 2%%"
    flag(parser, "--max-error", "SHARE", about, share_of)
    add(parser, "--certainty")
    flag(parser, "--output", "FILE", "a .csv file (default: verify.csv in RUN)", Path)


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.plan import COUNT, plan_run, plan_sample

    if options.max_error is not None:
        goal = (options.max_error, options.certainty)
        print(plan_sample(options.run_folder, *goal, output=options.output, count=options.count))
        return 0
    print(plan_run(options.run_folder, options.output, COUNT if options.count is None else options.count)[0])
    return 0
