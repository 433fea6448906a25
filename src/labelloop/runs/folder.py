"""The run folder: everything that a run leaves behind. Every file is written atomically.

run.json · metrics.jsonl · labels.parquet · targets.npy · features.npz · model.safetensors + model.json · checkpoint/
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labelloop.errors import DataError
from labelloop.large_arrays import release
from labelloop.runs.files import json_bytes, naming, read_json, sweep, sync_folder, write_atomically
from labelloop.runs.lock import lock, unlock
from labelloop.runs.manifest import MANIFEST, checked, write_manifest
from labelloop.runs.result_files import ENCODER, FEATURES, MODEL_FILES, PREVIEW, RowArrays, write_row_arrays
from labelloop.runs.reviews import REVIEWS
from labelloop.runs.run_json import RunRecord, from_json
from labelloop.runs.schema import EPOCH, check
from labelloop.trust import inside
from labelloop.types import Floats

RUN = "run.json"
LABELS = "labels.parquet"
METRICS = "metrics.jsonl"
TARGETS = "targets.npy"
CHECKPOINT = "checkpoint"
OUR_FILES = (RUN, MANIFEST, METRICS, LABELS, TARGETS, FEATURES, *MODEL_FILES)
RESULTS = (METRICS, LABELS, TARGETS, FEATURES, *MODEL_FILES, ENCODER, PREVIEW)  # and run.json: those in the manifest

PLAN = "verify.csv"  # of `labelloop plan`
REPORT = "report.html"
REPORT_MARK = '<meta name="generator" content="labelloop">'  # tells our report from a file of the user's

UNREADABLE = "unreadable.csv"  # also written if a run stops before it begins, so it does not make a folder a run


class RunFolder:
    """One folder, one run.

    Args:
        path: Created if it does not exist.
        resume: Whether to continue the run in it.
        overwrite: Whether to delete the run in it. Other files are never touched.
        replaces: A kind of run that takes seconds; what is left of a killed one is deleted too.
    """

    def __init__(
        self, path: str | Path, *, resume: bool = False, overwrite: bool = False, replaces: str | None = None
    ) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / CHECKPOINT
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file; give a folder for the run")
        holding = holds_run(self.path)
        overwrite = overwrite or is_left_of(self.path, replaces)
        if resume and not holding:
            raise DataError(f"{self.path} holds no run to resume; leave out --resume to start one")
        if holding and overwrite and (self.path / REVIEWS).exists():
            raise DataError(
                f"{self.path} holds decisions of reviewers, which --overwrite would lose; move its {REVIEWS} away"
            )
        if holding and not resume and not overwrite:
            raise DataError(
                f"{self.path} already holds a run; continue a fit with --resume, replace it with --overwrite, "
                "or give another folder"
            )
        elif self.path.is_dir() and not holding:
            foreign = [name for name in OUR_FILES if (self.path / name).exists()]
            if foreign:
                raise DataError(f"{self.path} has a {foreign[0]} that LabelLoop did not write; give another folder")
        for name in (*OUR_FILES, CHECKPOINT, ENCODER):
            if (self.path / name).is_symlink():
                inside(self.path, name, self.path)  # what we write or delete there is in this folder
        self.path.mkdir(parents=True, exist_ok=True)
        lock(self.path)
        sweep(self.path)
        if holding and overwrite:
            self.clear()
            lock(self.path)

    def clear(self) -> None:
        """Deletes the files of the run, and no others."""
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        shutil.rmtree(self.path / ENCODER, ignore_errors=True)
        (self.path / UNREADABLE).unlink(missing_ok=True)
        plan = self.path / PLAN
        if plan.exists():  # the list of rows to label, which may hold the user's work
            number = next(n for n in range(1, 10_000) if not plan.with_stem(f"{plan.stem}-{n}").exists())
            plan.rename(plan.with_stem(f"{plan.stem}-{number}"))
        for ending in (".json", ".png", ".svg"):
            plan.with_suffix(f".curve{ending}").unlink(missing_ok=True)
        (self.path / PREVIEW).unlink(missing_ok=True)
        if is_report(self.path / REPORT):
            (self.path / REPORT).unlink()
        for name in reversed(OUR_FILES):  # run.json last: a folder that has one is still ours
            (self.path / name).unlink(missing_ok=True)
        unlock(self.path)

    @contextmanager
    def recording(self, record: RunRecord) -> Iterator[None]:
        """Says in run.json that the run goes on; and, if it is interrupted inside, that it was."""
        self.write_record(replace(record, state="running"))
        try:
            yield
        except KeyboardInterrupt:
            with suppress(OSError):
                self.write_record(replace(record, state="interrupted"))
            raise

    # --- run.json: what was run, and how it ended -------------------------------------------------------------------

    def write_record(self, record: RunRecord) -> None:
        content = json_bytes(record.to_json())
        if record.state == "finished":
            write_manifest(self.path, RESULTS, {RUN: content})
        else:  # what is there will change
            (self.path / MANIFEST).unlink(missing_ok=True)
        write_atomically(self.path / RUN, lambda place: place.write_bytes(content))
        if record.state != "running":
            unlock(self.path)

    def read_record(self) -> RunRecord:
        return read_record(self.path)

    # --- metrics.jsonl: one row per epoch -----------------------------------------------------------------------------

    def append_metrics(self, row: dict[str, Any]) -> None:
        path = self.path / METRICS
        with naming(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())  # on disk before the checkpoint that counts on it
        sync_folder(self.path)  # where it may be new

    def read_metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.path)

    def keep_metrics(self, epochs: int) -> list[dict[str, Any]]:
        """Drops the rows written after the checkpoint that the run resumes from."""
        rows = [row for row in self.read_metrics() if row["epoch"] <= epochs]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(self.path / METRICS, lambda p: p.write_text(text, encoding="utf-8"))
        return rows

    # --- results -----------------------------------------------------------------------------------------------------

    def write_labels(self, table: pa.Table) -> None:
        write_atomically(self.path / LABELS, lambda p: pq.write_table(table, p))

    def write_targets(self, targets: Floats) -> None:
        def write(path: Path) -> None:
            with path.open("wb") as file:  # np.save would add .npy to the name
                np.save(file, targets, allow_pickle=False)

        write_atomically(self.path / TARGETS, write)
        release()

    def write_row_arrays(self, arrays: RowArrays) -> None:
        write_row_arrays(self.path, arrays)


def is_report(path: Path) -> bool:
    """Whether a file is one of our reports, which may be replaced."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return REPORT_MARK.encode() in file.read(4096)


