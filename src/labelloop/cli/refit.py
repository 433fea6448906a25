"""`labelloop refit`: correct the labels of a run again with new clean rows, in seconds."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import add, flag, passed, switch

HELP = "correct again with new clean rows, in seconds"
DESCRIPTION = (
    "Correct the labels of RUN again with more clean rows, from FILE or from the decisions of `labelloop review`."
    " Trains no network, and writes a new run folder."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add(parser, "run_folder")
    about = "clean labels, joined by id (default: the decisions of `labelloop review`)"
    flag(parser, "--clean-file", "FILE", about, Path)
    about = "the new clean rows were drawn at random, as by `plan --max-error`, so estimates may use them"
    switch(parser, "--random-sample", about)
    flag(parser, "--output-dir", "NEW", "the folder of the new run (default: RUN-refit)", Path)
    switch(parser, "--overwrite", "replace the run in NEW")
    add(parser, "--no-report")


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.refit import refit_run
    from labelloop.workflows.review import next_folder

    output = options.output_dir or next_folder(options.run_folder)
    more = passed(options, "random_sample", "overwrite")
    print(refit_run(options.run_folder, options.clean_file, output, report=not options.no_report, **more))
    return 0
