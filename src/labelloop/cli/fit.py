"""`labelloop fit`: train on a file and correct its labels."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from labelloop.cli import flags
from labelloop.errors import UsageError

HELP = "train on a file and correct its labels"
DESCRIPTION = (
    "Train on DATA and correct its labels. A row may have a given label, a clean label, both or neither. A missing"
    " label is blank, NaN or -1."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help="a table, a folder of Parquet parts or of images, or a Hugging Face data set",
    )
    parser.add_argument("--output-dir", type=Path, metavar="RUN", help="the folder of this run")
    _add_data(parser)
    _add_training(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only read and check the data, and say how it was understood"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    flags.add_report(parser)
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--resume", action="store_true", help="continue the run in RUN")
    kept.add_argument("--overwrite", action="store_true", help="replace the run in RUN")
    parser.set_defaults(kept=_kept)


def _add_data(parser: argparse.ArgumentParser) -> None:
    """The flags about rows, labels and inputs."""
    flags.add_columns(parser)
    flags.add_missing(parser)
    flags.add_text(parser)
    flags.add_encoder(parser)
    parser.add_argument("--train-encoder", action="store_true", help="train the encoder too, at a lower learning rate")
    parser.add_argument("--clean-column", metavar="NAME", help="the clean label (guessed: clean_label, y_clean)")
    parser.add_argument("--split-column", metavar="NAME", help='"train" or "test" for every row (guessed: split)')
    parser.add_argument(
        "--extra-columns",
        metavar="A,B",
        type=flags.names,
        default=(),
        help="numbers that only the correction network sees",
    )
    parser.add_argument(
        "--labels", dest="labels_path", type=Path, metavar="FILE", help="an .npy file with the labels, if DATA is .npy"
    )
    parser.add_argument("--clean-labels", action=flags.Renamed, now="--clean-file")
    parser.add_argument("--file-name-column", metavar="NAME", help="names of image files (guessed: file_name, image)")
    clean = parser.add_mutually_exclusive_group()
    clean.add_argument(
        "--clean-file", type=Path, metavar="FILE", help="clean labels, joined by id, by file name or in order"
    )
    clean.add_argument("--clean-folder", type=Path, metavar="FOLDER", help="clean images in class folders")
    parser.add_argument(
        "--image-size", type=int, metavar="N", help="resize images to N x N pixels (default: at most 64)"
    )
    parser.add_argument(
        "--max-unreadable",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="stop if more images cannot be read (default 0.01)",
    )
    parser.add_argument(
        "--workers", type=flags.processes, default=0, help="processes that decode streamed images (default 0)"
    )
    parser.add_argument(
        "--noisy-labels", type=Path, metavar="FILE", help="labels from `labelloop noise`, to replace those of DATA"
    )
    parser.add_argument("--test", type=Path, metavar="FILE", help="rows with true labels, to measure accuracy on")
    parser.add_argument(
        "--allow-overlap", action="store_true", help="only warn if test rows have the input or the id of a clean row"
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings, as TOML")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; overrides --config")
    flags.add_trust(parser, "the file of --config")
    parser.add_argument("--recipe", default="default", help="default, paper or paper-clothing1m")
    parser.add_argument(
        "--method", help="labelloop (the default), closed-loop (the paper's), or a baseline to compare with"
    )
    parser.add_argument("--seed", type=int, default=0, help="same seed, same result (default 0)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (default auto)")
    parser.add_argument(
        "--processes",
        type=flags.processes,
        metavar="N",
        help="stop unless a launcher such as torchrun started N processes (default: any number)",
    )
    flags.add_memory(parser)
    parser.add_argument("--half-labels", action="store_true", help="store soft labels in half precision")


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.fit_file import RunOptions, Settings, fit_file, holds_run, join, method_of

    if options.output_dir is None and not options.dry_run:
        raise UsageError("a run needs a folder: name a new one with --output-dir, or only look with --dry-run")
    ranks = join(options.processes)
    if not ranks.is_first:
        warnings.simplefilter("ignore")  # the first process prints the same
    again = ranks.restarts > 0 and options.output_dir is not None and holds_run(options.output_dir)
    summary = fit_file(
        options.data,
        flags.read_options(options),
        Settings(
            method_of(options.method, options.recipe), options.recipe, options.config, options.set, options.trust_code
        ),
        RunOptions(
            seed=options.seed,
            device=options.device,
            workers=options.workers,
            progress=False if options.quiet else None,
            folder=options.output_dir,
            resume=options.resume or again,
            overwrite=options.overwrite and not again,
            report=not options.no_report,
            dry_run=options.dry_run,
            ranks=ranks,
            max_memory=options.max_memory,
            half=options.half_labels,
        ),
        noisy_labels=options.noisy_labels,
        test=options.test,
        allow_overlap=options.allow_overlap,
        max_unreadable=options.max_unreadable,
    )
    if ranks.is_first and (not options.quiet or options.dry_run):
        print(summary)
    return 0


def _kept(options: argparse.Namespace) -> str:
    from labelloop.workflows.fit_file import holds_run

    if options.output_dir is None or not holds_run(options.output_dir):
        return ""
    return f"; the last finished epoch is kept; continue with --resume --output-dir {options.output_dir}"
