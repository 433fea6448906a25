"""Tables and image folders as users have them, drawn at random: types, names, markers, encodings, delimiters, modes."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

CLASS_SETS = (
    ("cat", "dog"),
    ("0", "1", "2"),
    ("-1", "0", "1"),
    ("None", "dent", "scratch"),
    ("nan", "a", "b"),
    ("true", "false"),
    ("Cat", "cat", "dog"),
    ("yes", "no"),
    ("007", "008"),
    ("ä ö", "日本", "x,y"),
    ("1.5", "2.5"),
    ("10", "20", "30"),
    ("NA", "EU"),
)
COLUMNS = ("number", "whole", "category", "text", "date", "slip", "blank", "constant", "junk", "flag")
FORMS = (".csv", ";.csv", "|.csv", ".tsv", ".csv.gz", ".jsonl", ".json", ".parquet", "bom.csv", "crlf.csv")


@dataclass(frozen=True)
class MadeTable:
    """A table: its columns as text, None where missing, and the form of its file."""

    form: str
    columns: dict[str, list[str | None]]
    classes: tuple[str, ...]

    def write(self, folder: Path) -> Path:
        """Writes it and returns the file."""
        ending = self.form[self.form.index(".") :]
        path = folder / f"rows{ending}"
        names, rows = list(self.columns), list(zip(*self.columns.values(), strict=True))
        if ending == ".parquet":
            pq.write_table(pa.table({n: pa.array(v, pa.string()) for n, v in self.columns.items()}), path)
        elif ending == ".jsonl":
            lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        elif ending == ".json":
            path.write_text(json.dumps([dict(zip(names, row, strict=True)) for row in rows]), encoding="utf-8")
        else:
            mark = {"; ": ";"}.get(self.form[0], self.form[0]) if self.form[0] in ";|" else ","
            mark = "\t" if ending == ".tsv" else mark
            end = "\r\n" if self.form.startswith("crlf") else "\n"
            text = "".join(mark.join(_quoted(cell, mark) for cell in row) + end for row in (names, *rows))
            content = text.encode("utf-8-sig" if self.form.startswith("bom") else "utf-8")
            path.write_bytes(gzip.compress(content) if ending == ".csv.gz" else content)
        return path


def _quoted(cell: str | None, mark: str) -> str:
    text = "" if cell is None else cell
    return f'"{text}"' if mark in text or '"' in text else text


@st.composite
def tables(draw: Any) -> MadeTable:
    """A table with labels, clean labels in some rows, and one to five further columns."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    classes = draw(st.sampled_from(CLASS_SETS))
    count = draw(st.integers(24, 60))
    true = rng.integers(0, len(classes), count)
    given = np.where(rng.random(count) < 0.2, rng.integers(0, len(classes), count), true)
    marker = draw(st.sampled_from([None, "", "-1", "nan", "None"]))
    label: list[str | None] = [classes[k] for k in given]
    for row in range(draw(st.integers(0, 3))):
        label[row] = marker
    spelled = draw(st.sampled_from(["same", "same", "same", "capitals", "other", "flag"]))
    words = {"same": lambda k: classes[k], "capitals": lambda k: classes[k].upper(), "other": lambda k: f"new {k}"}
    clean = [("x" if spelled == "flag" else words[spelled](k)) if row % 3 == 0 else None for row, k in enumerate(true)]
    columns: dict[str, list[str | None]] = {}
    if draw(st.booleans()):
        columns[draw(st.sampled_from(["id", "Row ID"]))] = [f"r{row}" for row in range(count)]
    for place, kind in enumerate(draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=5))):
        columns[f"{kind}{place}"] = _column(kind, count, true, rng)
    columns[draw(st.sampled_from(["label", "Label", "target", "y", "noisy label"]))] = label
    columns[draw(st.sampled_from(["clean_label", "Clean Label", "verified", "y_clean"]))] = clean
    return MadeTable(draw(st.sampled_from(FORMS)), columns, classes)


def _column(kind: str, count: int, true: Any, rng: np.random.Generator) -> list[str | None]:
    numbers = true + rng.normal(size=count)
    made: dict[str, Any] = {
        "number": lambda i: f"{numbers[i]:.4f}",
        "whole": lambda i: str(int(10 * numbers[i])),
        "category": lambda i: ["red", "green", "blue"][true[i] % 3],
        "text": lambda i: f"a sentence, number {i}",
        "date": lambda i: f"{1 + i % 28:02d}/{1 + i % 12:02d}/2023",
        "slip": lambda i: "?" if i == 5 else f"{numbers[i]:.2f}",
        "blank": lambda i: None,
        "constant": lambda i: "same",
        "junk": lambda i: f"v{i % 20}",
        "flag": lambda i: ["true", "false"][i % 2],
    }
    return [made[kind](i) for i in range(count)]


MODES = ("RGB", "L", "RGBA", "P", "1", "I;16", "LA", "CMYK", "F", "broken", "empty", "dangling", "turned")
NAMES = ("one", "zwei ä", "with space", "UPPER", "日本", "a.b", "comma,name", "quote'")


@st.composite
def image_folders(draw: Any) -> list[tuple[str, str, str, tuple[int, int]]]:
    """Class folder, name, mode and size of each image."""
    classes = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True))
    found = []
    for name in classes:
        for place in range(draw(st.integers(1, 4))):
            size = draw(st.sampled_from([(8, 8), (16, 4), (1, 1), (80, 40)]))
            found.append((name, f"{draw(st.sampled_from(NAMES))}{place}", draw(st.sampled_from(MODES)), size))
    return found
