"""The run folder: what a run leaves behind. Every file is written whole or not at all.

run.json · metrics.jsonl · labels.parquet · targets.npy · features.npz · model.safetensors + model.json · checkpoint/
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelloop.errors import DataError
from labelloop.types import Floats

SCHEMA_VERSION = 1
FEATURES = "features.npz"  # what the correction saw of every row, so that it can be re-fitted without training
OUR_FILES = ("run.json", "metrics.jsonl", "labels.parquet", "targets.npy", FEATURES, "model.safetensors", "model.json")

UNREADABLE = "unreadable.csv"  # also written where a run stops before it begins, so it does not make a folder one


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path`, then moves it there in one step."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write(partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


class RunFolder:
    """One folder, one run.

    Args:
        path: Made if it does not exist.
        resume: Whether to continue the run that is in it.
        overwrite: Whether to delete the run that is in it. Files that are not a run's are never touched.
    """

    def __init__(self, path: str | Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint"
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file; give a folder for the run")
        holds_run = (self.path / "run.json").exists()
        if resume and not holds_run:
            raise DataError(f"{self.path} holds no run to resume; leave out --resume to start one")
        if holds_run and overwrite:
            self.clear()
        elif holds_run and not resume:
            raise DataError(
                f"{self.path} already holds a run; continue it with --resume, replace it with --overwrite, "
                "or give another folder"
            )
        elif self.path.is_dir() and not holds_run:
            foreign = [name for name in OUR_FILES if (self.path / name).exists()]
            if foreign:
                raise DataError(f"{self.path} has a {foreign[0]} that no run wrote; give another folder")
        self.path.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Deletes the run, and nothing that is not a run's."""
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        (self.path / UNREADABLE).unlink(missing_ok=True)
        for name in reversed(OUR_FILES):  # run.json last: a folder that has one is still ours
            (self.path / name).unlink(missing_ok=True)

    # --- run.json: what was run, and how it ended -------------------------------------------------------------------

    def write_run(self, run: dict[str, Any]) -> None:
        self._write_json("run.json", {"schema_version": SCHEMA_VERSION, **run})

    def read_run(self) -> dict[str, Any]:
        return read_json(self.path / "run.json")

    # --- metrics.jsonl: a row an epoch -------------------------------------------------------------------------------

    def append_metrics(self, row: dict[str, Any]) -> None:
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.path)

    def keep_metrics(self, epochs: int) -> list[dict[str, Any]]:
        """Drops the rows that were written after the checkpoint that a run is resumed from."""
        rows = [row for row in self.read_metrics() if row["epoch"] <= epochs]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(self.path / "metrics.jsonl", lambda p: p.write_text(text, encoding="utf-8"))
        return rows

    # --- results -----------------------------------------------------------------------------------------------------

    def write_labels(self, table: pa.Table) -> None:
        write_atomically(self.path / "labels.parquet", lambda p: pq.write_table(table, p))

    def write_targets(self, targets: Floats) -> None:
        def write(path: Path) -> None:
            with path.open("wb") as file:  # np.save would add .npy to the name
                np.save(file, targets, allow_pickle=False)

        write_atomically(self.path / "targets.npy", write)

    def write_features(self, arrays: Mapping[str, NDArray]) -> None:
        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.savez(file, **dict(arrays))  # type: ignore[arg-type]

        write_atomically(self.path / FEATURES, write)

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=1) + "\n"
        write_atomically(self.path / name, lambda p: p.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing; is {path.parent} the folder of a finished run?") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged ({error}); restore it or start the run again in another folder") from None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl. A last line that a crash cut short is left out; its epoch will be run again."""
    file = path / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return list(_whole_rows(lines, file))


def _whole_rows(lines: list[str], file: Path) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            if number < len(lines):
                raise DataError(f"{file}, line {number} is damaged; delete the line and try again") from None
