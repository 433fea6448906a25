"""The rows and columns of the input with the corrected label: CSV, TSV, JSON lines and Parquet, from any of them.

If the format stays the same and is text, the original bytes are edited, so that nothing else changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from labelloop.errors import DataError, UsageError
from labelloop.export.decision import Decision, as_text, spelled
from labelloop.export.text_edits import Delimited, edited, in_utf8, spans_of, with_members, with_value
from labelloop.runs.read import Run

FORMATS = ("csv", "tsv", "jsonl", "parquet")
PACKED = {".gz": "gzip", ".zst": "zstd"}
DELIMITERS = {"csv": ",", "tsv": "\t"}
CODES = r"^\s*[+-]?0[0-9]"  # a number that begins with a zero, kept as text
LONG = r"^\s*[+-]?[0-9]{16,}\s*$"  # more digits than a float can hold
RESPELLED = r"^\s*(true|false|TRUE|FALSE)\s*$"  # elsewhere a boolean is the class True or False
FRACTION = r"[.][0-9]*[1-9]"
ADDED = ("corrected_label", "corrected_confidence", "changed")


def table_writer(run: Run, source: Path, to: str, decision: Decision, replace: bool) -> Callable[[Path], object]:
    """Checks everything, and returns a function that writes the rows of a run's input with their exported labels.

    Args:
        run: The run.
        source: Its input: a table, or a folder of images, which becomes a table of file_name and label.
        to: A name in FORMATS.
        decision: What happens to every row.
        replace: Put the label into the label column instead of adding columns.
    """
    suffix = source.suffix.lower()  # a compressed file is rewritten
    if suffix == f".{to}" and to in DELIMITERS:
        pieces = _edited_delimited(run, source, to, decision, replace)
    elif suffix == f".{to}" == ".jsonl":
        pieces = _edited_lines(run, source, decision, replace)
    else:
        table = _labelled(run, source, _read(run, source), decision, replace)
        nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
        if nested and to in DELIMITERS:
            raise UsageError(f"column {nested[0]!r} holds lists, which {to} cannot store; use parquet or jsonl")
        return lambda path: _write(table, to, path)

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(pieces)

    return write


def column_of(run: Run, source: Path, name: str) -> list[str]:
    """A column of the input, as text."""
    return [str(value) for value in _read(run, source)[name].to_pylist()]


def label_column(names: Collection[str], rows: int, run: Run, source: Path, replace: bool) -> str | None:
    """The column of the given labels, if the input is that of the run and has room for the corrected ones."""
    if rows != len(run.labels):
        raise DataError(f"{source} has {rows} rows, but the run has {len(run.labels)}; run it again on this input")
    label = "label" if run.source["kind"] == "image-folder" else run.source["label_column"]
    if label is not None and label not in names:
        raise DataError(f"{source} has no column {label!r:.80}, from which the run says it took the labels")
    if replace and label is None:
        raise UsageError(f"{source} has no label column to replace; leave out --replace")
    taken = [name for name in ADDED if name in names]
    if taken and not replace:
        raise UsageError(
            f"{source} already has a column {taken[0]!r}; use --replace, or rename the column and run again"
        )
    return label


def _edited_delimited(run: Run, source: Path, to: str, decision: Decision, replace: bool) -> Iterable[bytes]:
    table = Delimited(source, _delimiter(run, to))
    label = label_column(table.names, len(table.rows), run, source, replace)
    column = table.names.index(label) if label is not None else -1
    cells = [table.cell(record, column) if label is not None else "" for record in table.rows]
    final, changed = spelled(cells, decision, run.classes, f"{source}, column {label!r}"), decision.changed
    return edited(
        table,
        keep=lambda row: not decision.dropped[row],
        replace=lambda row: (column, as_text(final[row])) if replace and decision.relabelled[row] else None,
        added=() if replace else ADDED,
        add=lambda row: (as_text(final[row]), as_text(decision.confidence[row]), str(bool(changed[row])).lower()),
    )


def _edited_lines(run: Run, source: Path, decision: Decision, replace: bool) -> Iterable[bytes]:
    lines = in_utf8(source.read_bytes(), source).split("\n")  # keeps a \r at the end of its line
    rows = [number for number, line in enumerate(lines) if line.strip("\ufeff \t\r")]
    places = {number: spans_of(lines[number].lstrip("\ufeff"), f"{source}, line {number + 1}") for number in rows}
    label = label_column({name for spans in places.values() for name in spans}, len(rows), run, source, replace)
    values = [
        None if label not in places[n] else json.loads(lines[n].lstrip("\ufeff")[slice(*places[n][label])])
        for n in rows
    ]
    final = spelled(values, decision, run.classes, f"{source}, key {label!r}")
    at, changed = {number: row for row, number in enumerate(rows)}, decision.changed
    pieces = []
    for number, line in enumerate(lines):
        row = at.get(number)
        if row is not None and decision.dropped[row]:
            continue
        if row is not None:
            mark, line = ("\ufeff", line[1:]) if line.startswith("\ufeff") else ("", line)
            if not replace:
                sure = as_text(decision.confidence[row])
                new = (final[row], float(sure) if sure else None, bool(changed[row]))
                line = with_members(line, dict(zip(ADDED, new, strict=True)))
            elif decision.relabelled[row] and label in places[number]:
                line = with_value(line, places[number][label], final[row])
            elif decision.relabelled[row]:
                line = with_members(line, {str(label): final[row]})
            line = mark + line
        pieces.append(line)
    return ["\n".join(pieces).encode()]


def _delimiter(run: Run, kind: str) -> str:
    """The delimiter of the input."""
    return run.source["options"].get("delimiter") or DELIMITERS[kind]


def delimiter_of(run: Run, source: Path, to: str) -> str:
    """The delimiter of the output: that of the input if its bytes are edited."""
    return _delimiter(run, to) if source.suffix.lower() == f".{to}" else DELIMITERS[to]


def _read(run: Run, source: Path) -> pa.Table:
    packed = PACKED.get(source.suffix.lower())
    kind = (source.with_suffix("") if packed else source).suffix.lower().removeprefix(".")
    if source.is_dir():  # a folder of images: a row is identified by its path
        return pa.table({"file_name": run.labels["id"], "label": run.labels["given_label"]})
    if kind == "parquet":
        return pq.read_table(source)
    content = _content(source, packed)
    if kind == "jsonl":
        return pa_json.read_json(pa.BufferReader(content))
    if kind == "json":
        found = json.loads(content)
        return pa.Table.from_pylist(found) if isinstance(found, list) else pa.table(found)
    if kind in DELIMITERS:
        labels = {run.source.get("label_column"), run.source.get("clean_column")}
        return _read_delimited(content, _delimiter(run, kind), labels)
    raise UsageError(f"{source} is not a table, so it cannot become one; use --to issues to get only the labels")


def _content(source: Path, packed: str | None) -> bytes:
    with pa.input_stream(str(source), compression=packed) as stream:
        content = stream.read()
    in_utf8(content, source)
    return content


def _read_delimited(content: bytes, delimiter: str, labels: set[str | None]) -> pa.Table:
    """A CSV or TSV file. A column of numbers that would be written differently, such as 007, stays text.

    So does a column of labels such as true or 1.5: elsewhere these are another class, or none.
    """
    options = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    table = pa_csv.read_csv(pa.BufferReader(content), parse_options=options)
    doubtful = {field.name: pattern for field in table.schema if (pattern := _written_differently(field, labels))}
    as_text = pa_csv.ConvertOptions(
        include_columns=list(doubtful), column_types=dict.fromkeys(doubtful, pa.string()), strings_can_be_null=True
    )
    written = (
        pa_csv.read_csv(pa.BufferReader(content), parse_options=options, convert_options=as_text) if doubtful else table
    )
    for name, pattern in doubtful.items():
        if pc.any(pc.match_substring_regex(written[name], pattern)).as_py():
            table = table.set_column(table.column_names.index(name), name, written[name])
    return table


def _written_differently(field: pa.Field, labels: set[str | None]) -> str | None:
    """Matches texts that are of the column's type, but would not come back as they were; None where all would."""
    if pa.types.is_boolean(field.type):
        return RESPELLED if field.name in labels else None
    if pa.types.is_integer(field.type):
        return CODES
    if not pa.types.is_floating(field.type):
        return None
    return f"{CODES}|{LONG}|{FRACTION}" if field.name in labels else f"{CODES}|{LONG}"


