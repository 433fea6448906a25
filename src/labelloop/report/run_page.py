"""The report of one run, with its changed rows packed into a few numbers each, so that a page can hold 100,000."""

from __future__ import annotations

import base64
import io
import json
import zlib
from html import escape
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.report.answer import answer, class_table, method_lines, sentence
from labelloop.report.facts import Facts, RowFacts, facts, row_facts
from labelloop.report.page import bullets, data_block, figures, page
from labelloop.report.pictures import packed, pictures
from labelloop.report.review.looks import Looks
from labelloop.runs.survey import Survey
from labelloop.types import MISSING

MOST_ROWS = 100_000  # of the changes that a page holds
MOST_IMAGES = 2_000  # of them with a thumbnail
MOST_BYTES = 8_000_000  # of thumbnails
SMALL, SIDE = 4_000, 128  # bytes of an image that is small enough, and pixels of the side of one that is not
MOST_LETTERS = 12_000_000  # of texts and values, before they are compressed
NONE = 65_535  # a class that is missing, in the columns of a page

SHOWN = ("map", "noise", "flows", "coverage", "reliability")  # pictures of the labels
METHOD = ("dynamics", "weights", "seconds")  # and of how they were made
STYLES = ("design.css", "report.css")
SCRIPTS = ("plot.js", "unpack.js", "pictures.js", "map.js", "rows.js", "report.js")


def packed_rows(run: Survey, rows: RowFacts | None, most: int = MOST_ROWS) -> dict[str, Any] | None:
    """The data of the table of changes, and a description of the rows and images in it.

    Returns:
        "columns" and "images" as text for the page, "count" and "notes". None without labels.
    """
    if rows is None or run.labels is None or len(run.classes) >= NONE:
        return None
    changed = np.flatnonzero(rows.changed)
    chosen, notes = _chosen(changed, rows.confidence, most)
    order = Looks(run, rows).order(rows.pairs(rows.changed, len(run.classes))[0][:2]) if len(changed) else []
    kind, shown, images, about = _looks(run, chosen, order)
    columns = {
        "row": packed(chosen, np.uint32),
        "given": _classes(rows.given[chosen]),
        "corrected": _classes(rows.corrected[chosen]),
        "confidence": packed(np.nan_to_num(rows.confidence[chosen]), np.float32),
        "score": packed(np.nan_to_num(run.numbers("label_score")[chosen]), np.float32),
        "ids": _ids(run, chosen),
        "kind": kind,
        "shown": shown,
        "names": [] if run.preview is None else [run.preview.columns[k] for k in order],
    }
    return {
        "columns": base64.b64encode(zlib.compress(json.dumps(columns, ensure_ascii=False).encode(), 6)).decode(),
        "images": images,
        "count": len(chosen),
        "notes": [*notes, *about],
    }


def _chosen(changed: NDArray, confidence: NDArray[np.float64], most: int) -> tuple[NDArray, list[str]]:
    """The changes on the page, the most confident first."""
    order = changed[np.argsort(-np.nan_to_num(confidence[changed]), kind="stable")]
    if len(order) <= most:
        return order, []
    half = most // 2
    note = f"the {half:,} most confident and the {half:,} most doubtful of {len(order):,} changes"
    return np.concatenate([order[:half], order[-half:]]), [f"the table holds {note}; all are in labels.parquet"]


def _looks(run: Survey, chosen: NDArray, order: list[int]) -> tuple[str, list[Any], dict[int, str], list[str]]:
    """What the chosen rows look like: texts and values, in an order of the columns; images by position."""
    if run.preview is None:
        return "none", [], {}, []
    looks, kind = run.preview.by_row(), run.preview.kind
    known = [place for place, row in enumerate(chosen.tolist()) if looks.get(row) is not None]
    what = {"image": "pictures", "text": "texts", "values": "values"}[kind]
    limit = MOST_IMAGES if kind == "image" else len(known)
    half = limit // 2
    picked = known if len(known) <= limit else [*known[:half], *known[-half:]]
    shown: dict[int, Any] = {}
    size = 0
    for k in sorted(range(len(picked)), key=lambda k: min(k, len(picked) - 1 - k)):  # from both ends
        place = picked[k]
        look: Any = looks[int(chosen[place])]
        if kind == "image":
            look = _smaller(look)
        elif kind == "values":
            look = [look[k] if k < len(look) else "" for k in order]
        size += sum(map(len, look)) if kind == "values" else len(look)
        if size > (MOST_BYTES if kind == "image" else MOST_LETTERS):
            break
        shown[place] = base64.b64encode(look).decode() if kind == "image" else look
    sample = run.preview.sample or "those that the run keeps"
    note = f"{len(shown):,} of these rows are shown with their {what}: {sample}"
    notes = [note] if len(shown) < len(chosen) else []
    return (kind, [], shown, notes) if kind == "image" else (kind, list(shown.items()), {}, notes)


