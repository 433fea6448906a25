"""The report of one run."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from labelloop.report.answer import answer
from labelloop.report.facts import Facts, facts, row_facts
from labelloop.report.page import data_block, page
from labelloop.report.pictures import pictures
from labelloop.report.rows import MOST_ROWS, packed_rows
from labelloop.runs.survey import Survey

TITLES = {
    "noise": ("Noise matrix", "Of the rows of each true class, the share that came with each given label."),
    "flows": ("Where labels went", "Changed labels, from the given class to the corrected one."),
    "coverage": (
        "Confidence against coverage",
        "Accept only changes above a confidence threshold. The higher it is, the fewer changes are left, and the more"
        " of them are right.",
    ),
    "reliability": (
        "Are the confidences reliable?",
        "On the diagonal, labels with a confidence of 80% are right in 80 of 100 rows. From held-out clean rows, with"
        " 95% intervals.",
    ),
    "dynamics": ("Training", "By epoch. Dotted: a round of correction. Dashed: the learning rate drops."),
    "weights": ("Combination weights", "The weight of each source in the corrected labels."),
    "seconds": ("Seconds by phase", "Over all epochs."),
}
STYLES = ("report.css",)
SCRIPTS = ("plot.js", "unpack.js", "pictures.js", "rows.js", "report.js")


def run_page(run: Survey, most_rows: int = MOST_ROWS) -> str:
    """The complete page of a run, as HTML.

    Args:
        run: The run.
        most_rows: The maximum number of changes in its table.
    """
    rows = row_facts(run)
    found = facts(run, rows)
    drawn = pictures(run, rows)
    packed = packed_rows(run, rows, most_rows)
    table = None if packed is None else {key: packed[key] for key in ("columns", "images", "count")}
    body = "".join(
        [
            '<a class="skip" href="#rows">To the changed rows</a>',
            f"<header><h1>{escape(run.name)}</h1><p class='about'>{_about(run, found)}</p></header><main>",
            f"<section id='answer' aria-label='The answer'><h2>The answer</h2>{answer(run, found)}</section>",
            f"<section id='pictures'><h2>Pictures</h2><div class='pictures'>{_figures(drawn)}</div></section>",
            _rows_section(packed),
            _details(run, found),
            "</main>",
        ]
    )
    blocks = [data_block("report-data", {"classes": run.classes, "pictures": drawn, "rows": table})]
    return page(f"{run.name} · LabelLoop", body, styles=STYLES, scripts=SCRIPTS, blocks=blocks)


def _about(run: Survey, found: Facts) -> str:
    record = run.record
    state = record.get("state") or "unknown state"
    parts = [
        f"<span class='state {escape(str(state), quote=True).replace(' ', '-')}'>{escape(str(state))}</span>",
        "" if found.rows is None else f"{found.rows:,} rows",
        f"{len(run.classes):,} classes" if run.classes else "",
        "" if found.clean is None else f"{found.clean:,} clean rows",
        f"method {record['method']}" if record.get("method") else "",
        f"seed {record['seed']}" if "seed" in record else "",
        f"from {(record.get('data') or {}).get('source')}" if (record.get("data") or {}).get("source") else "",
        f"refitted from {record['refitted_from']}" if record.get("refitted_from") else "",
    ]
    return " · ".join([parts[0], *(escape(str(part)) for part in parts[1:] if part)])


def _figures(drawn: dict[str, Any]) -> str:
    return "".join(
        f"<figure data-picture='{name}'><h3 id='title-{name}'>{title}</h3><p class='says'>{says}</p>"
        + (
            "<div class='chart'><noscript>The pictures need JavaScript.</noscript></div>"
            if drawn[name] is not None
            else "<p class='nothing'>The run has nothing to show here.</p>"
        )
        + "</figure>"
        for name, (title, says) in TITLES.items()
    )


def _rows_section(packed: dict[str, Any] | None) -> str:
    head = "<section id='rows' tabindex='-1'><h2>The changed rows</h2>"
    if packed is None:
        return head + "<p class='nothing'>The run has no labels to show yet.</p></section>"
    if not packed["count"]:
        return head + "<p class='nothing'>No label was changed.</p></section>"
    notes = "".join(f"<p class='says'>{escape(note)}</p>" for note in packed["notes"])
    return f"{head}{notes}<div id='row-table'><noscript>The table needs JavaScript.</noscript></div></section>"


def _details(run: Survey, found: Facts) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    estimate = f"<h3>How to read the estimates</h3><ul>{notes}</ul>" if notes else ""
    shown = {
        key: run.record[key] for key in ("method", "seed", "stop_reason", "config", "versions") if key in run.record
    }
    settings = escape(json.dumps(shown, indent=1, ensure_ascii=False))
    return (
        f"<section id='details'><h2>Details</h2>{estimate}<details><summary>Settings and versions</summary>"
        f"<pre tabindex='0'>{settings}</pre></details></section>"
    )
