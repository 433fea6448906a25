"""The changed rows of a run, packed into a few numbers per row so that a page can hold 100,000 of them."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.report.facts import RowFacts
from labelloop.runs.survey import Survey
from labelloop.types import MISSING

MOST_ROWS = 100_000  # of the changes that a page holds
MOST_IMAGES = 2_000  # of them with a thumbnail
MOST_BYTES = 8_000_000  # of thumbnails
MOST_LETTERS = 12_000_000  # of texts and values, before they are compressed
NONE = 65_535  # a class that is missing, in the columns of a page


def packed_rows(run: Survey, rows: RowFacts | None, most: int = MOST_ROWS) -> dict[str, Any] | None:
    """The data of the table of changes, and a description of the rows and images in it.

    Returns:
        "columns" and "images" as text for the page, "count", "changes" and "notes". None without labels.
    """
    if rows is None or run.labels is None or len(run.classes) >= NONE:
        return None
    changed = np.flatnonzero(rows.changed)
    chosen, notes = _chosen(changed, rows.confidence, most)
    kind, shown, images, about = _looks(run, chosen)
    columns = {
        "row": _array(chosen, np.uint32),
        "given": _classes(rows.given[chosen]),
        "corrected": _classes(rows.corrected[chosen]),
        "confidence": _array(np.nan_to_num(rows.confidence[chosen]), np.float32),
        "score": _array(np.nan_to_num(run.numbers("label_score")[chosen]), np.float32),
        "ids": _ids(run, chosen),
        "kind": kind,
        "shown": shown,
        "names": list(run.preview.columns) if run.preview is not None else [],
    }
    return {
        "columns": _deflated(columns),
        "images": images,
        "count": len(chosen),
        "changes": len(changed),
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


def _looks(run: Survey, chosen: NDArray) -> tuple[str, list[Any], dict[int, str], list[str]]:
    """What the chosen rows look like: texts and values in row order, images by position."""
    if run.preview is None:
        return "none", [], {}, []
    looks, kind = run.preview.by_row(), run.preview.kind
    known = [place for place, row in enumerate(chosen.tolist()) if looks.get(row) is not None]
    what = {"image": "pictures", "text": "texts", "values": "values"}[kind]
    limit = MOST_IMAGES if kind == "image" else len(known)
    half = limit // 2
    picked = known if len(known) <= limit else [*known[:half], *known[-half:]]
    shown: list[Any] = []
    images: dict[int, str] = {}
    size = 0
    kept = 0
    for place in _from_both_ends(picked):
        look = looks[int(chosen[place])]
        size += len(look) if kind == "image" else sum(map(len, look)) if kind == "values" else len(look)
        if size > (MOST_BYTES if kind == "image" else MOST_LETTERS):
            break
        kept += 1
        if kind == "image":
            images[place] = base64.b64encode(look).decode()
        else:
            shown.append([place, look])
    notes = [] if kept == len(chosen) else [f"{kept:,} of these rows are shown with their {what}: {_sample(run)}"]
    return kind, shown, images, notes


def _sample(run: Survey) -> str:
    assert run.preview is not None
    return run.preview.sample or "those that the run keeps"


def _from_both_ends(places: list[int]) -> list[int]:
    """The most confident first, then the most doubtful, the second most confident and so on."""
    half = (len(places) + 1) // 2
    first, last = places[:half], places[half:][::-1]
    mixed = [place for pair in zip(first, last, strict=False) for place in pair]
    return mixed + first[len(last) :]


def _ids(run: Survey, chosen: NDArray) -> list[str] | None:
    """The ids of the rows, or None if they are just the row numbers."""
    assert run.labels is not None
    if "id" not in run.labels.column_names:
        return None
    ids = run.labels["id"].take(chosen).to_pylist()
    return (
        None if all(name == str(row) for name, row in zip(ids, chosen.tolist(), strict=True)) else list(map(str, ids))
    )


def _classes(labels: NDArray) -> str:
    return _array(np.where(labels == MISSING, NONE, labels), np.uint16)


def _array(values: NDArray, kind: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values.astype(np.dtype(kind).newbyteorder("<"))).tobytes()).decode()


def _deflated(columns: dict[str, Any]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(columns, ensure_ascii=False).encode(), 6)).decode()
