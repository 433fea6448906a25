"""`labelloop report`: draw how far the confidences of a run can be believed."""

from __future__ import annotations

import argparse

from labelloop.cli.flags import add_run

HELP = "draw how far the confidences of a run can be believed"
DESCRIPTION = "Draw reliability.png and .svg into RUN: accuracy against confidence on its clean rows."


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)


def run(options: argparse.Namespace) -> int:
    from labelloop.report.reliability import draw_reliability

    print("drawn:", *draw_reliability(options.run_folder))
    return 0
