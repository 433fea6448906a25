"""preview.parquet: what some rows look like, so that a report can show them when their files are gone.

A thumbnail, a text or a few values for each row of a sample, with the row number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from labelloop.runs.files import write_atomically

PREVIEW = "preview.parquet"
KINDS = {"image": pa.binary(), "text": pa.string(), "values": pa.list_(pa.string())}


@dataclass(frozen=True)
class Preview:
    """What some rows look like.

    Attributes:
        kind: "image" (JPEG or PNG bytes), "text" or "values" (one text per column).
        rows: Row numbers in labels.parquet.
        shown: What each row looks like; None where there is nothing to show.
        columns: The names of the values.
        sample: A description of the sample.
    """

    kind: str
    rows: Sequence[int]
    shown: Sequence[Any]
    columns: tuple[str, ...] = ()
    sample: str = ""

    def by_row(self) -> dict[int, Any]:
        """What each row looks like, by row number."""
        return dict(zip(self.rows, self.shown, strict=True))


def write_preview(folder: Path, preview: Preview) -> None:
    """Writes preview.parquet into a run folder."""
    about = {"kind": preview.kind, "columns": list(preview.columns), "sample": preview.sample}
    table = pa.table(
        {"row": pa.array(preview.rows, pa.int64()), "shown": pa.array(preview.shown, KINDS[preview.kind])}
    ).replace_schema_metadata({"labelloop": json.dumps(about)})
    write_atomically(folder / PREVIEW, lambda place: pq.write_table(table, place))


def copy_preview(folder: Path, target: Path) -> None:
    """Copies preview.parquet, if there is one, to another run of the same rows."""
    if (folder / PREVIEW).exists():
        content = (folder / PREVIEW).read_bytes()
        write_atomically(target / PREVIEW, lambda place: place.write_bytes(content))


def read_preview(folder: Path) -> Preview:
    """Reads preview.parquet.

    Raises:
        OSError: There is none.
        ValueError: It is damaged.
    """
    table = pq.read_table(folder / PREVIEW)
    try:
        about = json.loads((table.schema.metadata or {})[b"labelloop"])
        kind = {"image": "image", "text": "text", "values": "values"}[about["kind"]]
        rows, shown = table["row"].to_pylist(), table["shown"].to_pylist()
    except KeyError as error:
        raise ValueError(f"it has no {error}") from None
    return Preview(kind, rows, shown, tuple(map(str, about.get("columns", ()))), str(about.get("sample", "")))
