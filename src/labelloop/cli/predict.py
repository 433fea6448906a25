"""`labelloop predict`: classify a file with the model of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import add_columns, add_encoder, add_missing, add_text, add_trust, processes, read_options

HELP = "classify a file with the model of a run"
DESCRIPTION = "Classify DATA with the model of RUN."


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="RUN", help="the folder of a finished run")
    parser.add_argument(
        "data", type=Path, metavar="DATA", help="a table, a folder of images, or a Hugging Face data set"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help=".csv or .parquet (default: CSV on the terminal)")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    add_columns(parser)
    add_missing(parser)
    add_text(parser)
    add_encoder(parser)
    add_trust(parser, "the model")
    parser.add_argument("--file-name-column", metavar="NAME", help="names of image files (guessed: file_name, image)")
    parser.add_argument(
        "--workers", type=processes, default=0, help="processes that decode streamed images (default 0)"
    )


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.predict_file import predict_file

    found = predict_file(
        options.model,
        options.data,
        output=options.output,
        overwrite=options.overwrite,
        columns=read_options(options),
        workers=options.workers,
        trust_code=options.trust_code,
    )
    print(found, end="")
    return 0
