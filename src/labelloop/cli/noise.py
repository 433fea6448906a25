"""`labelloop noise`: corrupt labels and write them to a file with a checksum."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import add_columns, add_missing, read_options

HELP = "corrupt labels and write them to a file with a checksum"
DESCRIPTION = (
    "Corrupt the labels of DATA, a table or the name of a data set, and write them to a file for `labelloop fit"
    " --noisy-labels` and for grids."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="a table, or a data set such as cifar10")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="a .parquet file")
    parser.add_argument("--noise", required=True, help="symmetric, pair, instance, asymmetric-cifar10, ...")
    parser.add_argument("--rate", type=float, default=0.4, help="nominal rate (default 0.4)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same labels (default 0)")
    parser.add_argument(
        "--clean", type=int, default=0, metavar="N", help="keep the true labels of N rows as clean labels"
    )
    parser.add_argument("--paired", action="store_true", help="give the clean rows a noisy label too")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the noise")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    add_columns(parser)
    add_missing(parser)


def run(options: argparse.Namespace) -> int:
    from labelloop.config.build import parse_overrides
    from labelloop.workflows.noise import Corruption, make_noise_file

    text = make_noise_file(
        options.data,
        options.output,
        Corruption(
            options.noise,
            options.rate,
            parse_overrides(options.set),
            seed=options.seed,
            clean=options.clean,
            paired=options.paired,
        ),
        read_options(options),
        options.overwrite,
    )
    print(text, end="")
    return 0
