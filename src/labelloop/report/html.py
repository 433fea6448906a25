"""report.html: of one run into its folder, or of several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from labelloop.errors import DataError
from labelloop.report.compare_page import compare_page
from labelloop.report.run_page import run_page
from labelloop.runs.files import write_atomically
from labelloop.runs.folder import REPORT, is_report
from labelloop.runs.survey import survey


def write_report(folders: Sequence[Path], output: Path | None = None) -> Path:
    """Writes the report of a run, or of several side by side.

    Args:
        folders: Run folders: finished, still running, failed or half-written.
        output: The page to write; by default report.html in the folder of a single run, else in the current folder.

    Returns:
        The path of the page.

    Raises:
        DataError: A folder is not a run, or an existing file is not a report.
    """
    runs = [survey(folder) for folder in folders]
    if output is None:
        output = folders[0] / REPORT if len(folders) == 1 else Path(REPORT)
    text = run_page(runs[0]) if len(runs) == 1 else compare_page(runs)
    return save_page(text, output)


def save_page(text: str, output: Path) -> Path:
    """Writes a page; only an earlier report is replaced."""
    if output.is_dir():
        raise DataError(f"{output} is a folder; give the name of a file in it, such as {output / REPORT}")
    if output.exists() and not is_report(output):
        raise DataError(
            f"{output} is not a report of LabelLoop, so it is not replaced; give another name with --output"
        )
    write_atomically(output, lambda place: place.write_text(text, encoding="utf-8"))
    return output
