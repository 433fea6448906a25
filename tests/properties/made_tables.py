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
    (" padded", "plain"),
    ("<b>bold</b>", "a&b"),
    ("=1+1", "@x"),
    ("a" * 300, "b"),
    ("1", "1.0", "2"),
    ("a/b", "a\\b"),
)
COLUMNS = (
    *("number", "whole", "category", "text", "date", "slip", "blank", "constant", "junk", "flag"),
    *("iso date", "time", "comma number", "huge", "mostly blank", "two lines", "quotes", "percent", "infinite"),
)
FORMS = (
    ".csv",
    ";.csv",
    "|.csv",
    ".tsv",
    ".csv.gz",
    ".jsonl",
    ".json",
    ".parquet",
    "bom.csv",
    "crlf.csv",
    "latin.csv",
    "utf16.csv",
    "quoted.csv",
    "spaced.csv",
    ".csv.zst",
)


@dataclass(frozen=True)
class MadeTable:
    """A table: its columns as text, None where missing, and the form of its file."""

    form: str
    columns: dict[str, list[str | None]]
    classes: tuple[str, ...]

    @property
    def as_written(self) -> dict[str, list[str | None]]:
        """The columns under the names that stand in the file."""
        blank = " " if self.form == "spaced.csv" else ""
        return {blank * (place > 0) + name: values for place, (name, values) in enumerate(self.columns.items())}

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
            form = self.form.removesuffix(ending)
            join = f"{mark} " if form == "spaced" else mark
            cells = [[_quoted(cell, mark, always=form == "quoted") for cell in row] for row in (names, *rows)]
            text = "".join(join.join(row) + end for row in cells)
            code = {"bom": "utf-8-sig", "latin": "latin-1", "utf16": "utf-16"}.get(form, "utf-8")
            content = text.encode(code, errors="replace")
            path.write_bytes(_packed(content, ending))
        return path


def _packed(content: bytes, ending: str) -> bytes:
    if ending == ".csv.zst":
        return pa.compress(content, codec="zstd", asbytes=True)
    return gzip.compress(content) if ending == ".csv.gz" else content


def _quoted(cell: str | None, mark: str, *, always: bool = False) -> str:
    text = "" if cell is None else cell
    if always or mark in text or '"' in text or "\n" in text:
        return '"' + text.replace('"', '""') + '"'
    return text


ASKED_ABOUT = ("slip", "huge", "infinite")  # columns that are refused
UNREADABLE = ("latin.csv", "utf16.csv")


