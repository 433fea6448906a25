"""The command line: parsing and exit codes only. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

Nothing heavy is imported before a command is known, so that --help answers at once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from labelloop import __version__
from labelloop.errors import DataError, UsageError

COLUMNS = ("label_column", "clean_column", "id_column", "feature_columns", "embedding_column", "split_column")
FLAGS = {
    name: f"--{name.replace('_', '-')}"
    for name in (*COLUMNS, "extra_columns", "allow_overlap", "file_name_column", "image_size", "max_unreadable")
} | {
    "labels_path": "--labels",
    "clean_labels_path": "--clean-labels",
    "clean_folder": "--clean-folder",
    "text_column": "--text",
    "embedder": "--embed",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads slow each other down; torch reads it once
    warnings.showwarning = _show_warning
    try:
        return options.run(options)
    except UsageError as error:
        print(f"labelloop: {_with_flags(error)}", file=sys.stderr)
        return 2
    except DataError as error:
        print(f"labelloop: {_with_flags(error)}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"labelloop: {_of_the_system(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        kept = hasattr(options, "resume") and (options.output_dir / "run.json").exists()
        hint = f"; the last finished epoch is kept, continue with --resume --output-dir {options.output_dir}"
        if options.run is _bench:
            kept, hint = True, "; what is finished is kept, and the same command continues"
        print(f"\nlabelloop: interrupted{hint if kept else ''}", file=sys.stderr)
        return 130


def _of_the_system(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return str(error)
    reason = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
    return f"{error.filename}: {reason}; check the place, its folder, and that you may read and write there"


def _with_flags(message: object) -> str:
    """A message with the names of arguments as one writes them here: --label-column, not label_column."""
    text = str(message)
    for name, flag in FLAGS.items():
        text = re.sub(rf"(?<![\w-]){name}(?!\w)", flag, text)
    return text


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    if issubclass(category, UserWarning):  # ours; those of libraries are for developers
        print(f"labelloop: warning: {_with_flags(message)}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="labelloop",
        description="Train on noisy labels with a small trusted set; get every label back, corrected.",
    )
    parser.add_argument("--version", action="version", version=f"labelloop {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    fit = _add_command(
        commands,
        "fit",
        help="train on a file and correct its labels",
        description="Train on DATA and correct its labels. A row may have a label, a clean label, both or neither; "
        "a missing one is blank, NaN or -1.",
    )
    fit.add_argument("data", type=Path, metavar="DATA", help="a table, a folder of images, or a Hugging Face data set")
    fit.add_argument("--output-dir", type=Path, required=True, metavar="RUN", help="the folder of this run")
    _add_columns(fit)
    _add_text(fit)
    fit.add_argument("--clean-column", metavar="NAME", help="the verified label (guessed: clean_label, y_clean)")
    fit.add_argument("--split-column", metavar="NAME", help='"train" or "test" for every row (guessed: split)')
    fit.add_argument("--extra-columns", metavar="A,B", type=_names, default=(), help="for the correction network only")
    fit.add_argument("--labels", type=Path, metavar="FILE", help="the labels of an .npy file, as .npy")
    fit.add_argument("--clean-labels", type=Path, metavar="FILE", help="the verified labels of an .npy file, as .npy")
    fit.add_argument("--file-name-column", metavar="NAME", help="names of image files (guessed: file_name, image)")
    clean = fit.add_mutually_exclusive_group()
    clean.add_argument("--clean-file", type=Path, metavar="FILE", help="verified labels, joined by id or file name")
    clean.add_argument("--clean-folder", type=Path, metavar="FOLDER", help="verified images in class folders")
    fit.add_argument("--image-size", type=int, metavar="N", help="side of the images in pixels (default: at most 64)")
    fit.add_argument("--max-unreadable", type=float, default=0.01, metavar="SHARE", help="of the images (default 0.01)")
    fit.add_argument("--workers", type=_processes, default=0, help="processes that decode streamed images (default 0)")
    fit.add_argument("--noisy-labels", type=Path, metavar="FILE", help="from `labelloop noise`: replaces the labels")
    fit.add_argument("--test", type=Path, metavar="FILE", help="rows with true labels to report the accuracy on")
    fit.add_argument(
        "--allow-overlap", action="store_true", help="test rows may look like clean rows, or have their ids: only warn"
    )
    fit.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML")
    fit.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; goes before --config")
    fit.add_argument("--recipe", default="practical", help="practical (default), paper or paper-clothing1m")
    fit.add_argument("--method", default="closed-loop", help="closed-loop, or a baseline to compare with")
    fit.add_argument("--seed", type=int, default=0, help="same seed, same result (default 0)")
    fit.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (default auto)")
    fit.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    kept = fit.add_mutually_exclusive_group()
    kept.add_argument("--resume", action="store_true", help="continue the run in RUN")
    kept.add_argument("--overwrite", action="store_true", help="replace the run in RUN")
    fit.set_defaults(run=_fit)

    predict = _add_command(
        commands,
        "predict",
        help="classify a file with the model of a run",
        description="Classify DATA with the model of RUN.",
    )
    predict.add_argument("model", type=Path, metavar="RUN", help="the folder of a finished run")
    predict.add_argument(
        "data", type=Path, metavar="DATA", help="a table, a folder of images, or a Hugging Face data set"
    )
    predict.add_argument("--output", type=Path, metavar="FILE", help=".csv or .parquet (default: CSV on the terminal)")
    predict.add_argument("--overwrite", action="store_true", help="replace FILE")
    _add_columns(predict)
    _add_text(predict)
    predict.add_argument("--file-name-column", metavar="NAME", help="names of image files (guessed: file_name, image)")
    predict.add_argument(
        "--workers", type=_processes, default=0, help="processes that decode streamed images (default 0)"
    )
    predict.set_defaults(run=_predict)

    correct = _add_command(
        commands,
        "correct",
        help="correct the labels of a file in seconds, without training",
        description="Correct the labels of DATA from out-of-sample probabilities, embeddings or both, with the help of "
        "some clean labels, best on rows that keep their given label. Nothing is trained that takes longer than "
        "seconds.",
    )
    correct.add_argument("data", type=Path, metavar="DATA", help="a table, or a Hugging Face data set")
    correct.add_argument("--output", type=Path, metavar="FILE", help="the labels, as .parquet or .csv")
    correct.add_argument("--output-dir", type=Path, metavar="RUN", help="a run folder, for `labelloop export`")
    correct.add_argument("--overwrite", action="store_true", help="replace FILE, or the run in RUN")
    correct.add_argument(
        "--pred-probs-column",
        metavar="A[,B]",
        type=_names,
        help="a column of lists, an array of an .npz, or a column for every class (guessed: pred_probs, p_...)",
    )
    _add_columns(correct)
    _add_text(correct)
    correct.add_argument("--clean-column", metavar="NAME", help="the verified label (guessed: clean_label, y_clean)")
    correct.add_argument("--clean-file", type=Path, metavar="FILE", help="verified labels, joined by id")
    correct.add_argument("--class-names", metavar="A,B", type=_names, help="the classes in the order of probabilities")
    correct.add_argument("--seed", type=int, default=0, help="same seed, same result (default 0)")
    correct.add_argument("--quiet", action="store_true", help="no summary")
    correct.set_defaults(run=_correct)

    plan = _add_command(
        commands,
        "plan",
        help="which rows to verify next, and whether it is worth it",
        description="Write the rows of RUN that are most likely wrong to a CSV file to fill in, and say how corrected "
        "labels get better with more clean rows. Nothing that exists is overwritten.",
    )
    _add_run(plan)
    plan.add_argument("--count", type=int, default=200, metavar="N", help="how many rows (default 200)")
    plan.add_argument("--output", type=Path, metavar="FILE", help="a .csv file (default: verify.csv in RUN)")
    plan.set_defaults(run=_plan)

    refit = _add_command(
        commands,
        "refit",
        help="correct again with newly verified rows, in seconds",
        description="Correct the labels of RUN again with the rows of FILE as further clean rows, without training, "
        "and write a new run folder.",
    )
    _add_run(refit)
    refit.add_argument("--verified", type=Path, required=True, metavar="FILE", help="a .csv with id and clean_label")
    refit.add_argument("--output-dir", type=Path, required=True, metavar="NEW", help="the folder of the new run")
    refit.add_argument("--overwrite", action="store_true", help="replace the run in NEW")
    refit.set_defaults(run=_refit)

    report = _add_command(
        commands,
        "report",
        help="draw how far the confidences of a run can be believed",
        description="Draw reliability.png and .svg into RUN: accuracy against confidence on its clean rows.",
    )
    _add_run(report)
    report.set_defaults(run=_report)

    export = _add_command(
        commands,
        "export",
        help="the corrected labels in the form of your data",
        description="Write the input of RUN with its labels corrected, beside it a record of every change and an undo "
        "file; or the run's issues, noise matrix or model. Nothing that exists is overwritten.",
    )
    _add_run(export)
    export.add_argument(
        "--to",
        required=True,
        metavar="FORMAT",
        help="csv, tsv, jsonl, parquet, imagefolder, hf, issues, noise-matrix or model",
    )
    export.add_argument("--output", type=Path, metavar="PATH", help="default: named after the input, in this folder")
    export.add_argument("--min-confidence", type=float, default=0.0, metavar="P", help="of a correction that counts")
    export.add_argument(
        "--action",
        choices=("relabel", "drop", "keep"),
        default="relabel",
        help="what happens to rows whose correction counts (default relabel)",
    )
    export.add_argument("--replace", action="store_true", help="change the label column, instead of adding columns")
    export.add_argument("--copy", action="store_true", help="copy images, instead of linking to them")
    export.add_argument("--no-undo", action="store_true", help="no undo file, which holds a copy of the input")
    export.add_argument(
        "--orientation",
        choices=("true-noisy", "cleanlab"),
        default="true-noisy",
        help="of the noise matrix: rows of true classes (default), or columns as in cleanlab",
    )
    export.set_defaults(run=_export)

    undo = _add_command(
        commands,
        "undo",
        help="get the input of an export back, byte for byte",
        description="Restore what an export was made from. Nothing that exists is overwritten.",
    )
    undo.add_argument("file", type=Path, metavar="FILE", help="the .undo.zip beside the output of an export")
    undo.add_argument("--output", type=Path, metavar="PATH", help="where to restore it (default: where it was)")
    undo.set_defaults(run=_undo)

    noise = _add_command(
        commands,
        "noise",
        help="corrupt labels and write them to a file with a checksum",
        description="Corrupt the labels of DATA, a table or the name of a data set, and write them to a file that "
        "`labelloop fit --noisy-labels` and grids start from.",
    )
    noise.add_argument("data", metavar="DATA", help="a table, or a data set such as cifar10")
    noise.add_argument("--output", type=Path, required=True, metavar="FILE", help="a .parquet file")
    noise.add_argument("--noise", required=True, help="symmetric, pair, instance, asymmetric-cifar10, ...")
    noise.add_argument("--rate", type=float, default=0.4, help="nominal rate (default 0.4)")
    noise.add_argument("--seed", type=int, default=0, help="same seed, same labels (default 0)")
    noise.add_argument("--clean", type=int, default=0, metavar="N", help="keep the label of N rows as clean label")
    noise.add_argument("--paired", action="store_true", help="give the clean rows a noisy label too")
    noise.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the noise")
    noise.add_argument("--overwrite", action="store_true", help="replace FILE")
    _add_columns(noise)
    noise.set_defaults(run=_noise)

    bench = _add_command(
        commands,
        "bench",
        help="run a grid of experiments and print its table",
        description="Run what is missing of the experiments of GRID, a TOML file, in parallel, and print the table.",
    )
    bench.add_argument("grid", type=Path, metavar="GRID")
    bench.add_argument("--output-dir", type=Path, metavar="FOLDER", help="holds every record (default: runs/GRID)")
    bench.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1), help="processes (default: all cores)")
    bench.add_argument(
        "--workers", type=_processes, default=0, help="processes a run that decode image files (default 0)"
    )
    bench.add_argument("--dry-run", action="store_true", help="only check the grid and say what would be run")
    bench.set_defaults(run=_bench)

    paper = _add_command(
        commands,
        "paper",
        help="the tables and figures of the paper, from stored runs or run anew",
        description="Without a name: every table and figure of the paper, what is stored of it, and its commands.",
    )
    paper.add_argument(
        "name", nargs="?", default="", metavar="NAME", help="table1 to table9, figure1 to figure7, weights"
    )
    paper.add_argument("--scale", choices=("small", "full"), default="small", help="full is the paper's own (GPU)")
    how = paper.add_mutually_exclusive_group()
    how.add_argument("--rerun", action="store_true", help="run it anew and compare with what is stored")
    how.add_argument("--dry-run", action="store_true", help="only say what would be run, with all settings")
    paper.add_argument("--figure", type=Path, metavar="FILE", help="draw it to FILE.png and FILE.svg")
    paper.add_argument("--output-dir", type=Path, metavar="FOLDER", help="of runs made anew (default: runs/paper)")
    paper.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1), help="processes (default: all cores)")
    paper.add_argument(
        "--workers", type=_processes, default=0, help="processes a run that decode image files (default 0)"
    )
    paper.add_argument("--without-gpu", action="store_true", help="run the full scale on a CPU, for months")
    paper.set_defaults(run=_paper)

    demo = _add_command(
        commands,
        "demo",
        help="see it work on real data, in less than a minute",
        description="Corrupt the labels of scikit-learn's digits, train, and compare. Needs no download.",
    )
    demo.add_argument("--output-dir", type=Path, default=Path("labelloop-demo"), metavar="FOLDER")
    demo.add_argument("--seeds", type=int, default=3, metavar="N", help="how many seeds (default 3)")
    demo.set_defaults(run=_demo)
    return parser


def _add_command(commands: Any, name: str, **texts: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, allow_abbrev=False, **texts)  # a flag cut short is a flag mistyped


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the folder of a finished fit or correct")


def _add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--label-column", metavar="NAME", help="the given label (guessed: label, target, y)")
    parser.add_argument("--id-column", metavar="NAME", help="a name for every row (guessed: id)")
    parser.add_argument(
        "--feature-columns", metavar="A,B", type=_names, help="default: every column of numbers or categories"
    )
    parser.add_argument(
        "--embedding-column", metavar="NAME", help="a column of lists of numbers, or an array of an .npz"
    )


def _add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--text", metavar="NAME", help="a column of texts, embedded by --embed, as the features")
    parser.add_argument(
        "--embed", metavar="MODULE:FACTORY", help="FACTORY() returns a function from a list of texts to an array [N, D]"
    )


def _text(options: argparse.Namespace) -> dict[str, Any]:
    return {"text_column": options.text, "embedder": options.embed}


def _shared_columns(options: argparse.Namespace) -> dict[str, Any]:
    """What `_add_columns` asked for, as `read_table` takes it."""
    names = ("label_column", "id_column", "feature_columns", "embedding_column")
    return {name: getattr(options, name) for name in names}


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _processes(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes; give 0 or more")
    return int(text)


def _fit(options: argparse.Namespace) -> int:
    from labelloop.workflows.files import fit_file

    summary = fit_file(
        options.data,
        output_dir=options.output_dir,
        columns=_shared_columns(options)
        | _text(options)
        | {
            "clean_column": options.clean_column,
            "split_column": options.split_column,
            "extra_columns": options.extra_columns,
            "labels_path": options.labels,
            "clean_labels_path": options.clean_labels,
            "file_name_column": options.file_name_column,
            "image_size": options.image_size,
            "clean_folder": options.clean_folder,
        },
        clean_file=options.clean_file,
        max_unreadable=options.max_unreadable,
        workers=options.workers,
        noisy_labels=options.noisy_labels,
        test=options.test,
        config_file=options.config,
        overrides=options.set,
        recipe=options.recipe,
        method=options.method,
        seed=options.seed,
        device=options.device,
        allow_overlap=options.allow_overlap,
        resume=options.resume,
        overwrite=options.overwrite,
        progress=False if options.quiet else None,
    )
    if not options.quiet:
        print(summary)
    return 0


def _predict(options: argparse.Namespace) -> int:
    from labelloop.workflows.files import predict_file

    text = predict_file(
        options.model,
        options.data,
        output=options.output,
        overwrite=options.overwrite,
        columns=_shared_columns(options) | _text(options) | {"file_name_column": options.file_name_column},
        workers=options.workers,
    )
    print(text, end="")
    return 0


def _correct(options: argparse.Namespace) -> int:
    from labelloop.workflows.correct_file import correct_file

    summary = correct_file(
        options.data,
        output=options.output,
        output_dir=options.output_dir,
        label_column=options.label_column,
        clean_column=options.clean_column,
        id_column=options.id_column,
        pred_probs_columns=options.pred_probs_column,
        embedding_column=options.embedding_column,
        feature_columns=options.feature_columns,
        **_text(options),
        class_names=options.class_names,
        seed=options.seed,
        overwrite=options.overwrite,
        progress=False if options.quiet else None,
        clean_file=options.clean_file,
    )
    if not options.quiet:
        print(summary)
    return 0


def _export(options: argparse.Namespace) -> int:
    from labelloop.export.export import export

    text = export(
        options.run_folder,
        options.to,
        output=options.output,
        min_confidence=options.min_confidence,
        action=options.action,
        replace=options.replace,
        copy=options.copy,
        orientation=options.orientation,
        keep_undo=not options.no_undo,
    )
    print(text)
    return 0


def _undo(options: argparse.Namespace) -> int:
    from labelloop.export.undo import undo

    print(undo(options.file, options.output))
    return 0


def _plan(options: argparse.Namespace) -> int:
    from labelloop.workflows.plan import plan_run

    text, curve = plan_run(options.run_folder, options.output, options.count)
    print(text)
    if curve and find_spec("matplotlib"):
        from labelloop.report.learning_curve import draw_learning_curve

        output = options.output or options.run_folder / "verify.csv"
        print("drawn:", *draw_learning_curve(curve, output.with_suffix(".curve")))
    return 0


def _refit(options: argparse.Namespace) -> int:
    from labelloop.workflows.refit import refit_run

    print(refit_run(options.run_folder, options.verified, options.output_dir, overwrite=options.overwrite))
    return 0


def _report(options: argparse.Namespace) -> int:
    from labelloop.report.reliability import draw_reliability

    print("drawn:", *draw_reliability(options.run_folder))
    return 0


def _noise(options: argparse.Namespace) -> int:
    from labelloop.config.build import parse_overrides
    from labelloop.workflows.noise import make_noise_file

    text = make_noise_file(
        options.data,
        options.output,
        noise=options.noise,
        rate=options.rate,
        seed=options.seed,
        clean=options.clean,
        paired=options.paired,
        options=parse_overrides(options.set),
        columns=_shared_columns(options),
        overwrite=options.overwrite,
    )
    print(text, end="")
    return 0


def _bench(options: argparse.Namespace) -> int:
    from labelloop.bench.check import check_experiments
    from labelloop.bench.grid import read_grid
    from labelloop.bench.pool import bench_report, run_bench

    experiments = read_grid(options.grid)
    folder = options.output_dir or Path("runs") / options.grid.stem
    if options.dry_run:
        check_experiments(experiments)
        print("\n".join(f"{e.key}  {e.title}  seed {e.seed}" for e in experiments))
        return 0
    outcome = run_bench(experiments, folder, options.jobs, workers=options.workers)
    print(bench_report(outcome))
    return 1 if outcome.failures else 0


def _paper(options: argparse.Namespace) -> int:
    from labelloop.paper import items as paper

    folder = options.output_dir or Path("runs") / "paper"
    if not options.name:
        if options.rerun or options.dry_run or options.figure:
            raise UsageError("--rerun, --dry-run and --figure are about one table or figure; name it, such as table1")
        print(paper.list_items(paper.stored_runs(folder)))
        return 0
    item = paper.find_item(options.name)
    if options.dry_run:
        print(paper.dry_run(item, options.scale))
        return 0
    if options.rerun:
        paper.need_runs(item, options.scale)
    if options.figure:  # before anything runs
        from labelloop.paper.figures import need_picture
        from labelloop.report.figure import figure_place

        need_picture(item.shows, item.place)
        paper.need_panels(item, options.scale)
        options.figure = figure_place(options.figure)
    full = options.scale == "full"
    if options.rerun or (full and paper.has_runs(item, "full")):
        if full and not options.without_gpu and not paper.has_gpu():
            raise UsageError(
                "the full scale needs a GPU and there is none here: --dry-run says what would run, --scale small "
                "shows the reduced protocol, --without-gpu runs it on the CPU all the same"
            )
        runs, agreement = paper.rerun(item, options.scale, folder, 1 if full else options.jobs, options.workers)
    else:
        runs, agreement = paper.stored_runs(folder), ""
    print(paper.show(item, options.scale, runs))
    if agreement:
        print(f"\n{agreement}")
    if options.figure:
        from labelloop.paper.figures import draw

        print(
            "\n".join(
                f"wrote {path}" for path in draw(item.shows, paper.panels(item, options.scale, runs), options.figure)
            )
        )
    return int(bool(agreement) and not paper.is_complete(item, options.scale, runs))


def _demo(options: argparse.Namespace) -> int:
    from labelloop.workflows.demo import run_demo

    print(run_demo(options.output_dir, options.seeds))
    return 0
