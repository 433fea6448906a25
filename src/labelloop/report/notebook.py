"""A run in a notebook: its summary as a plain table, and its report in a frame."""

from __future__ import annotations

from html import escape

from labelloop.report.facts import facts, row_facts
from labelloop.report.run_page import run_page
from labelloop.report.shares import percent, within
from labelloop.runs.survey import Survey

HEIGHT = 620  # height of the frame in pixels
MOST_ROWS = 500  # changes in it: notebooks are stored and sent around, so keep them small


def in_notebook(run: Survey) -> str:
    """HTML for `_repr_html_`. The frame may run the report's scripts, and nothing else."""
    rows = row_facts(run)
    found = facts(run, rows)
    lines = [
        ("rows", "unknown" if found.rows is None else f"{found.rows:,}"),
        ("labels changed", "none" if found.changed is None else f"{found.changed:,}"),
    ]
    if found.before is not None:
        lines.append(("given labels that are right", f"{percent(found.before['value'])} ({within(found.before)})"))
    if found.after is not None:
        lines.append(("corrected labels that are right", f"{percent(found.after['value'])} ({within(found.after)})"))
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