@st.composite
def tables(draw: Any, *, usable: bool = False) -> MadeTable:
    """A table with labels, clean labels in some rows, and one to five further columns.

    Where it is to be usable, nothing in it needs a decision of the user.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    asked = [names for names in CLASS_SETS if usable and {"-1", "None", "nan"} & {*names}]
    classes = draw(st.sampled_from([names for names in CLASS_SETS if names not in asked]))
    count = draw(st.integers(24, 60))
    true = rng.integers(0, len(classes), count)
    given = np.where(rng.random(count) < 0.2, rng.integers(0, len(classes), count), true)
    marker = draw(st.sampled_from([None, ""] if usable else [None, "", "-1", "nan", "None"]))
    label: list[str | None] = [classes[k] for k in given]
    for row in range(draw(st.integers(0, 3))):
        label[row] = marker
    spelled = "same" if usable else draw(st.sampled_from(["same", "same", "same", "capitals", "other", "flag"]))
    words = {"same": lambda k: classes[k], "capitals": lambda k: classes[k].upper(), "other": lambda k: f"new {k}"}
    clean = [("x" if spelled == "flag" else words[spelled](k)) if row % 3 == 0 else None for row, k in enumerate(true)]
    columns: dict[str, list[str | None]] = {}
    if draw(st.booleans()):
        columns[draw(st.sampled_from(["id", "Row ID"]))] = [f"r{row}" for row in range(count)]
    known = [kind for kind in COLUMNS if not usable or kind not in ASKED_ABOUT]
    kinds = draw(st.lists(st.sampled_from(known), min_size=1, max_size=5))
    for place, kind in enumerate(["number"] * usable + kinds):
        columns[f"{kind}{place}"] = _column(kind, count, true, rng)
    columns[draw(st.sampled_from(["label", "Label", "target", "y", "noisy label"]))] = label
    columns[draw(st.sampled_from(["clean_label", "Clean Label", "y_clean"] + ["verified"] * (not usable)))] = clean
    return MadeTable(draw(st.sampled_from([f for f in FORMS if not usable or f not in UNREADABLE])), columns, classes)


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
        "iso date": lambda i: f"2023-{1 + i % 12:02d}-{1 + i % 28:02d}",
        "time": lambda i: f"2023-01-{1 + i % 28:02d}T{i % 24:02d}:15:00Z",
        "comma number": lambda i: f"{numbers[i]:.2f}".replace(".", ","),
        "huge": lambda i: f"{numbers[i] * 1e300:.4e}",
        "mostly blank": lambda i: f"{numbers[i]:.2f}" if i % 9 == 0 else None,
        "two lines": lambda i: f"one {i}\ntwo",
        "quotes": lambda i: ['say "a"', 'say "b"'][true[i] % 2],
        "percent": lambda i: f"{numbers[i]:.1f}%",
        "infinite": lambda i: "inf" if i == 3 else f"{numbers[i]:.2f}",
    }
    return [made[kind](i) for i in range(count)]


MODES = ("RGB", "L", "RGBA", "P", "1", "I;16", "LA", "CMYK", "F", "broken", "empty", "dangling", "turned", "cut")
NAMES = ("one", "zwei ä", "with space", "UPPER", "日本", "a.b", "comma,name", "quote'", "-dash", "<b>", 'double"')
ENDINGS = {"RGB": (".png", ".PNG", ".jpg", ".JPEG", ".bmp", ".webp"), "turned": (".jpg", ".png")}


@st.composite
def image_folders(draw: Any) -> list[tuple[str, str, str, tuple[int, int]]]:
    """Class folder, name with its ending, mode and size of each image."""
    classes = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True))
    found = []
    for name in classes:
        for place in range(draw(st.integers(1, 4))):
            size = draw(st.sampled_from([(8, 8), (16, 4), (1, 1), (80, 40)]))
            mode = draw(st.sampled_from(MODES))
            ending = draw(st.sampled_from(ENDINGS.get(mode, (".tif" if mode in ("CMYK", "F") else ".png",))))
            found.append((name, f"{draw(st.sampled_from(NAMES))}{place}{ending}", mode, size))
    return found


def draw_image(image: Any, path: Path, mode: str, size: tuple[int, int]) -> None:
    """A picture whose values lie in the middle, so that neither white nor black is right."""
    if mode == "dangling":
        path.symlink_to(path.parent / "gone.png")
    elif mode in ("broken", "empty"):
        path.write_bytes(b"" if mode == "empty" else b"no picture")
    elif mode == "I;16":
        image.fromarray(np.full((size[1], size[0]), 30_000, np.uint16)).save(path)
    elif mode == "F":
        image.fromarray(np.full((size[1], size[0]), 0.5, np.float32)).save(path)
    else:
        picture = image.fromarray(np.full((size[1], size[0], 3), 120, np.uint8))
        if mode == "1":
            picture = image.fromarray(
                (np.arange(size[0] * size[1]).reshape(size[1], size[0]) % 2 * 255).astype(np.uint8)
            )
            if picture.size == (1, 1):
                picture = image.fromarray(np.full((1, 1), 120, np.uint8))
                mode = "L"
        exif = image.Exif()
        exif[0x0112] = 6
        if mode == "cut":
            picture.resize((64, 64)).save(path)
            path.write_bytes(path.read_bytes()[:60])
            return
        converted = picture if mode == "turned" else picture.convert(mode)
        converted.save(path, exif=exif) if mode == "turned" else converted.save(path)
