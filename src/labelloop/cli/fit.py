"""`labelloop fit`: train on a file and correct its labels."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from labelloop.cli import flags
from labelloop.cli.flags import add, flag, passed, switch
from labelloop.errors import UsageError

HELP = "train on a file and correct its labels"
DESCRIPTION = (
    "Train on DATA and correct its labels. A row may have a given label, a clean label, both or neither. A missing"
    " label is blank, NaN or -1."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    about = "a table, a folder of Parquet parts or of images, or a Hugging Face data set"
    flag(parser, "data", "DATA", about, Path)
    flag(parser, "--output-dir", "RUN", "the run folder to write", Path)
    _add_data(parser)
    _add_training(parser)
    switch(parser, "--dry-run", "only read and check the data, and print how it was read")
    add(parser, "--quiet", "--no-report")
    kept = parser.add_mutually_exclusive_group()
    switch(kept, "--resume", "continue the run in RUN")
    switch(kept, "--overwrite", "replace the run in RUN")
    parser.set_defaults(kept=_kept)


def _add_data(parser: argparse.ArgumentParser) -> None:
    """The flags about rows, labels and inputs."""
    add(parser, *flags.COLUMNS, *flags.MISSING)
    flags.add_text(parser)
    switch(parser, "--train-encoder", "train the encoder too, at a lower learning rate")
    add(parser, "--clean-column", "--split-column")
    flag(parser, "--extra-columns", "A,B", "numbers that only the correction network sees", flags.names, ())
    flag(parser, "--labels", "FILE", "an .npy file with the labels, if DATA is .npy", Path, dest="labels_path")
    add(parser, "--file-name-column")
    clean = parser.add_mutually_exclusive_group()
    flag(clean, "--clean-file", "FILE", "clean labels, joined by id, by file name or in order", Path)
    flag(clean, "--clean-folder", "FOLDER", "clean images in class folders", Path)
    flag(parser, "--image-size", "N", "resize images to N x N pixels (default: at most 64)", int)
    flag(parser, "--max-unreadable", "SHARE", "stop if more images cannot be read (default 0.01)", float, 0.01)
    flags.add_workers(parser)
    flag(parser, "--noisy-labels", "FILE", "labels from `labelloop noise`, to replace those of DATA", Path)
    flag(parser, "--test", "FILE", "rows with true labels, to measure accuracy on", Path)
    switch(parser, "--allow-overlap", "only warn if test rows have the input or the id of a clean row")


def _add_training(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--config", "FILE", "settings, as TOML", Path)
    flag(parser, "--set", "KEY=VALUE", "a setting; overrides --config", str, [], action="append")
    flags.add_trust(parser, "the file of --config")
    flag(parser, "--recipe", None, "default, paper or paper-clothing1m", str, "default")
    about = "labelloop (the default), closed-loop (the paper's), or a baseline to compare with"
    flag(parser, "--method", None, about)
    add(parser, "--seed", "--device")
    about = "stop unless a launcher such as torchrun started N processes (default: any number)"
    flag(parser, "--processes", "N", about, flags.processes)
    add(parser, "--max-memory")
    switch(parser, "--half-labels", "store soft labels in half precision")


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.fit_file import RunOptions, Settings, fit_file, holds_run, join, method_of

    if options.output_dir is None and not options.dry_run:
        raise UsageError("a run needs a folder: name a new one with --output-dir, or check the data with --dry-run")
    ranks = join(options.processes)
    if not ranks.is_first:
        warnings.simplefilter("ignore")  # the first process prints the same
    again = ranks.restarts > 0 and options.output_dir is not None and holds_run(options.output_dir)
    method = method_of(options.method, options.recipe)
    summary = fit_file(
        options.data,
        flags.read_options(options),
        Settings(method, options.recipe, options.config, options.set, options.trust_code),
        RunOptions(
            progress=False if options.quiet else None,
            folder=options.output_dir,
            resume=options.resume or again,
            overwrite=options.overwrite and not again,
            report=not options.no_report,
            ranks=ranks,
            half=options.half_labels,
            **passed(options, "seed", "device", "workers", "dry_run", "max_memory"),
        ),
        **passed(options, "noisy_labels", "test", "allow_overlap", "max_unreadable"),
    )
    if ranks.is_first and (not options.quiet or options.dry_run):
        print(summary)
    return 0


def _kept(options: argparse.Namespace) -> str:
    from labelloop.workflows.fit_file import holds_run

    if options.output_dir is None or not holds_run(options.output_dir):
        return ""
    return f"; the last finished epoch is kept; continue with --resume --output-dir {options.output_dir}"
