"""Labels, ids and order survive correct, export and undo."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from made_tables import tables

from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError, UsageError
from labelloop.export.export import export
from labelloop.export.undo import undo
from labelloop.workflows.correct_file import Outputs, correct_file

CASES = int(os.environ.get("LABELLOOP_CASES", "100"))


@settings(
    max_examples=max(4, CASES // 25),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=CASES == 100,
)
@given(tables())
def test_rows_survive_correction_export_and_undo(made):
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        path = made.write(folder)
        before = path.read_bytes()
        options = ReadOptions(progress=False)
        try:
            table = read_table(path, options)
            correct_file(path, options, Outputs(folder=folder / "run", report=False))
        except (DataError, UsageError):
            return
        labels = pq.read_table(folder / "run" / "labels.parquet")
        assert labels["id"].to_pylist() == table.ids.tolist()
        to = made.form.rsplit(".", 1)[1] if made.form.endswith((".csv", ".tsv", ".jsonl", ".parquet")) else "parquet"
        export(folder / "run", to, output=folder / f"out.{to}")
        undo(folder / f"out.{to}.undo.zip", folder / "back")
        assert (folder / "back").read_bytes() == before
        again = read_table(folder / f"out.{to}", ReadOptions(label_column="corrected_label", labels_required=False))
        assert len(again) == len(table)
