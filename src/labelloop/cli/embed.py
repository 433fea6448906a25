"""`labelloop embed`: write the features of texts or images to a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import COLUMNS, add, add_text, flag, passed, read_options, switch

HELP = "compute features of texts or images with a pretrained encoder"
DESCRIPTION = (
    "Encode the texts or images of DATA and write the features, ids and labels of every row to an .npz file. Rows"
    " that any command has encoded before come from the cache (LABELLOOP_CACHE sets its folder)."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "data", "DATA", "a table, a folder of images, or a Hugging Face data set", Path)
    flag(parser, "--output", "FILE", "an .npz file", Path, required=True)
    switch(parser, "--overwrite", "replace FILE")
    add(parser, *COLUMNS)
    add_text(parser)
    add(parser, "--clean-column", "--split-column", "--file-name-column", "--device", "--quiet")
    parser.set_defaults(kept=lambda options: "; encoded rows are kept, and the same command continues")


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.encode import embed_file

    asked = embed_file(options.data, read_options(options), options.output, **passed(options, "overwrite", "device"))
    if not options.quiet:
        print(asked)
    return 0
