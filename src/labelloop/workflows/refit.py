"""A finished run whose labels can be corrected again, without training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labelloop.config.build import build_config
from labelloop.data.readers.clean_file import KnownRows, read_clean_labels
from labelloop.errors import DataError, UsageError, some
from labelloop.progress import clock
from labelloop.relabel import Corrected, correct_scores
from labelloop.relabel.calibration import Inputs
from labelloop.relabel.estimate import (
    MIN_CLEAN,
    Correct,
    cross_fitted,
    estimate,
    estimate_lines,
    inputs_alone,
    no_estimate,
)
from labelloop.runs.folder import RunFolder
from labelloop.runs.labels import label_table, likeliest
from labelloop.runs.read import Run, read_run
from labelloop.runs.result_files import RowArrays, copy_model
from labelloop.runs.reviews import random_reviewed, reviewed_labels
from labelloop.runs.run_json import data_record, versions
from labelloop.seeds import stream
from labelloop.splits import one_hot
from labelloop.types import MISSING, Extracted, Floats, Labels
from labelloop.workflows.ending import leave_preview_of, leave_report
from labelloop.workflows.summary import next_steps

CORRECTING = ("labelloop", "closed-loop", "correct")  # methods whose runs keep what their correction saw

LAST_EPOCH = (
    "measured on a network that was trained on labels which the clean rows had helped to correct, so the estimate may "
    "be somewhat too high"
)
AS_IT_WAS = "these labels are for the rows as they were then; run `labelloop fit` or `correct` on the new file"
CHOSEN = (
    "rows picked for verification improve the correction but not the estimate: they are not a random sample, and the"
    " others may be better than this says"
)


@dataclass(frozen=True)
class StoredRun(RowArrays):
    """A finished run of `fit` or `correct`, and what is known about every row of it.

    Attributes:
        run: The run.
        on: `on(rows)` returns a function that corrects those rows from clean labels, in the form `cross_fitted` takes.
    """

    run: Run
    on: Callable[[Labels], Correct]

    @property
    def targets(self) -> Floats:
        """Its corrected soft labels [n, C]; NaN where a row has none."""
        return self.run.targets

    @property
    def seed(self) -> int:
        """The seed of its random streams."""
        return self.run.record.seed

    @property
    def relabels(self) -> bool:
        """Whether relabelling made its labels: in `correct`, or in a `fit` of labelloop."""
        return "scores" in self.inputs

    @property
    def known(self) -> Labels:
        """The rows that have corrected labels: all but test rows."""
        return np.flatnonzero(~np.isnan(self.targets).any(axis=1))

    def corrected(self, rows: Labels, clean: Labels) -> Corrected:
        """Relabels some rows from the arrays that the run stored.

        The arrays hold "scores", and "inputs" (or "table_inputs" for columns of a table) where they were stored.

        Args:
            rows: Which rows.
            clean: Clean labels of these rows [m], -1 where missing.
        """
        stored = self.inputs.get("table_inputs", self.inputs.get("inputs"))
        inputs = None if stored is None else Inputs(stored[rows], "table_inputs" in self.inputs)
        scores = self.inputs["scores"][rows].astype(np.float64)
        return correct_scores(scores, self.given[rows], clean, self.targets.shape[1], self.seed, inputs=inputs)


def read_stored_run(folder: Path) -> StoredRun:
    """Reads the folder of a finished run that corrected labels."""
    run = read_run(folder)
    if run.record.method not in CORRECTING:
        raise UsageError(
            f"{folder} is a run of {run.record.method!r}, which has no correction to refit; use one of labelloop,"
            " closed-loop or `labelloop correct`"
        )
    arrays = run.row_arrays()
    if "scores" not in arrays.inputs:
        return StoredRun(**vars(arrays), run=run, on=_of_the_paper(run, arrays))
    stored = StoredRun(**vars(arrays), run=run, on=lambda rows: lambda clean: stored.corrected(rows, clean).targets)
    return stored


def _of_the_paper(run: Run, arrays: RowArrays) -> Callable[[Labels], Correct]:
    """Corrects rows with a new correction network, as the paper's loop does. Only this needs torch."""
    from labelloop.methods.closed_loop import Config
    from labelloop.methods.closed_loop.one_correction import NetworkOutputs, single_round

    config, stored = build_config(Config, run.record.config), arrays.inputs
    lacking = [name for name in ("features", "logits", "noisy_posterior") if name not in stored]
    if lacking:
        raise DataError(f"{run.path} stores no {lacking[0]} of its rows; run it again in another folder")
    outputs = Extracted(*(stored[name].astype(np.float32) for name in ("features", "logits", "noisy_posterior")))
    extra = stored["extra"].astype(np.float32) if "extra" in stored else None
    every = NetworkOutputs(arrays.given, outputs, extra)
    return lambda rows: partial(single_round, every.rows(rows), config=config, seed=run.record.seed)


