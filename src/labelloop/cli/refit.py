"""`labelloop refit`: correct the labels of a run again with new clean rows, in seconds."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import Renamed, add_report, add_run

HELP = "correct again with new clean rows, in seconds"
DESCRIPTION = (
    "Correct the labels of RUN again with more clean rows, from FILE or from the decisions of `labelloop review`."
    " Trains nothing, and writes a new run folder."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--clean-file",
        type=Path,
        metavar="FILE",
        help="clean labels, joined by id (default: the decisions of `labelloop review`)",
    )
    parser.add_argument("--verified", action=Renamed, now="--clean-file")
    parser.add_argument(
        "--random-sample",
        action="store_true",
        help="the new clean rows were drawn at random, as `plan --max-error` does, so they judge too",
    )
    parser.add_argument("--output-dir", type=Path, metavar="NEW", help="the folder of the new run (default: RUN-refit)")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in NEW")
    add_report(parser)


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.refit import refit_run
    from labelloop.workflows.review import next_folder

    output = options.output_dir or next_folder(options.run_folder)
    text = refit_run(
        options.run_folder,
        options.clean_file,
        output,
        random_sample=options.random_sample,
        overwrite=options.overwrite,
        report=not options.no_report,
    )
    print(text)
    return 0
