"""What every run ends with: a preview of its rows, and a report. If either fails, the finished run stays intact."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa

from labelloop.data.table import Table
from labelloop.progress import clock
from labelloop.report.html import write_report
from labelloop.runs.preview import copy_preview, write_preview
from labelloop.workflows.preview import make_preview


def leave_report(
    folder: Path, table: Table, labels: pa.Table, wanted: bool = True, progress: bool | None = None
) -> None:
    """Stores a preview of the rows, and writes report.html.

    Args:
        folder: The folder of a finished run.
        table: Its rows.
        labels: Its labels.parquet.
        wanted: Whether to write the report, which `labelloop report` can do later too.
        progress: Whether to show the time it takes; None shows it only in a terminal.
    """
    try:
        with clock("writing the report", progress):
            preview = make_preview(table, labels)
            if preview is not None:
                write_preview(folder, preview)
            if wanted:
                write_report([folder])
    except Exception as error:  # the run is finished: whatever happens here must not look as if it had failed
        _warn(folder, error)


def leave_report_after_refit(folder: Path, old: Path, wanted: bool = True) -> None:
    """The same after a refit, which keeps the preview of the old run.

    Args:
        folder: The folder of the new run.
        old: The folder of the old run.
        wanted: Whether to write the report.
    """
    try:
        with clock("writing the report"):
            copy_preview(old, folder)
            if wanted:
                write_report([folder])
    except Exception as error:  # see above
        _warn(folder, error)


def _warn(folder: Path, error: Exception) -> None:
    warnings.warn(
        f"the run in {folder} is whole, but its report could not be written ({error}); `labelloop report {folder}`"
        " tries again",
        stacklevel=3,
    )