def decided_labels(folder: Path, classes: Sequence[Any], rows: int) -> Labels:
    """The labels on which the reviewers of a run agreed, as numbers [n], -1 elsewhere.

    Args:
        folder: The run folder.
        classes: Its classes.
        rows: How many rows it has.

    Raises:
        DataError: There are no decisions.
    """
    decided = reviewed_labels(folder)
    if not decided:
        raise DataError(
            f"there are no review decisions in {folder}: run `labelloop review {folder}`, or give a clean file"
        )
    place = {str(name): k for k, name in enumerate(classes)}
    labels = np.full(rows, MISSING)
    for row, name in decided.items():
        if not 0 <= row < rows or name not in place:
            raise DataError(f"{folder}: a review decision is about row {row} and class {name!r:.80}, not of this run")
        labels[row] = place[name]
    return labels


def refit_run(
    folder: Path,
    clean_file: Path | None,
    output_dir: Path,
    *,
    random_sample: bool = False,
    overwrite: bool = False,
    report: bool = True,
) -> str:
    """Corrects the labels of a run again with new clean rows; returns a summary as text.

    Args:
        folder: A finished run of `fit` or `correct`.
        clean_file: Clean labels, as `read_clean_labels` takes them. None uses the decisions of `labelloop review`.
        output_dir: The folder of the new run.
        random_sample: Whether the new clean rows were drawn at random (`plan --max-error`), so that they may judge.
        overwrite: Whether to replace the run in it.
        report: Whether to write report.html into it.
    """
    stored = read_stored_run(folder)
    again = _with_new_labels(stored, folder, clean_file, random_sample)
    clean, new = again.clean, int(((again.clean != MISSING) & (stored.clean == MISSING)).sum())
    with clock("correcting labels"):
        targets, posterior, found = corrected(again)
    guard, before = None if found is None else found.guard, stored.run.record
    judged, used = _judged(again, posterior, found), np.asarray(~np.isnan(targets).any(axis=1), bool)
    about = {key: value for key, value in before.about.items() if key != "guard"}  # its decision was on other labels
    about |= {"refitted_from": str(folder), "newly_verified": new} | ({"guard": guard} if guard else {})
    counts = data_record(before.data["source"], before.data["classes"], again.given, clean, used)
    record = replace(
        before,
        kind="refit",
        data={**counts, "sha256": before.data["sha256"], "test": before.data["test"]},
        versions=versions(),
        rounds=(),
        estimate=judged,
        about=about,
    )
    destination = RunFolder(output_dir, overwrite=overwrite, replaces="refit")
    with destination.recording(record):
        destination.write_targets(targets)
        destination.write_labels(_new_labels(stored, clean, targets))
        destination.write_row_arrays(again if found is None else _with_judged(again, found))
        copy_model(folder, output_dir)
        leave_preview_of(output_dir, folder)
        destination.write_record(record)
    leave_report(output_dir, report)
    path = stored.run.changed_input()
    moved = int((likeliest(targets) != likeliest(stored.targets)).sum())
    return "\n".join(
        [
            *([f"{path} has changed since {stored.run.path} read it; {AS_IT_WAS}"] if path else []),
            f"{new} new clean rows, {(clean != MISSING).sum()} clean rows in all",
            f"{moved} corrected labels have changed",
            *([guard["line"]] if guard else []),
            *estimate_lines(judged),
            f"everything is in {output_dir} (the corrected labels: labels.parquet)",
            next_steps(output_dir, record.source),
        ]
    )


def _with_new_labels(stored: StoredRun, folder: Path, clean_file: Path | None, random_sample: bool) -> StoredRun:
    """The same run with more clean labels. Of the new rows, those drawn by chance judge; the others as they did."""
    if clean_file is None:
        labels, random = decided_labels(folder, stored.run.classes, len(stored.clean)), list(random_reviewed(folder))
    else:
        labels, random = new_clean_labels(stored, clean_file), []
    clean, new = np.where(labels != MISSING, labels, stored.clean), (labels != MISSING) & (stored.clean == MISSING)
    by_chance = np.isin(np.arange(len(labels)), random) | random_sample
    return replace(stored, clean=clean, validation=stored.validation | (new & by_chance))


