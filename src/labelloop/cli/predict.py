"""`labelloop predict`: classify a file with the model of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import (
    COLUMNS,
    MISSING,
    add,
    add_text,
    add_trust,
    add_workers,
    flag,
    passed,
    read_options,
    switch,
)

HELP = "classify a file with the model of a run"
DESCRIPTION = "Classify DATA with the model of RUN."


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "model", "RUN", "the folder of a finished run", Path)
    flag(parser, "data", "DATA", "a table, a folder of images, or a Hugging Face data set", Path)
    flag(parser, "--output", "FILE", ".csv or .parquet (default: CSV on the terminal)", Path)
    switch(parser, "--overwrite", "replace FILE")
    add(parser, *COLUMNS, *MISSING)
    add_text(parser)
    add_trust(parser, "the model")
    add(parser, "--file-name-column")
    add_workers(parser)


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.predict_file import predict_file

    more = passed(options, "output", "overwrite", "workers", "trust_code")
    print(predict_file(options.model, options.data, columns=read_options(options), **more), end="")
    return 0
