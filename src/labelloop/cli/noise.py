"""`labelloop noise`: corrupt labels and write them to a file with a checksum."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import COLUMNS, MISSING, add, flag, passed, read_options, switch

HELP = "corrupt labels and write them to a file with a checksum"
DESCRIPTION = (
    "Corrupt the labels of DATA, a table or the name of a data set, and write them to a file for `labelloop fit"
    " --noisy-labels` and for grids."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "data", "DATA", "a table, or a data set such as cifar10")
    flag(parser, "--output", "FILE", "a .parquet file", Path, required=True)
    flag(parser, "--noise", None, "symmetric, pair, instance, asymmetric-cifar10, ...", required=True)
    flag(parser, "--rate", None, "nominal rate (default 0.4)", float, 0.4)
    flag(parser, "--seed", None, "same seed, same labels (default 0)", int, 0)
    flag(parser, "--clean", "N", "keep the true labels of N rows as clean labels", int, 0)
    switch(parser, "--paired", "give the clean rows a noisy label too")
    flag(parser, "--set", "KEY=VALUE", "an option of the noise", str, [], action="append")
    switch(parser, "--overwrite", "replace FILE")
    add(parser, *COLUMNS, *MISSING)


def run(options: argparse.Namespace) -> int:
    from labelloop.config.build import parse_overrides
    from labelloop.workflows.noise import Corruption, make_noise_file

    chosen = passed(options, "seed", "clean", "paired")
    corruption = Corruption(options.noise, options.rate, parse_overrides(options.set), **chosen)
    print(make_noise_file(options.data, options.output, corruption, read_options(options), options.overwrite), end="")
    return 0