def _new_labels(stored: StoredRun, clean: Labels, targets: Floats) -> pa.Table:
    """labels.parquet with other clean and soft labels."""
    place: dict[Any, int] = {name: k for k, name in enumerate(stored.run.classes)}
    predicted = np.array([place.get(name, MISSING) for name in stored.run.labels["predicted_label"].to_pylist()])
    ids = np.array(stored.run.labels["id"].to_pylist())
    return label_table(ids, stored.run.classes, stored.given, clean, targets, predicted)


def _with_judged(stored: StoredRun, found: Corrected) -> RowArrays:
    """What the run keeps of its rows, with what a certificate of the new labels is made from."""
    judged = np.zeros((len(stored.given), found.judged.shape[1]), np.float32)
    judged[stored.known] = found.judged
    return replace(stored, inputs={**stored.inputs, "judged": judged})


def corrected(stored: StoredRun) -> tuple[Floats, Floats, Corrected | None]:
    """Soft labels learnt from all clean rows, and cross-fitted ones of the clean rows.

    Returns:
        Soft labels of all rows [n, C], NaN where a row had none; cross-fitted ones of the clean rows [n, C], NaN
        elsewhere or if there are too few; and what relabelling returned for the rows that have soft labels, if it did.
    """
    known = stored.known
    targets, oof = np.full_like(stored.targets, np.nan), np.full_like(stored.targets, np.nan)
    clean, verified = stored.clean[known], np.flatnonzero(stored.clean != MISSING)
    found = None
    if stored.relabels:  # cross-fitted as in `fit` and `correct`, with the noisy rows that it learns from
        found = stored.corrected(known, clean)
        targets[known], oof[known] = found.targets, found.cross_fitted
    else:
        targets[known] = stored.on(known)(clean)
        if len(verified) >= MIN_CLEAN:
            rng = stream(stored.seed, "estimate")
            oof[verified] = cross_fitted(stored.on(verified), stored.clean[verified], stored.given[verified], rng)
    targets[verified] = one_hot(stored.clean[verified], targets.shape[1])
    return targets, oof, found


def has_row_numbers(stored: StoredRun) -> bool:
    """Whether the ids of a run are the numbers of its rows, because its source had none."""
    source, ids = stored.run.record.source or {}, stored.run.labels["id"].to_pylist()
    return not source.get("id_column") and ids == [str(row) for row in range(len(ids))]


def new_clean_labels(stored: StoredRun, path: Path) -> Labels:
    """The labels of a clean file as numbers [n], -1 for rows it does not have."""
    ids, source = np.array(stored.run.labels["id"].to_pylist()), stored.run.record.source or {}
    columns = tuple(name for name in (source.get("id_column"), source.get("file_name_column")) if name)
    classes = np.array(stored.run.classes)
    known = KnownRows(str(stored.run.path), ids, not has_row_numbers(stored), stored.given, classes, columns)
    labels = read_clean_labels(path, known)
    tested = np.flatnonzero((labels != MISSING) & np.isnan(stored.targets).any(axis=1))
    if len(tested):
        raise DataError(
            f"{path}: {some(tested)} are test rows of {stored.run.path}, which must not be trained on; leave them out"
        )
    return labels


def _judged(stored: StoredRun, posterior: Floats, found: Corrected | None) -> dict[str, Any]:
    validation = stored.validation
    if validation.sum() < MIN_CLEAN:
        return no_estimate(
            f"there are fewer than {MIN_CLEAN} clean rows besides those that were picked because they were uncertain"
        )
    notes = [CHOSEN] if (validation != (stored.clean != MISSING)).any() else []
    notes += [] if stored.relabels else [LAST_EPOCH]
    if found is None:
        return estimate(posterior[validation], stored.given[validation], stored.clean[validation], notes)
    rows, given, clean = stored.known, stored.given[stored.known], stored.clean[stored.known]
    judges = found.counted(np.flatnonzero(validation[rows]))
    alone = inputs_alone(found, given, clean, judges)
    notes += found.notes
    expected, of_judges = found.expected_right[judges], found.cross_fitted[judges]
    return estimate(of_judges, given[judges], clean[judges], notes, expected, alone)
