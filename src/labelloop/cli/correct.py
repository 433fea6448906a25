"""`labelloop correct`: correct the labels of a file in seconds, without training."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli import flags

HELP = "correct the labels of a file in seconds, without training"
DESCRIPTION = (
    "Correct the labels of DATA from out-of-sample probabilities, embeddings or both, and some clean labels, ideally"
    " of rows that also have a given label. Takes seconds: no network is trained."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", type=Path, metavar="DATA", help="a table, a folder of Parquet parts, or a Hugging Face data set"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="the labels, as .parquet or .csv")
    parser.add_argument("--output-dir", type=Path, metavar="RUN", help="a run folder, for `labelloop export`")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE, or the run in RUN")
    parser.add_argument(
        "--pred-probs-column",
        metavar="A[,B]",
        type=flags.names,
        help="a column of lists, an array of an .npz, or a column for every class (guessed: pred_probs, p_...)",
    )
    flags.add_columns(parser)
    flags.add_missing(parser)
    flags.add_text(parser)
    flags.add_encoder(parser)
    flags.add_memory(parser)
    parser.add_argument("--clean-column", metavar="NAME", help="the clean label (guessed: clean_label, y_clean)")
    parser.add_argument("--clean-file", type=Path, metavar="FILE", help="clean labels, joined by id")
    parser.add_argument(
        "--class-names", metavar="A,B", type=flags.names, help="the classes in the order of probabilities"
    )
    parser.add_argument("--seed", type=int, default=0, help="same seed, same result (default 0)")
    parser.add_argument("--dry-run", action="store_true", help="only read the data, and say how it was understood")
    parser.add_argument("--quiet", action="store_true", help="no summary")
    flags.add_report(parser)


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.correct_file import Outputs, correct_file

    summary = correct_file(
        options.data,
        flags.read_options(options),
        Outputs(options.output, options.output_dir, options.overwrite, not options.no_report),
        pred_probs_columns=options.pred_probs_column,
        class_names=options.class_names,
        seed=options.seed,
        dry_run=options.dry_run,
        max_memory=options.max_memory,
    )
    if not options.quiet or options.dry_run:
        print(summary)
    return 0
