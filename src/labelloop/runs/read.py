"""A finished run, read back."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from labelloop.errors import DataError
from labelloop.large_arrays import is_large, mapped_file
from labelloop.runs.files import read_parquet, sha256_of
from labelloop.runs.folder import LABELS, TARGETS, check_holds, read_record
from labelloop.runs.labels import as_now
from labelloop.runs.manifest import MANIFEST, checked
from labelloop.runs.result_files import FEATURES, LARGEST, RowArrays, read_row_arrays
from labelloop.runs.run_json import RunRecord
from labelloop.runs.schema import check_classes, check_labels, check_rows, check_targets, classes_as
from labelloop.trust import load_array
from labelloop.types import Floats

AGAIN = "run `labelloop fit` or `labelloop correct --output-dir` again"


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: The run folder.
        record: What run.json says.
        labels: labels.parquet, one row per input row.
        targets: targets.npy, the corrected soft labels [n, C]; NaN where a row has none.
    """

    path: Path
    record: RunRecord
    labels: pa.Table
    targets: Floats

    @property
    def classes(self) -> list[Any]:
        """The classes in the type of the labels, in the order of the columns of `targets`."""
        return classes_as(self.record.data["classes"], self.labels["corrected_label"].type, self.path / "run.json")

    @property
    def source(self) -> dict[str, Any]:
        """Where the rows came from, as recorded by `fit` and `correct`."""
        if not self.record.source:
            raise DataError(
                f"{self.path / 'run.json'} does not say which file its rows came from: they were arrays in memory, or"
                f" an older version made the run; {AGAIN} on a file, or use --to issues"
            )
        named = ("sha256", "label_column", "clean_column", "id_column", "file_name_column")
        return {**dict.fromkeys(named), "kind": "", "options": {}, **self.record.source}

    def changed_input(self) -> Path | None:
        """The input file, if it is still there with other content than the run read."""
        source = self.record.source or {}
        path = Path(str(source.get("path", "")))
        known = source.get("sha256") is not None and path.is_file()
        return path if known and sha256_of(path) != source["sha256"] else None

    def row_arrays(self) -> RowArrays:
        """The correction's inputs for every row."""
        try:
            arrays = read_row_arrays(self.path)
        except FileNotFoundError as error:
            raise DataError(
                f"{error.filename} is missing; it is not kept where features take more than {LARGEST // 2**30} GiB, nor"
                " by older versions: run it again in another folder, with fewer features if they are many"
            ) from None
        except DataError:
            raise
        except (ValueError, OSError) as error:
            raise DataError(f"{self.path} is damaged ({error}); run it again in another folder") from None
        if arrays.given.ndim and len(arrays.given) != len(self.targets):
            raise DataError(f"{self.path}: its files belong to different runs; run it again in another folder")
        listed = {"given": arrays.given, "clean": arrays.clean, "judges": arrays.validation, **arrays.inputs}
        check_rows(listed, len(self.targets), self.targets.shape[1], self.path / FEATURES)
        return arrays


def read_run(path: Path) -> Run:
    """Reads a run folder.

    Raises:
        DataError: It is not a run folder, it is not finished, or its files do not belong together.
    """
    check_holds(path)
    record = read_record(path)
    if record.state != "finished":
        raise DataError(
            f"the run in {path} is not finished (state: {record.state}); continue it with `fit --resume` first"
        )
    if not (path / MANIFEST).exists():
        warnings.warn(f"{path} has no {MANIFEST}: an older version wrote it, so damage cannot be noticed", stacklevel=2)
    lacking = [name for name in (LABELS, TARGETS) if not (path / name).exists()]
    if lacking:
        raise DataError(f"{path} is not a complete run folder: it has no {' and no '.join(lacking)}; {AGAIN}")
    try:
        labels = read_parquet(checked(path, LABELS))
        check_labels(labels, path / LABELS, complete=True)
        labels = as_now(labels)
        file = checked(path, TARGETS)
        targets = mapped_file(file) if is_large(file.stat().st_size) else load_array(file)
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: labels.parquet or targets.npy is damaged ({error}); {AGAIN}") from None
    if targets.ndim and len(labels) != len(targets):
        raise DataError(f"{path}: {len(labels)} rows in labels.parquet and {len(targets)} in targets.npy; {AGAIN}")
    if not record.data.get("classes"):
        raise DataError(f"{path / 'run.json'}: data.classes is missing; {AGAIN}")
    run = Run(path, record, labels, targets)
    check_classes(labels, run.classes, path / LABELS)
    check_targets(targets, len(labels), len(run.classes), path / TARGETS)
    return run
