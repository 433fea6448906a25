"""`labelloop export`: checks everything, then writes the output, the list of changes and the undo file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError, check_output, nearest, some
from labelloop.export import other_formats, table_files
from labelloop.export.decision import Decision, decide, marked, only_certified, with_reviews, write_changes
from labelloop.export.model_card import write_model
from labelloop.export.other_formats import on_hub, write_dataset, write_tree
from labelloop.export.text_edits import safely
from labelloop.export.undo import write_dataset_undo, write_file_undo, write_hub_undo, write_tree_undo
from labelloop.runs.files import sha256_of, write_atomically
from labelloop.runs.folder import RUN
from labelloop.runs.read import Run, read_run
from labelloop.runs.reviews import REVIEWS
from labelloop.trust import all_inside, files_of, listing_of

OF_THE_RUN = ("issues", "noise-matrix", "model")  # formats that do not need the input
OF_THE_DATA = (*table_files.FORMATS, "imagefolder", "hf")
FORMATS = (*OF_THE_DATA, *OF_THE_RUN)
TABLES = ("csv", "tsv", "jsonl", "json", "parquet", "image-table")
FITTING = {  # the formats that each kind of input can become
    **dict.fromkeys(table_files.FORMATS, (*TABLES, "image-folder")),
    "imagefolder": ("image-folder", "image-table"),
    "hf": ("hf-dataset",),
}


def export(
    run_folder: Path,
    to: str,
    *,
    output: Path | None = None,
    min_confidence: float = 0.0,
    action: str = "relabel",
    replace: bool = False,
    copy: bool = False,
    orientation: str = "true-noisy",
    keep_undo: bool = True,
    source: Path | None = None,
    safe_cells: bool = False,
    certified: tuple[NDArray[np.bool_], str] | None = None,
) -> str:
    """Writes the results of a run in another format, and returns a summary as text.

    Args:
        run_folder: The folder of a finished run.
        to: A name in FORMATS.
        output: The file or folder to write, which must not exist. By default it is named after the input, in the
            current folder.
        min_confidence: The least confidence of a correction to apply.
        action: What to do with rows whose correction applies: "relabel", "drop" or "keep".
        replace: Put the corrected label into the label column instead of adding columns.
        copy: Copy images instead of linking to them.
        orientation: The orientation of the noise matrix: "true-noisy" or "cleanlab".
        keep_undo: Whether to write the undo file, which holds a compressed copy of a table or a data set.
        source: Where the input is now; by default where the run read it.
        safe_cells: Put an apostrophe before cells of CSV and TSV files that a spreadsheet would take for a formula.
        certified: The rows whose label is certified [n], and what happens to the rest: "review" and "drop" leave it
            out, "keep-given" keeps its given labels.
    """
    if to not in FORMATS:
        raise UsageError(f"no format {to!r}; {nearest(to, FORMATS)}")
    run, reviewed = with_reviews(read_run(run_folder))
    if to not in OF_THE_RUN:
        rows = len(run.labels) - run.source["options"].get("added_rows", 0)  # without images added from a clean folder
        run = Run(run.path, run.record, run.labels.slice(0, rows), run.targets[:rows])
    decision = decide(run.labels, action, min_confidence)
    named: tuple[Any, ...] = (to, min_confidence, action, replace, copy, orientation, keep_undo, safe_cells)
    if certified is not None:
        if to in OF_THE_RUN:
            raise UsageError(f"--max-error chooses labels of the data, and {to!r} has none; {nearest(to, OF_THE_DATA)}")
        decision = only_certified(decision, certified[0][: len(run.labels)], certified[1])
        named = (*named, sha256(certified[0].tobytes()).hexdigest(), certified[1])
    decided = "" if reviewed is None else f" {sha256_of(run.path / REVIEWS)}"
    what = f"{sha256_of(run.path / RUN)} {named}{decided}"
    if to in OF_THE_RUN:
        said = _export_run(run, to, output, orientation, what, safe_cells)
        return said if reviewed is None or to == "model" else f"{said}\n{reviewed}"
    source = _checked_source(run, to, source)
    stem = (source.with_suffix("") if source.suffix.lower() in table_files.PACKED else source).stem
    output = output or Path(f"{stem}-corrected{'' if to in ('imagefolder', 'hf') else f'.{to}'}")
    if to in table_files.FORMATS and output.suffix != f".{to}":
        raise UsageError(f"{output} does not end in .{to}; rename it, or choose another --to")
    if source.is_dir() and output.resolve().is_relative_to(source.resolve()):
        raise UsageError(
            f"{output} is inside {source}, the input, which must not change; give another path with --output"
        )
    changes, undo_file = (output.with_name(f"{output.name}.{ending}") for ending in ("changes.csv", "undo.zip"))
    with marked(output, (changes, undo_file), what) as done:
        write_data, write_undo = _writers(
            run, to, source, decision, output, replace=replace, copy=copy, safe_cells=safe_cells
        )
        column = run.source["label_column"] if replace else table_files.ADDED[0]
        column = "folder" if run.source["kind"] == "image-folder" else column
        write: Callable[[Path], object] = partial(write_changes, run, decision, column)
        write = safely(write, ",") if safe_cells else write
        steps: list[tuple[Path, Callable[[], object]]] = [
            (changes, lambda: write_atomically(changes, write)),
            (output, write_data),  # last, so that an output always has its list of changes and its undo file
        ]
        if keep_undo and write_undo is not None:
            steps.insert(0, (undo_file, lambda: write_atomically(undo_file, write_undo)))
        if not done:
            _all_or_none(steps)
    summary = _summary(decision, output, [path for path, _ in steps if path != output])
    summary += "" if reviewed is None else f"\n{reviewed}"
    return summary + ("\nno undo file: no image was moved or changed" if write_undo is None else "")


def _all_or_none(steps: list[tuple[Path, Callable[[], object]]]) -> None:
    """Writes one file after the other; if one fails, the earlier ones are deleted."""
    begun: list[Path] = []
    try:
        for path, write in steps:
            begun.append(path)
            write()
    except BaseException:
        for path in begun:  # made by this export: nothing had these names before
            if not path.is_dir():
                path.unlink(missing_ok=True)
        raise


def _export_run(run: Run, to: str, output: Path | None, orientation: str, what: str, safe_cells: bool) -> str:
    """The exports that need only the run: label issues, noise matrix and model."""
    output = output or Path(f"{run.path.name}-{to}{'' if to == 'model' else '.csv'}")
    write: Callable[[Path], object] = partial(other_formats.write_noise_matrix, run, orientation)
    if to == "issues":
        check_output(output, ".csv", ".parquet", overwrite=True)  # `marked` refuses what exists
        write = partial(other_formats.write_issues, run, output.suffix)
    with marked(output, (), what) as done:
        if to == "model" and not done:
            write_model(run, output)
        elif not done:
            write_atomically(output, safely(write, ",") if safe_cells and output.suffix == ".csv" else write)
    if to == "model":
        return f"the model of {run.path}, with a model card, is in {output}"
    if to == "issues":
        issues = sum(run.labels["is_label_issue"].to_pylist())
        return f"{issues} label issues in {len(run.labels)} rows, in {output}"
    meaning = "rows: true class, sum to 1" if orientation == "true-noisy" else "columns: true class, sum to 1"
    return f"the noise matrix is in {output} ({meaning})"


def _checked_source(run: Run, to: str, place: Path | None) -> Path:
    """The input of a run, if it has not changed and can be exported in this format."""
    source = run.source
    kind, path = source["kind"], (Path(source["path"]) if place is None else place.absolute())
    if kind not in FITTING[to]:
        possible = [name for name in FORMATS if name in OF_THE_RUN or kind in FITTING[name]]
        raise UsageError(f"{path} is of kind {kind!r} and cannot become {to!r}; possible: {', '.join(possible)}")
    if on_hub(path):
        return path
    if not path.is_file() and not path.is_dir():
        raise DataError(f"{path} does not exist; give the input's present path with --input")
    stored = source["sha256"]
    if stored is not None and (path.is_dir() or sha256_of(path) != stored):
        raise DataError(f"{path} has changed since the run read it; restore it, or run again on the new file")
    if kind == "image-folder":
        names = run.labels["id"].to_pylist()
        read = set(names) - _never_read(run, names)
        if gone := sorted(name for name in read if not (path / name).is_file()):
            raise DataError(
                f"{path}: {len(gone)} images of the run are gone: {some(gone)}; put them back, or run again"
            )
    if stored is None and place is None and not (path.is_dir() and _same_files(run, path)):
        raise DataError(
            f"{run.path} does not prove that it was made from {path}, so nothing of it is copied; if it was, say so"
            f" with --input {path}"
        )
    return path


def _same_files(run: Run, folder: Path) -> bool:
    """Whether a folder holds the files that the run read, by their names and sizes."""
    names = run.labels["id"].to_pylist() if run.source["kind"] == "image-folder" else files_of(folder)
    return run.source.get("listing") == listing_of(folder, names)


def _writers(
    run: Run, to: str, source: Path, decision: Decision, output: Path, *, replace: bool, copy: bool, safe_cells: bool
) -> tuple[Callable[[], object], Callable[[Path], object] | None]:
    """The functions that write the output and its undo file, if there is something to undo."""

    def undo_file(path: Path) -> None:
        write_file_undo(path, source, run.source["sha256"], output, run.path)

    if to in table_files.FORMATS:
        writer = table_files.table_writer(run, source, to, decision, replace)
        if safe_cells and to in table_files.DELIMITERS:
            writer = safely(writer, table_files.delimiter_of(run, source, to))
        return lambda: write_atomically(output, writer), undo_file if source.is_file() else None
    if to == "hf":
        data = other_formats.corrected_dataset(run, source, decision, replace)
        if on_hub(source):
            return lambda: write_dataset(data, output), lambda path: write_hub_undo(path, str(source), output, run.path)
        return lambda: write_dataset(data, output), lambda path: write_dataset_undo(path, source, output, run.path)
    if source.is_file():
        names = table_files.column_of(run, source, run.source["file_name_column"])
        places = other_formats.placed_by_label(names, decision)
        all_inside(source.parent, names, str(source))
        left_out = [name for name in _never_read(run, names) if not (source.parent / name).is_file()]
        places |= dict.fromkeys(_said_to_be_left_out(left_out, source))
        return lambda: write_tree(source.parent, places, output, copy), undo_file
    rows = {name: row for row, name in enumerate(run.labels["id"].to_pylist())}
    files = _without_strange_links(run, source, list(rows)) if copy else files_of(source)
    _said_to_be_left_out(rows.keys() - set(files), source)
    places = other_formats.new_places(files, rows, decision)
    return (
        lambda: write_tree(source, places, output, copy),
        lambda path: write_tree_undo(path, source, places, output, run.path, whole=copy),
    )


def _without_strange_links(run: Run, source: Path, ids: list[str]) -> list[str]:
    """The files of a tree, without links out of it to what the run has not read as an image."""
    root, read, files = os.path.realpath(source), set(ids) - _never_read(run, ids), files_of(source)
    strange = [
        name for name in files if name not in read and not Path(os.path.realpath(source / name)).is_relative_to(root)
    ]
    if strange:
        warnings.warn(f"{source}: {len(strange)} links to other files are not copied: {some(strange)}", stacklevel=4)
    return [name for name in files if name not in set(strange)]


def _never_read(run: Run, names: list[str]) -> set[str]:
    """The images that the run knows nothing about, among them those that it could not read."""
    corrected = run.labels["corrected_label"].to_pylist()
    return {name for name, label in zip(names, corrected, strict=True) if label is None}


def _said_to_be_left_out(names: Collection[str], source: Path) -> list[str]:
    if names:
        warnings.warn(
            f"{source}: {len(names)} images that are missing, and that the run could not read, are left out:"
            f" {some(sorted(names))}",
            stacklevel=4,
        )
    return sorted(names)


def _summary(decision: Decision, output: Path, beside: list[Path]) -> str:
    unlabelled = np.array([label is None for label in decision.given], dtype=bool)
    unverified = decision.relabelled & ~decision.verified
    return "\n".join(
        [
            f"{len(unlabelled)} rows: {int((unverified & ~unlabelled).sum())} labels corrected,"
            f" {int((unverified & unlabelled).sum())} blank ones filled in,"
            f" {int((decision.relabelled & decision.verified).sum())} replaced by their clean label,"
            f" {int(decision.dropped.sum())} rows dropped",
            f"written to {output}; next to it {' and '.join(path.name for path in beside)}",
        ]
    )
