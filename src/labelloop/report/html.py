"""report.html of one run or of several side by side, and a run in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from labelloop.errors import DataError
from labelloop.report.compare_page import compare_page
from labelloop.report.facts import facts, percent, row_facts, with_interval
from labelloop.report.run_page import run_page
from labelloop.runs.files import write_atomically
from labelloop.runs.folder import REPORT, is_report
from labelloop.runs.manifest import MANIFEST
from labelloop.runs.survey import Survey, survey

HEIGHT = 620  # height of the frame in pixels
MOST_ROWS = 500  # changes in it: notebooks are stored and sent around, so keep them small


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
    try:
        text = run_page(runs[0]) if len(runs) == 1 else compare_page(runs)
    except Exception as error:
        if all((folder / MANIFEST).exists() for folder in folders):
            raise
        raise DataError(  # what we did not write need not be what we read
            f"{', '.join(map(str, folders))}: a file holds something that no run writes ({type(error).__name__}:"
            f" {error!s:.80}), so there is nothing to report"
        ) from error
    return save_page(text, output)


def save_page(text: str, output: Path) -> Path:
    """Writes a page; only an earlier report is replaced."""
    if output.is_dir():
        raise DataError(f"{output} is a folder; give the name of a file in it, such as {output / REPORT}")
    if output.exists() and not is_report(output):
        raise DataError(f"{output} is not a report of LabelLoop, so it is not replaced; give another --output")
    write_atomically(output, lambda place: place.write_text(text, encoding="utf-8"))
    return output


def in_notebook(run: Survey) -> str:
    """HTML for `_repr_html_`. The frame may run the report's scripts, and nothing else."""
    found = facts(run, row_facts(run))
    lines = [
        ("rows", "unknown" if found.rows is None else f"{found.rows:,}"),
        ("labels changed", "none" if found.changed is None else f"{found.changed:,}"),
    ]
    for which, part in (("given", found.before), ("corrected", found.after)):
        if part is not None:
            lines.append((f"{which} labels that are right", with_interval(part)))
    if found.test_accuracy is not None:
        lines.append(("test accuracy", percent(found.test_accuracy)))
    if run.path is not None:
        lines.append(("run folder", str(run.path)))
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in lines)
    page = escape(run_page(run, MOST_ROWS), quote=True)
    return (
        f'<table>{table}</table><iframe sandbox="allow-scripts" srcdoc="{page}" title="Report of a LabelLoop run"'
        f' style="width:100%;height:{HEIGHT}px;border:1px solid #888;border-radius:8px"></iframe>'
    )