def _smaller(image: bytes) -> bytes:
    """A thumbnail for a line of the table, where Pillow is there to make one: the run keeps larger pictures."""
    if len(image) <= SMALL or find_spec("PIL") is None:
        return image
    from PIL import Image

    try:
        with Image.open(io.BytesIO(image)) as opened:
            opened.draft("RGB", (2 * SIDE, 2 * SIDE))
            made = opened.convert("RGB")
    except Exception:  # a damaged image can fail in any way; it is shown as it is
        return image
    made.thumbnail((SIDE, SIDE))
    place = io.BytesIO()
    made.save(place, "JPEG", quality=80)
    return place.getvalue()


def _ids(run: Survey, chosen: NDArray) -> list[str] | None:
    """The ids of the rows, or None if they are just the row numbers."""
    assert run.labels is not None
    if "id" not in run.labels.column_names:
        return None
    ids = [str(name) for name in run.labels["id"].take(chosen).to_pylist()]
    return None if ids == [str(row) for row in chosen.tolist()] else ids


def _classes(labels: NDArray) -> str:
    return packed(np.where(labels == MISSING, NONE, labels), np.uint16)


def run_page(run: Survey, most_rows: int = MOST_ROWS) -> str:
    """The complete page of a run, as HTML.

    Args:
        run: The run.
        most_rows: The maximum number of changes in its table.
    """
    rows = row_facts(run)
    found = facts(run, rows)
    drawn = pictures(run, rows)
    table = packed_rows(run, rows, most_rows)
    body = "".join(
        [
            '<a class="skip" href="#rows">Skip to the changed rows</a>',
            f"<header><h1>{escape(run.name)}</h1><p class='about'>{_about(run, found)}</p></header><main>",
            f"<section id='answer'><h2 class='unseen'>The answer</h2>{answer(run, found, rows)}</section>",
            class_table(run, rows),
            _rows_section(table),
            f"<section id='pictures'><h2>Pictures</h2>{figures(SHOWN, drawn)}</section>",
            _method(run, found, drawn),
            "</main>",
        ]
    )
    known = np.zeros(0, int) if rows is None else rows.corrected[rows.corrected != MISSING]
    by_size = np.argsort(-np.bincount(known, minlength=len(run.classes)), kind="stable").tolist()
    data = {"classes": run.classes, "by_size": by_size, "pictures": drawn, "rows": table}
    blocks = [data_block("report-data", data)]
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


def _rows_section(table: dict[str, Any] | None) -> str:
    head = "<section id='rows' tabindex='-1'><h2>The changed rows</h2>"
    if table is None:
        return head + "<p class='nothing'>The run has no labels to show yet.</p></section>"
    if not table["count"]:
        return head + "<p class='nothing'>No label was changed.</p></section>"
    notes = "".join(f"<p class='says'>{escape(note)}</p>" for note in table["notes"])
    return f"{head}{notes}<div id='row-table'><noscript>The table needs JavaScript.</noscript></div></section>"


def _method(run: Survey, found: Facts, drawn: dict[str, Any]) -> str:
    told = "".join(f"<p>{escape(line)}</p>" for line in method_lines(run, found))
    notes = bullets(escape(sentence(note)) for note in found.notes)
    estimate = f"<h3>How to read the estimates</h3>{notes}" if found.notes else ""
    names = ("method", "seed", "stop_reason", "config", "versions")
    kept = {key: run.record[key] for key in names if key in run.record}
    settings = escape(json.dumps(kept, indent=1, ensure_ascii=False))
    return (
        f"<section id='method'><h2>Method</h2>{told}{estimate}{figures(METHOD, drawn)}"
        f"<details><summary>Settings and versions</summary><pre tabindex='0'>{settings}</pre></details></section>"
    )
