"""`labelloop export`: the corrected labels in the form of the input."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import add_run
from labelloop.progress import clock

HELP = "the corrected labels in the form of your data"
DESCRIPTION = (
    "Write the input of RUN with its labels corrected, beside it a record of every change and an undo file; or the"
    " run's issues, noise matrix or model. Nothing that exists is overwritten."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--to",
        required=True,
        metavar="FORMAT",
        help="csv, tsv, jsonl, parquet, imagefolder, hf, issues, noise-matrix or model",
    )
    parser.add_argument("--output", type=Path, metavar="PATH", help="default: named after the input, in this folder")
    parser.add_argument("--input", type=Path, metavar="PATH", help="where the input is now (default: where it was)")
    parser.add_argument("--min-confidence", type=float, default=0.0, metavar="P", help="of a correction that counts")
    parser.add_argument(
        "--action",
        choices=("relabel", "drop", "keep"),
        default="relabel",
        help="what happens to rows whose correction counts (default relabel)",
    )
    parser.add_argument("--replace", action="store_true", help="change the label column, instead of adding columns")
    parser.add_argument("--copy", action="store_true", help="copy images, instead of linking to them")
    parser.add_argument("--no-undo", action="store_true", help="no undo file, which holds a copy of the input")
    parser.add_argument(
        "--orientation",
        choices=("true-noisy", "cleanlab"),
        default="true-noisy",
        help="of the noise matrix: rows of true classes (default), or columns as in cleanlab",
    )


def run(options: argparse.Namespace) -> int:
    with clock("writing the export"):
        text = _export(options)
    print(text)
    return 0


def _export(options: argparse.Namespace) -> str:
    from labelloop.export.export import export

    return export(
        options.run_folder,
        options.to,
        output=options.output,
        min_confidence=options.min_confidence,
        action=options.action,
        replace=options.replace,
        copy=options.copy,
        orientation=options.orientation,
        keep_undo=not options.no_undo,
        source=options.input,
    )