def holds_run(path: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (path / RUN).exists()


def check_holds(path: Path, names: Iterable[str] = (RUN,)) -> None:
    """Refuses what is no folder, or holds none of these files."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise DataError(f"{path} {what}; give the folder that `labelloop fit --output-dir` wrote")
    if not any((path / name).exists() for name in names):
        raise DataError(f"{path} is not a run folder: it has no run.json; give the folder of --output-dir")


def is_left_of(path: Path, kind: str | None) -> bool:
    """Whether a folder holds what a killed run of this kind left, and nothing that anybody has worked on since."""
    if kind is None or not holds_run(path) or (path / REVIEWS).exists():
        return False
    try:
        record = read_record(path)
    except DataError:
        return False
    return record.kind == kind and record.state in ("running", "interrupted")


def read_record(path: Path) -> RunRecord:
    """Reads the run.json of a folder.

    Raises:
        DataError: It is missing, damaged, or of a newer version.
    """
    content = read_json(path / RUN)
    if content.get("state") == "finished":
        checked(path, RUN)
    return from_json(content, path / RUN)


def write_unreadable(folder: Path, found: pa.Table) -> Path:
    """Writes unreadable.csv: the images that could not be used, with id, path and reason."""
    write_atomically(folder / UNREADABLE, lambda place: pa_csv.write_csv(found, place))
    return folder / UNREADABLE


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl. A last line cut short by a crash is left out; its epoch runs again."""
    try:
        file = checked(path, METRICS)
        lines = file.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise DataError(f"{path / METRICS} is damaged ({error}); restore it, or run again in another folder") from None
    return list(_whole_rows(lines if lines[-1] else lines[:-1], file))


def _whole_rows(lines: list[str], file: Path) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and "epoch" in row:
            check(row, EPOCH, f"{file}, line {number}")
            yield row
        elif number < len(lines):
            raise DataError(f"{file}, line {number} is damaged; delete the line and try again")
