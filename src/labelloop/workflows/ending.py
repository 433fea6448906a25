"""What every run ends with: a preview of its rows, and a report. If either fails, the finished run stays intact."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelloop.data.image_files import ImageFiles
from labelloop.data.pillow import open_image, to_rgb
from labelloop.data.readers.arrow_file import own_columns
from labelloop.data.table import Table
from labelloop.errors import DataError
from labelloop.large_arrays import Releaser
from labelloop.progress import clock
from labelloop.report.html import write_report
from labelloop.runs.result_files import Preview, copy_preview, write_preview
from labelloop.runs.reviews import random_order

MOST = {"image": 10_000, "text": 100_000, "values": 100_000}  # rows that are stored
BYTES = 24_000_000  # of all thumbnails, about: the fewer rows, the larger each of them
SIDES = (96, 320)  # the least and the most pixels of a thumbnail's side
PER_PIXEL = 0.2  # bytes of a JPEG
LETTERS, ALL_LETTERS = (300, 5_000), 40_000_000  # of a text, and of all texts
VALUE = 200  # letters of a value
COLUMNS = 40
RANDOM = 1_000  # random rows, for the estimate of a review
BATCH = 128  # rows read at a time
TEXTS = ("text", "sentence", "content", "comment", "review", "body")  # columns that are shown if rows are arrays


def make_preview(table: Table, labels: pa.Table) -> Preview | None:
    """Previews of the rows that a person will want to see; None if they cannot be shown.

    Args:
        table: The rows.
        labels: Their labels.parquet, which tells which rows matter: clean rows, doubtful rows and changes.
    """
    looks = _looks(table)
    if looks is None:
        return None
    kind, columns, show = looks
    most = MOST[kind]
    rows = wanted_rows(labels, most)
    sample = "all rows"
    if len(rows) < len(labels):
        what = "clean ones, random ones, the most doubtful and the most confident changes"
        sample = f"{len(rows):,} of {len(labels):,} rows are kept: {what}"
    return Preview(kind, rows.tolist(), show(rows), columns, sample)


def wanted_rows(labels: pa.Table, most: int) -> NDArray[np.int64]:
    """At most `most` rows, in order.

    A third are clean rows, a tenth random ones, in the order of a review; then the most doubtful rows and the most
    confident changes in turn.
    """
    count = len(labels)
    if count <= most:
        return np.arange(count)
    confidence = np.nan_to_num(labels["corrected_confidence"].to_numpy(), nan=2.0)
    clean, changed = (labels[name].to_numpy().astype(bool) for name in ("verified", "changed"))
    doubtful = np.argsort(np.where(clean, 3.0, confidence), kind="stable")
    surest = np.argsort(np.where(changed, -confidence, 3.0), kind="stable")[: int(changed.sum())]
    by_chance = random_order(count)
    parts = [np.flatnonzero(clean)[: most // 3], by_chance[~clean[by_chance]][: min(RANDOM, most // 10)]]
    both = np.empty(2 * min(len(doubtful), len(surest)), np.int64)
    both[0::2], both[1::2] = doubtful[: len(both) // 2], surest[: len(both) // 2]
    ranked = np.concatenate([*parts, both, doubtful])
    _, first = np.unique(ranked, return_index=True)
    return np.sort(ranked[np.sort(first)[:most]])


Rows = NDArray[np.int64]
Looks = tuple[str, tuple[str, ...], Callable[[Rows], list[Any]]]


def _looks(table: Table) -> Looks | None:
    """The kind of preview, the names of its values, and a function that makes the previews of some rows."""
    inputs, raw = table.inputs, table.raw
    if raw is not None and raw.kind == "text":
        return "text", (), lambda rows: [_cut(raw.items[row], _letters(rows)) for row in rows.tolist()]
    if raw is not None or isinstance(inputs, ImageFiles):
        item = inputs.path if raw is None else raw.items.__getitem__
        return "image", (), lambda rows: [_thumbnail_of(item(row), _side(rows)) for row in rows.tolist()]
    if isinstance(inputs, np.ndarray) and inputs.ndim == 4:
        if find_spec("PIL") is None:
            return None
        scale = _scale(inputs)
        return "image", (), lambda rows: [_thumbnail(inputs[row], scale, _side(rows)) for row in rows.tolist()]
    own = _own_columns(table.origin) if table.origin is not None else None
    if own is not None and len(own) == len(table):
        kinds = {name: own.schema.field(name).type for name in _others(own, table)}
        texts = [name for name, kind in kinds.items() if pa.types.is_string(kind) and name.lower() in TEXTS]
        if texts:
            of_texts = own[texts[0]]
            return "text", (), lambda rows: [_cut(value, _letters(rows)) for value in of_texts.take(rows).to_pylist()]
        bulky = (pa.types.is_nested, pa.types.is_binary)
        if shown := [name for name, kind in kinds.items() if not any(check(kind) for check in bulky)][:COLUMNS]:
            return "values", tuple(shown), lambda rows: _values(own.select(shown).take(rows))
    if isinstance(inputs, np.ndarray) and inputs.ndim == 2:
        width = min(COLUMNS, inputs.shape[1])
        names = table.column_names[:width] or tuple(f"x[{k}]" for k in range(width))
        return "values", names, lambda rows: _first_columns(inputs, rows, width)
    return None


def _side(rows: Rows) -> int:
    """The most pixels of a thumbnail's side, if there are so many."""
    return int(np.clip(np.sqrt(BYTES / max(len(rows), 1) / PER_PIXEL), *SIDES))


