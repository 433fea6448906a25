"""`labelloop embed`: write the features of texts or images to a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import add_columns, add_encoder, add_text, read_options

HELP = "compute features of texts or images with a pretrained encoder"
DESCRIPTION = (
    "Encode the texts or images of DATA and write the features, ids and labels of every row to an .npz file. What any"
    " command has encoded before is read from the cache (LABELLOOP_CACHE sets its folder)."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", type=Path, metavar="DATA", help="a table, a folder of images, or a Hugging Face data set"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="an .npz file")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    add_columns(parser)
    add_text(parser)
    add_encoder(parser)
    parser.add_argument("--clean-column", metavar="NAME", help="the clean label (guessed: clean_label, y_clean)")
    parser.add_argument("--split-column", metavar="NAME", help='"train" or "test" for every row (guessed: split)')
    parser.add_argument("--file-name-column", metavar="NAME", help="names of image files (guessed: file_name, image)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (default auto)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    parser.set_defaults(kept=_kept)


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.encode import embed_file

    asked = embed_file(
        options.data, read_options(options), options.output, overwrite=options.overwrite, device=options.device
    )
    if not options.quiet:
        print(asked)
    return 0


def _kept(options: argparse.Namespace) -> str:
    return "; encoded rows are kept, and the same command continues"
