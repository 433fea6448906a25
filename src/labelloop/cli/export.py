"""`labelloop export`: write the corrected labels in the format of the input."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from labelloop.cli.flags import add_run, share_of
from labelloop.errors import UsageError
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
    parser.add_argument(
        "--max-error",
        type=share_of,
        metavar="SHARE",
        help="export only labels that are, with --certainty, at most this share wrong, such as 2%%",
    )
    parser.add_argument(
        "--certainty", type=share_of, default=0.95, metavar="SHARE", help="of --max-error (default 95%%)"
    )
    parser.add_argument("--by-class", action="store_true", help="--max-error holds for the labels of every class")
    parser.add_argument(
        "--rest",
        choices=("review", "drop", "keep-given"),
        default="review",
        help="rows that are not certified: left out and written to a file to review (default), left out, or as given",
    )
    parser.add_argument("--clean-weight", metavar="COLUMN", help="1 / the probability that a clean row was chosen")
    parser.add_argument(
        "--look", type=int, default=0, metavar="N", help="the N-th certificate, if clean rows are added in between"
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
    if options.max_error is None:
        for flag in ("by_class", "clean_weight", "look"):
            if getattr(options, flag):
                raise UsageError(f"--{flag.replace('_', '-')} says how to certify labels; give --max-error as well")
        with clock("writing the export"):
            print(_export(options, None))
        return 0
    from labelloop.workflows.certify import certify
    from labelloop.workflows.plan import rest_file, write_rest

    rest = rest_file(options.run_folder, options.output) if options.rest == "review" else None
    with clock("certifying labels"):
        found = certify(
            options.run_folder,
            options.max_error,
            options.certainty,
            by_class=options.by_class,
            look=options.look,
            clean_weight=options.clean_weight,
        )
    print("\n".join(found.lines()))
    if not found.rows.any():
        return 1
    with clock("writing the export"):
        print(_export(options, (found.rows, options.rest)))
    if rest is not None:
        print(write_rest(options.run_folder, found.rows, rest))
    return 0


def _export(options: argparse.Namespace, certified: Any) -> str:
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
        certified=certified,
    )