def _labelled(run: Run, source: Path, table: pa.Table, decision: Decision, replace: bool) -> pa.Table:
    """The rows that are kept, with the label replaced or columns added."""
    label = label_column(table.column_names, len(table), run, source, replace)
    cells = [None] * len(table) if label is None else table[label].to_pylist()
    final = spelled(cells, decision, run.classes, f"{source}, column {label!r}")
    if replace:
        column = table.column_names.index(label)
        values = [new if is_new else old for old, new, is_new in zip(cells, final, decision.relabelled, strict=True)]
        field = table.schema.field(column)
        table = table.set_column(column, field, _array(values, field.type))
    else:
        kind = None if label is None else table.schema.field(label).type
        new = (_array(final, kind), pa.array(decision.confidence.astype(np.float32), from_pandas=True))
        for name, values in zip(ADDED, (*new, pa.array(decision.changed)), strict=True):
            table = table.append_column(name, values)
    return table.filter(pa.array(~decision.dropped))


def _array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    if kind is None or pa.types.is_null(kind):
        return pa.array(values)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def _write(table: pa.Table, to: str, path: Path) -> None:
    if to == "parquet":
        pq.write_table(table, path)
    elif to == "jsonl":
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for batch in table.to_batches(max_chunksize=1000):
                file.writelines(_line(row) for row in batch.to_pylist())
    else:
        pa_csv.write_csv(table, path, pa_csv.WriteOptions(delimiter=DELIMITERS[to], quoting_style="needed"))


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=str) + "\n"
