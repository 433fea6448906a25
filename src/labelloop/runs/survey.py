"""Reads as much of a run folder as possible: finished, still running, failed, half-written or of an older version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelloop.errors import DataError
from labelloop.runs.files import read_json, read_parquet
from labelloop.runs.folder import METRICS, OUR_FILES, check_holds, read_metrics
from labelloop.runs.labels import as_now
from labelloop.runs.manifest import MANIFEST, checked
from labelloop.runs.result_files import PREVIEW, Preview, read_preview
from labelloop.runs.run_json import from_json
from labelloop.runs.schema import check_labels
from labelloop.trust import load_array
from labelloop.types import MISSING, Floats, Labels

T = TypeVar("T")
COLUMNS = ("id", "given_label", "corrected_label", "corrected_confidence", "verified", "label_score")

UNFINISHED = {
    "running": "the run is still running, or was killed: its labels come at the end; continue a killed run with"
    " `labelloop fit --resume`",
    "failed": "the run failed: {}",
    "interrupted": "the run was interrupted; continue it with `labelloop fit --resume`",
}
UNKNOWN = "run.json does not say how the run ended: it is half-written, or an older version wrote it"


@dataclass(frozen=True)
class Survey:
    """What there is of a run, and what is missing.

    Attributes:
        path: The run folder, or None for a run in memory.
        record: The content of run.json; empty if it cannot be read.
        metrics: One record per epoch.
        labels: labels.parquet, or None.
        targets: The corrected soft labels [n, C], or None.
        preview: What some rows look like, or None.
        missing: What is missing and why, in words.
    """

    path: Path | None
    record: dict[str, Any]
    metrics: list[dict[str, Any]]
    labels: pa.Table | None
    targets: Floats | None
    preview: Preview | None = None
    missing: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the run."""
        return "this run" if self.path is None else self.path.resolve().name

    @property
    def classes(self) -> list[str]:
        """The classes as text, in the order of the columns of `targets`."""
        names = (self.record.get("data") or {}).get("classes")
        if names:
            return [str(name) for name in names]
        if self.labels is None:
            return []
        found: set[Any] = set()
        for column in ("given_label", "corrected_label"):
            if column in self.labels.column_names:
                found |= set(self.labels[column].unique().to_pylist())
        return [str(name) for name in sorted(found - {None}, key=str)]

    def codes(self, column: str) -> Labels:
        """A column of labels as class numbers [n], -1 where missing."""
        assert self.labels is not None
        if column not in self.labels.column_names:
            return np.full(len(self.labels), MISSING)
        values = self.labels[column].combine_chunks().dictionary_encode()
        place = {name: k for k, name in enumerate(self.classes)}
        known = np.array([place.get(str(name), MISSING) for name in values.dictionary.to_pylist()] or [MISSING])
        index = values.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.where(index < 0, MISSING, known[index])

    def numbers(self, column: str) -> NDArray[np.float64]:
        """A column of numbers [n], NaN where missing."""
        assert self.labels is not None
        if column not in self.labels.column_names:
            return np.full(len(self.labels), np.nan)
        return self.labels[column].to_numpy().astype(np.float64)

    def flags(self, column: str) -> NDArray[np.bool_]:
        """A column of booleans [n], False where missing."""
        assert self.labels is not None
        if column not in self.labels.column_names:
            return np.zeros(len(self.labels), bool)
        return self.labels[column].fill_null(False).to_numpy().astype(bool)


def survey(folder: Path) -> Survey:
    """Reads as much of a run folder as possible.

    Raises:
        DataError: It is not a run folder.
    """
    check_holds(folder, OUR_FILES)
    missing: list[str] = []
    record = _record(folder, missing)
    labels = _labels(folder, missing)
    targets = _targets(folder, labels, missing)
    metrics = _read(lambda: read_metrics(folder), METRICS, "the epochs are unknown", missing) or []
    preview, lost = None, "rows are shown without their texts, values or images"
    if (folder / PREVIEW).exists() or (folder / "labels.parquet").exists():
        preview = _read(lambda: read_preview(folder), PREVIEW, lost, missing)
    return Survey(folder, record, metrics, labels, targets, preview, tuple(missing))


def _record(folder: Path, missing: list[str]) -> dict[str, Any]:
    try:
        if not (folder / "run.json").exists():
            missing.append("run.json is missing: settings, rounds and the estimate are unknown")
            return {}
        found = read_json(folder / "run.json")
        if found.get("state") == "finished":
            checked(folder, "run.json")
    except (DataError, OSError) as error:
        missing.append(f"run.json cannot be used ({error}): settings, rounds and the estimate are unknown")
        return {}
    try:
        found = from_json(found, folder / "run.json").to_json()
    except DataError as error:
        missing.append(str(error))
        return {}
    state = found.get("state")
    if state != "finished":
        missing.append(UNFINISHED.get(str(state), UNKNOWN).format(found.get("stop_reason") or "no reason is recorded"))
    if state == "finished" and not (folder / MANIFEST).exists():
        missing.append(f"there is no {MANIFEST}: an older version wrote the run, so damage cannot be noticed")
    if state == "finished" and not found.get("estimate"):
        missing.append("there is no estimate of how good the labels are: an older version wrote the run")
    return found


def _read(read: Callable[[], T], name: str, lost: str, missing: list[str]) -> T | None:
    """What is read, or None; `missing` then says what is lost."""
    try:
        return read()
    except FileNotFoundError:
        missing.append(f"{name} is missing: {lost}")
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        missing.append(f"{name} is damaged ({error}): {lost}")
    return None


def _labels(folder: Path, missing: list[str]) -> pa.Table | None:
    def read() -> pa.Table:
        table = read_parquet(checked(folder, "labels.parquet"))
        check_labels(table, folder / "labels.parquet", complete=False)
        return as_now(table)

    table = _read(read, "labels.parquet", "nothing is known about single rows", missing)
    lacking = [] if table is None else [name for name in COLUMNS if name not in table.column_names]
    if lacking:
        missing.append(f"labels.parquet has no column {', '.join(lacking)}: an older version wrote it")
    return table


def _targets(folder: Path, labels: pa.Table | None, missing: list[str]) -> Floats | None:
    def read() -> Floats:
        return load_array(checked(folder, "targets.npy"), mapped=True)

    targets = _read(read, "targets.npy", "the noise matrix is unknown", missing)
    if targets is None:
        return None
    if targets.ndim != 2 or targets.dtype.kind != "f" or not targets.shape[1]:
        missing.append(f"targets.npy holds no soft labels but {targets.dtype} values of shape {targets.shape}")
        return None
    if labels is not None and len(targets) != len(labels):
        missing.append(
            f"{len(labels)} rows in labels.parquet and {len(targets)} in targets.npy: they belong to different runs"
        )
        return None
    return targets