def _letters(rows: Rows) -> int:
    """The most letters of a text, if there are so many."""
    return int(np.clip(ALL_LETTERS / max(len(rows), 1), *LETTERS))


def _first_columns(inputs: NDArray, rows: Rows, width: int) -> list[list[str]]:
    let_go, shown = Releaser(inputs), []
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        shown += [[f"{v:.4g}" for v in line] for line in inputs[some, :width].tolist()]
        let_go(len(some))
    return shown


def _values(shown: pa.Table) -> list[list[str]]:
    columns = [[_cut(value, VALUE) for value in column.to_pylist()] for column in shown.columns]
    return [list(line) for line in zip(*columns, strict=True)]


def _own_columns(origin: Mapping[str, Any]) -> pa.Table | None:
    """The columns of the file that the rows came from; None if it has none or no longer exists."""
    path, kind = Path(str(origin.get("path", ""))), origin.get("kind")
    try:
        if kind in ("csv", "tsv", "parquet", "jsonl", "json", "xlsx"):
            return own_columns(path)
    except (OSError, ValueError, DataError):
        warnings.warn(f"{path}: the rows cannot be read again to show them in the report", stacklevel=2)
    return None


def _others(own: pa.Table, table: Table) -> list[str]:
    """The columns that are not labels or ids."""
    origin = table.origin or {}
    taken = {origin.get(key) for key in ("label_column", "clean_column", "id_column")} | {"label", "clean_label", "id"}
    return [name for name in own.column_names if name not in taken]


def _cut(value: Any, most: int) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _scale(inputs: NDArray) -> tuple[float, float]:
    """The range of the pixels: 0 to 255, 0 to 1, or that of the first images."""
    if inputs.dtype == np.uint8:
        return 0.0, 255.0
    part = inputs[:1000]
    low, high = float(np.nanmin(part)), float(np.nanmax(part))
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return (0.0, 255.0) if low >= 0 and 1 < high <= 255 else (low, max(high, low + 1e-6))


def _thumbnail(pixels: NDArray, scale: tuple[float, float], side: int) -> bytes | None:
    from PIL import Image

    low, high = scale
    values = (
        pixels if pixels.dtype == np.uint8 else np.clip((pixels - low) / (high - low) * 255, 0, 255).astype(np.uint8)
    )
    if values.shape[2] == 1:
        values = values[:, :, 0]
    return _encoded(Image.fromarray(values[..., :3] if values.ndim == 3 else values), side)


def _thumbnail_of(item: Any, side: int) -> bytes | None:
    """The same of an image in any form that an encoder takes; None if it is gone or cannot be decoded."""
    try:
        if not isinstance(item, Path | bytes):
            from labelloop.encoders.encoder import opened

            return _encoded(opened(item), side)
        with open_image(item) as image:
            image.draft("RGB", (2 * side, 2 * side))
            return _encoded(to_rgb(image), side)
    except Exception:  # a damaged image can fail in any way
        return None


def _encoded(image: Any, side: int) -> bytes:
    image.thumbnail((side, side))
    place = io.BytesIO()
    image.save(place, "JPEG", quality=80)
    return place.getvalue()


def leave_preview(folder: Path, table: Table, labels: pa.Table, progress: bool | None = None) -> None:
    """Stores a preview of the rows, before the run is finished: the manifest knows it.

    Args:
        folder: The run folder.
        table: Its rows.
        labels: Its labels.parquet.
        progress: Whether to show the time it takes; None shows it only in a terminal.
    """
    with _only_warning(folder), clock("looking at the rows", progress):
        preview = make_preview(table, labels)
        if preview is not None:
            write_preview(folder, preview)


def leave_preview_of(folder: Path, old: Path) -> None:
    """The same after a refit, which keeps the preview of the old run."""
    with _only_warning(folder):
        copy_preview(old, folder)


def leave_report(folder: Path, wanted: bool = True, progress: bool | None = None) -> None:
    """Writes report.html into the folder of a finished run, if it is wanted; `labelloop report` can do it later too."""
    if wanted:
        with _only_warning(folder), clock("writing the report", progress):
            write_report([folder])


@contextmanager
def _only_warning(folder: Path) -> Iterator[None]:
    """The results are written: whatever happens inside must not look as if they had failed."""
    try:
        yield
    except Exception as error:
        warnings.warn(
            f"the run in {folder} is whole, but its report could not be written ({error}); `labelloop report {folder}`"
            " tries again",
            stacklevel=4,
        )
