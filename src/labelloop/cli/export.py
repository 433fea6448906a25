"""`labelloop export`: write the corrected labels in the format of the input."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from labelloop.cli.flags import add, flag, passed, share_of, switch
from labelloop.errors import UsageError
from labelloop.progress import clock

HELP = "write the corrected labels in the format of your data"
DESCRIPTION = (
    "Write the input of RUN with corrected labels, a list of all changes and an undo file; or the label issues, noise"
    " matrix or model of RUN. Existing files are never overwritten."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add(parser, "run_folder")
    formats = "csv, tsv, jsonl, parquet, imagefolder, hf, issues, noise-matrix or model"
    flag(parser, "--to", "FORMAT", formats, required=True)
    flag(parser, "--output", "PATH", "default: a name made from that of the input, in the current folder", Path)
    flag(parser, "--input", "PATH", "where the input is now, if it was moved", Path, dest="source")
    flag(parser, "--min-confidence", "P", "least confidence of a correction to apply (default 0)", float, 0.0)
    about = "what to do with rows whose correction applies (default relabel)"
    flag(parser, "--action", None, about, str, "relabel", choices=("relabel", "drop", "keep"))
    about = "export only labels that are, with --certainty, at most this share wrong, such as 2%%"
    flag(parser, "--max-error", "SHARE", about, share_of)
    add(parser, "--certainty")
    switch(parser, "--by-class", "apply --max-error to the labels of each class")
    about = "rows that are not certified: left out and written to a file to review (default), left out, or as given"
    flag(parser, "--rest", None, about, str, "review", choices=("review", "drop", "keep-given"))
    flag(parser, "--clean-weight", "COLUMN", "a column with 1 / the probability that a clean row was chosen")
    flag(parser, "--look", "N", "the number of this certificate, if you add clean rows and certify again", int, 0)
    switch(parser, "--replace", "overwrite the label column instead of adding columns")
    switch(parser, "--copy", "copy images instead of linking to them")
    switch(parser, "--safe-cells", "escape cells of CSV and TSV that a spreadsheet would run as a formula")
    switch(parser, "--no-undo", "write no undo file (it holds a copy of the input)")
    about = "noise matrix with true classes as rows (default), or as columns, like cleanlab's"
    flag(parser, "--orientation", None, about, str, "true-noisy", choices=("true-noisy", "cleanlab"))


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
        more = passed(options, "by_class", "look", "clean_weight")
        found = certify(options.run_folder, options.max_error, options.certainty, **more)
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

    names = ("output", "source", "min_confidence", "action", "replace", "copy", "orientation", "safe_cells")
    more = passed(options, *names)
    return export(options.run_folder, options.to, keep_undo=not options.no_undo, certified=certified, **more)
