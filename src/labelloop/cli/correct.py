"""`labelloop correct`: correct the labels of a file in seconds, without training a network."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import COLUMNS, MISSING, add, add_text, flag, names, passed, read_options, switch

HELP = "correct the labels of a file in seconds, without training a network"
DESCRIPTION = (
    "Correct the labels of DATA with a few clean labels, ideally of rows that also have a given label, and with"
    " out-of-sample probabilities, embeddings or other columns. Takes seconds: no network is trained."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "data", "DATA", "a table, a folder of Parquet parts, or a Hugging Face data set", Path)
    flag(parser, "--output", "FILE", "the labels, as .parquet or .csv", Path)
    flag(parser, "--output-dir", "RUN", "a run folder to write, for `labelloop export`", Path)
    switch(parser, "--overwrite", "replace FILE, or the run in RUN")
    about = "a column of lists, an array of an .npz, or a column for every class (guessed: pred_probs, p_...)"
    flag(parser, "--pred-probs-column", "A[,B]", about, names, dest="pred_probs_columns")
    add(parser, *COLUMNS, *MISSING)
    add_text(parser)
    add(parser, "--max-memory", "--clean-column")
    flag(parser, "--clean-file", "FILE", "clean labels, joined by id", Path)
    flag(parser, "--class-names", "A,B", "the classes in the order of the probabilities", names)
    add(parser, "--seed")
    switch(parser, "--dry-run", "only read the data, and print how it was read")
    switch(parser, "--quiet", "no summary")
    add(parser, "--no-report")


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.correct_file import Outputs, correct_file

    summary = correct_file(
        options.data,
        read_options(options),
        Outputs(options.output, options.output_dir, options.overwrite, not options.no_report),
        **passed(options, "pred_probs_columns", "class_names", "seed", "dry_run", "max_memory"),
    )
    if not options.quiet or options.dry_run:
        print(summary)
    return 0
