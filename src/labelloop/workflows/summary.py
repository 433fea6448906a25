"""What a command prints: before it begins, how it read the data; after it ends, the result by class."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelloop.data.columns import Feature, SchemaSummary
from labelloop.data.frames import in_their_type
from labelloop.data.problem import classes_of, encoded
from labelloop.data.table import Table
from labelloop.errors import some, with_flags
from labelloop.relabel.estimate import BOUNDS
from labelloop.report.facts import complement, is_bounded, with_interval, within
from labelloop.runs.run_json import export_name
from labelloop.types import MISSING, Floats

CLASSES = 30  # the most classes that are listed one by one
LONGEST = 60  # the most characters of a class name that are shown
NAMES = 8  # the most columns of a kind that are named
LOUD = 10  # the most shrunken classes that are named
SHRUNK = 0.5  # a class that keeps a smaller share of its rows is reported


def schema_text(table: Table) -> str:
    """How the rows were understood: columns, classes with counts, features by kind, what is left out or missing."""
    lines = [f"{table.source}: {len(table)} rows"]
    schema = table.schema_summary or SchemaSummary()
    lines += [f"  {use.what}: {use.column!r}{' (guessed by its name)' if use.guessed else ''}" for use in schema.uses]
    clean_file = (table.origin or {}).get("options", {}).get("clean_file")
    if clean_file:
        lines.append(f"  clean labels: from {clean_file}")
    lines += _features(table, schema)
    lines += [f"  left out: {out.column!r} ({with_flags(out.why)})" for out in schema.left_out]
    lines += [f"  {with_flags(remark)}" for remark in schema.remarks]
    if table.unreadable:
        lines.append(f"  unreadable: {len(table.unreadable)} images, such as {table.unreadable[0].path}")
    return "\n".join([*lines, *_classes(table)])


def _features(table: Table, schema: SchemaSummary) -> Iterator[str]:
    if not schema.features:
        shape = getattr(table.inputs, "shape", None)
        form, encoder = table.image_form, table.encoder_form
        what = "a dataset" if shape is None else f"an array {shape}"
        if encoder is not None:
            what = f"{encoder.kind}s, through the encoder {encoder.name}"
        elif form is not None:
            what = f"images of {form.height} x {form.width} pixels"
        elif shape is not None and len(shape) == 4:
            what = f"images of {shape[1]} x {shape[2]} pixels in {shape[3]} channels, an array {shape}"
        yield f"  inputs: {what}"
    kinds: dict[str, list[Feature]] = {}
    for feature in schema.features:
        kinds.setdefault(feature.how.split(" ")[0], []).append(feature)
    for kind, features in kinds.items():
        simple = kind == "number"
        names = some((repr(f.column) if simple else f"{f.column!r} ({f.how})" for f in features), NAMES)
        yield f"  features, {kind}: {len(features)}: {names}" if simple else f"  features: {names}"
    gaps = sorted((feature for feature in schema.features if feature.blank), key=lambda feature: -feature.blank)
    if gaps:
        names = some((f"{feature.column!r} in {feature.blank} rows" for feature in gaps), NAMES)
        yield f"  blank: {names} (filled in, and marked in a separate column)"


def _classes(table: Table) -> list[str]:
    """The classes with how many given, clean and paired labels each has; and what was read as missing."""
    if table.labels is None and table.clean_labels is None:
        return []
    classes = classes_of(table)
    given, clean = encoded(table, classes)
    lines = [
        f"  {len(classes)} classes; given labels: {int((given != MISSING).sum())}, clean labels:"
        f" {int((clean != MISSING).sum())}, both: {int(((given != MISSING) & (clean != MISSING)).sum())}"
    ]
    rows = [
        (_shown(name), (given == k).sum(), (clean == k).sum(), ((clean == k) & (given != MISSING)).sum())
        for k, name in enumerate(classes.tolist())
    ]
    lines += _table(("class", "given", "clean", "both"), rows)
    absent = [
        f"{int((values == MISSING).sum())} {what} labels" for what, values in (("given", given), ("clean", clean))
    ]
    found = None if table.schema_summary is None else table.schema_summary.markers
    if found is None:
        columns = [values for values in (table.labels, table.clean_labels) if values is not None]
        there = {str(value).strip() for values in columns for value in np.unique(values.astype(str))}
        found = tuple(mark for mark in table.markers if mark in there - {""})
    return [*lines, f"  read as missing: {' and '.join(absent)} ({', '.join(['blank', *map(repr, found)])})"]


def result_text(labels: pa.Table, classes: Sequence[Any], estimate: Mapping[str, Any]) -> str:
    """The result by class: given and corrected labels, clean rows, good labels broken and wrong ones fixed.

    Args:
        labels: labels.parquet.
        classes: In order.
        estimate: As in run.json.
    """
    given, corrected = _counts(labels["given_label"]), _counts(labels["corrected_label"])
    clean = labels["verified"].to_numpy()
    verified = _counts(labels["corrected_label"].filter(labels["verified"]))
    judged = estimate.get("by_class") or [{}] * len(classes)
    rows, shrunk = [], []
    for name, found in zip(classes, judged, strict=True):
        before, after, held = given[name], corrected[name], verified[name]
        broken = f"{found['broken']} of {found['good']}" if found.get("good") else "-"
        fixed = f"{found['fixed']} of {found['wrong']}" if found.get("wrong") else "-"
        rows.append((_shown(name), before, after, held, broken, fixed))
        if before and not after:
            shrunk.append(
                f"CLASS {_shown(name)} IS GONE: {before} rows had it as given label, and none has it after correction"
            )
        elif after < SHRUNK * before:
            shrunk.append(f"CLASS {_shown(name)} SHRANK: from {before} rows to {after}")
    changed = int(labels["changed"].to_numpy().sum())
    were = "label was" if changed == 1 else "labels were"
    lines = at_risk(classes, estimate)
    lines.append(f"{changed} given {were} corrected (not counting {_count(int(clean.sum()), 'clean row')})")
    if (given_right := estimate.get("given_label_accuracy")) is not None:
        lines.append(f"wrong as given: {_told(complement(given_right))}")
    if any(found.get("recall") for found in judged):  # of labels as given and as corrected
        head = ("class", "given", "corrected", "clean rows", "recall before", "after", "precision before", "after")
        kept = ("given_recall", "recall", "given_precision", "precision")
        lines += _table(
            head,
            [(*row[:4], *(_percent(found.get(key)) for key in kept)) for row, found in zip(rows, judged, strict=True)],
        )
    else:
        lines += _table(("class", "given", "corrected", "clean rows", "good broken", "wrong fixed"), rows)
    advice = (
        "look at these rows before you use the labels (`labelloop review` or `plan`), and add clean rows of the class"
    )
    lines += [f"  {line}" for line in shrunk[:LOUD]]
    if shrunk:
        lines.append(f"  and {len(shrunk) - LOUD} more such classes; {advice}" if len(shrunk) > LOUD else f"  {advice}")
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def at_risk(classes: Sequence[Any], estimate: Mapping[str, Any]) -> list[str]:
    """The classes at risk, which come before all numbers."""
    found = estimate.get("at_risk") or []
    lines = []
    for risk in found[:LOUD]:
        rows = int(risk.get("verify", 0))
        todo = f"; verify {rows} of its rows" if rows else ""
        lines.append(f"  {_shown(classes[risk['class']])}: {risk['why']}{todo}")
    if len(found) > LOUD:
        lines.append(f"  and {len(found) - LOUD} more classes")
    return ["CLASSES AT RISK", *lines] if lines else []


def _told(share: Mapping[str, Any]) -> str:
    """A share with its interval, or its bounds."""
    return f"{within(share)} ({BOUNDS})" if is_bounded(share) else with_interval(share)


def _percent(share: Mapping[str, Any] | None) -> str:
    return "-" if share is None else f"{100 * share['value']:.0f}% ({100 * share['low']:.0f}-{100 * share['high']:.0f})"


@dataclass(frozen=True, repr=False, kw_only=True)
class CorrectedRows:
    """What every result has: your rows with the corrected labels, and one line that sums it up."""

    corrected_labels: NDArray
    corrected_proba: Floats
    label_score: Floats
    predicted_proba: Floats
    classes: NDArray
    estimate: dict[str, Any]
    labels: pa.Table
    own: Any = None

    @property
    def frame(self) -> Any:
        """Your rows with the corrected labels, in your type of data frame."""
        return in_their_type(self.labels, self.own)

    def __repr__(self) -> str:
        changed = int(self.labels["changed"].to_numpy(zero_copy_only=False).sum())
        right = self.estimate.get("corrected_label_accuracy")
        good = "" if right is None else f", right: {_told(right)}"
        counts = f"{len(self.labels)} rows, {len(self.classes)} classes, {_count(changed, 'label')} corrected{good}"
        return f"<{type(self).__name__}: {counts}>"


def _shown(name: Any) -> str:
    """A class in one line: without line breaks, and cut where it is long."""
    text = " ".join(str(name).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _counts(labels: pa.ChunkedArray) -> Counter[Any]:
    """How many rows have each label."""
    found = labels.value_counts()
    return Counter(dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True)))


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A table as text; only the largest classes if there are many."""
    shown = sorted(rows, key=lambda row: -row[1])[:CLASSES] if len(rows) > CLASSES else rows
    cells = [[str(cell) for cell in row] for row in (head, *shown)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(head))]
    lines = [
        "    "
        + "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    ]
    rest = len(rows) - len(shown)
    return lines if not rest else [*lines, f"    ... and {rest} smaller classes"]


def next_steps(folder: Any, source: Mapping[str, Any] | None) -> str:
    """What to do with a finished run.

    Args:
        folder: The run folder.
        source: The entry `source` of run.json; None if unknown.
    """
    run = shlex.quote(str(folder))
    to = export_name(source)
    whose = "a table of wrong labels" if to == "issues" else "your data with corrected labels"
    return (
        f"next: `labelloop review {run}` to look at the changes and decide, or `labelloop plan {run}` for a file of"
        f" rows to verify; `labelloop export {run} --to {to}` for {whose}"
    )
