"""`labelloop export`: write the corrected labels in the format of the input."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import add_run
from labelloop.progress import clock

HELP = "write the corrected labels in the format of your data"
DESCRIPTION = (
    "Write the input of RUN with corrected labels, a list of all changes and an undo file; or the label issues, noise"
    " matrix or model of RUN. Existing files are never overwritten."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--to",
        required=True,
        metavar="FORMAT",
        help="csv, tsv, jsonl, parquet, imagefolder, hf, issues, noise-matrix or model",
    )
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="default: a name made from that of the input, in the current folder"
    )
    parser.add_argument("--input", type=Path, metavar="PATH", help="where the input is now, if it was moved")
    parser.add_argument(
        "--min-confidence",
        type=float,
        default=0.0,
        metavar="P",
        help="least confidence of a correction to apply (default 0)",
    )
    parser.add_argument(
        "--action",
        choices=("relabel", "drop", "keep"),
        default="relabel",
        help="what to do with rows whose correction applies (default relabel)",
    )
    parser.add_argument("--replace", action="store_true", help="overwrite the label column instead of adding columns")
    parser.add_argument("--copy", action="store_true", help="copy images instead of linking to them")
    parser.add_argument(
        "--safe-cells", action="store_true", help="escape cells of CSV and TSV that a spreadsheet takes for a formula"
    )
    parser.add_argument("--no-undo", action="store_true", help="write no undo file (it holds a copy of the input)")
    parser.add_argument(
        "--orientation",
        choices=("true-noisy", "cleanlab"),
        default="true-noisy",
        help="noise matrix with true classes as rows (default), or as columns, like cleanlab's",
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
        safe_cells=options.safe_cells,
    )
