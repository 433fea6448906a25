"""The exported label of each row: relabelled, dropped or kept, by confidence; and the list of all changes."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError, nearest
from labelloop.runs.labels import label_table
from labelloop.runs.lock import hold, release
from labelloop.runs.read import Run
from labelloop.runs.reviews import read_answers, standing, verdicts
from labelloop.types import MISSING

ACTIONS = ("relabel", "drop", "keep")
RESTS = ("review", "drop", "keep-given")  # what may happen to rows whose label is not certified

COLUMNS = ("id", "row", "column", "before", "after", "confidence", "reason", "run")


@dataclass(frozen=True)
class Decision:
    """What happens to every row of the input.

    Attributes:
        given: The given label, or None.
        final: The exported label, or None.
        proposed: The corrected label of the run, or None.
        confidence: The probability of the exported label; NaN if unknown.
        relabelled: Whether the exported label differs from the given one.
        dropped: Whether the row is left out.
        verified: Whether the row has a clean label.
        certified: Whether its label is certified; None without a certificate.
    """

    given: NDArray
    final: NDArray
    proposed: NDArray
    confidence: NDArray
    relabelled: NDArray[np.bool_]
    dropped: NDArray[np.bool_]
    verified: NDArray[np.bool_]
    certified: NDArray[np.bool_] | None = None

    @property
    def changed(self) -> NDArray[np.bool_]:
        """As in labels.parquet: rows whose given label was corrected, without the clean rows [n]."""
        had = np.array([label is not None for label in self.given], dtype=bool)
        return self.relabelled & had & ~self.verified

    def reason(self, row: int) -> str:
        """Why the label of a row changed, or the row was dropped."""
        if self.verified[row]:
            return "verified"
        if self.dropped[row] and self.certified is not None:
            return "left out, because its label is not certified"
        if self.dropped[row]:
            return f"dropped, because the run says {self.proposed[row]}"
        return "corrected" if self.given[row] is not None else "had no label"


def with_reviews(run: Run) -> tuple[Run, str | None]:
    """The run with the decisions of its reviewers as clean labels, and what to say about them.

    Raises:
        DataError: A decision is about a row or a class that the run does not have.
    """
    found = verdicts(standing(read_answers(run.path)[0]))
    if not found:
        return run, None
    classes = {str(name): k for k, name in enumerate(run.classes)}
    decided = np.full(len(run.labels), MISSING)
    for row, each in found.items():
        if each.label is not None:
            if not 0 <= row < len(decided) or each.label not in classes:
                raise DataError(
                    f"{run.path}: a review decision is about row {row} and class {each.label!r:.80}, not of this run"
                )
            decided[row] = classes[each.label]
    reviewed, disputed = decided != MISSING, sum(each.disputed for each in found.values())
    words = f"{reviewed.sum()} rows have the label that reviewers decided on"
    words += f"; {disputed} rows on which they disagree have that of the run" if disputed else ""
    targets = np.array(run.targets)
    targets[reviewed] = np.eye(targets.shape[1], dtype=targets.dtype)[decided[reviewed]]
    given, corrected, predicted = (codes(run, name) for name in ("given_label", "corrected_label", "predicted_label"))
    clean = np.where(reviewed, decided, np.where(run.labels["verified"].to_numpy(), corrected, MISSING))
    table = label_table(np.array(run.labels["id"].to_pylist()), run.classes, given, clean, targets, predicted)
    return Run(run.path, run.record, table, targets), words


def codes(run: Run, column: str) -> NDArray[np.int64]:
    """A column of labels as numbers [n], -1 where missing."""
    number = {name: k for k, name in enumerate(run.classes)} | {None: MISSING}
    return np.array([number[name] for name in run.labels[column].to_pylist()], np.int64)


def decide(labels: pa.Table, action: str, min_confidence: float) -> Decision:
    """Decides for every row.

    A row whose corrected label differs from the given one with at least `min_confidence` is relabelled, dropped or
    kept, as `action` says; a row without a given label gets one if it is relabelled. Every other row is kept as given,
    as are rows without a corrected label, such as test rows.

    Args:
        labels: labels.parquet.
        action: "relabel", "drop" or "keep".
        min_confidence: Between 0 and 1.
    """
    if action not in ACTIONS:
        raise UsageError(f"no action {action!r}; {nearest(action, ACTIONS)}")
    if not 0 <= min_confidence <= 1:
        raise UsageError(f"--min-confidence is a probability between 0 and 1, not {min_confidence:g}")
    given, proposed = _objects(labels["given_label"].to_pylist()), _objects(labels["corrected_label"].to_pylist())
    verified = labels["verified"].to_numpy()
    sureness = labels["corrected_confidence"].to_numpy()
    known = np.array([value is not None for value in proposed], dtype=bool)
    had = np.array([value is not None for value in given], dtype=bool)
    differs = known & np.array([a != b for a, b in zip(given, proposed, strict=True)], dtype=bool)
    sure = differs & ~verified & (np.nan_to_num(sureness) >= np.float32(min_confidence))
    relabelled = differs & verified | (sure if action == "relabel" else np.zeros_like(sure))
    final = np.where(relabelled, proposed, given)
    kept_against = differs & ~relabelled  # the confidence in the given label is then its label_score
    return Decision(
        given=given,
        final=final,
        proposed=proposed,
        confidence=np.where(kept_against, labels["label_score"].to_numpy(), sureness),
        relabelled=relabelled,
        dropped=sure & had if action == "drop" else np.zeros_like(sure),
        verified=verified,
    )


def only_certified(decision: Decision, certified: NDArray[np.bool_], rest: str) -> Decision:
    """Keeps certified and clean labels; the rest is left out ("review", "drop") or stays as given ("keep-given")."""
    if rest not in RESTS:
        raise UsageError(f"no rest {rest!r}; {nearest(rest, RESTS)}")
    others = ~certified & ~decision.verified
    given = others if rest == "keep-given" else np.zeros_like(others)
    return replace(
        decision,
        final=np.where(given, decision.given, decision.final),
        relabelled=decision.relabelled & ~others,
        dropped=others & ~given,
        certified=certified,
    )


def spelled(cells: Sequence[Any], decision: Decision, classes: Sequence[Any], where: str) -> list[Any]:
    """The exported labels as the input spells its classes, such as "3.0" for 3. Checks that cells and rows fit.

    Args:
        cells: The label column, one value per row.
        decision: Of the same rows.
        classes: All classes in order.
        where: The file and column, for a message.

    Raises:
        UsageError: One spelling means two classes: the labels of the run came from elsewhere.
    """
    meaning: dict[str, Any] = {}
    counts: dict[Any, dict[Any, int]] = {}
    for row, (cell, given) in enumerate(zip(cells, decision.given, strict=True)):
        text = "" if cell is None else str(cell).strip()
        if meaning.setdefault(text, given) != given:
            raise UsageError(
                f"{where}: row {row} holds {text!r}, which the run has as {given!r} and elsewhere as"
                f" {meaning[text]!r} (the first row is 0); its labels came from another place, such as --noisy-labels,"
                " so they cannot be put back here"
            )
        if given is not None:
            found = counts.setdefault(given, {})
            written = text if isinstance(cell, str) else cell  # extra spaces do not make another spelling
            found[written] = found.get(written, 0) + 1
    cell_of = {label: max(found, key=lambda cell: found[cell]) for label, found in counts.items()}
    numbered = bool(cell_of) and all(str(cell) == str(classes.index(label)) for label, cell in cell_of.items())
    example = next(iter(cell_of.values()), "")
    for k, label in enumerate(classes):
        value = k if numbered else label  # class numbers, or the classes themselves
        cell_of.setdefault(label, str(value) if isinstance(example, str) else value)
    return [None if label is None else cell_of[label] for label in decision.final]


def _objects(values: list[Any]) -> NDArray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def write_changes(run: Run, decision: Decision, column: str, path: Path) -> None:
    """Writes the changes as CSV. Rows are counted from 0, in the order of the input."""
    ids = run.labels["id"].to_pylist()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in np.flatnonzero(decision.relabelled | decision.dropped).tolist():
            after = "" if decision.dropped[row] else as_text(decision.final[row])
            before, confidence = as_text(decision.given[row]), as_text(decision.confidence[row])
            reason = decision.reason(row)
            writer.writerow((ids[row], row, column, before, after, confidence, reason, run.path.absolute()))


def as_text(value: Any) -> str:
    """A label or a confidence as a cell; empty if it is missing."""
    if isinstance(value, np.floating):
        return "" if np.isnan(value) else f"{value:.6g}"
    return "" if value is None else str(value)


@contextmanager
def marked(output: Path, beside: Sequence[Path], what: str) -> Iterator[bool]:
    """Keeps a mark next to the output while an export is written.

    What stands beside an output that does not exist, and has a mark, is of an export that was killed: nothing had these
    names when the mark was made. It is deleted.

    Args:
        output: What is written last.
        beside: What is written before.
        what: The export in words; the same words mean the same files.

    Yields:
        Whether the killed export was the same one, and had written everything.

    Raises:
        DataError: A file or folder has one of these names, and is not of a killed export.
    """
    mark = output.parent.resolve() / f".{output.name}.export"
    if not mark.exists():
        _refuse_existing(output, *beside)
    output.parent.mkdir(parents=True, exist_ok=True)
    left = hold(mark, what)
    try:
        if left is not None and not output.exists():
            for path in beside:
                path.unlink(missing_ok=True)
        done = left == what and output.exists()
        if not done:
            _refuse_existing(output, *beside)
        yield done
    finally:
        release(mark)


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists() or path.is_symlink():
            raise DataError(f"{path} exists and is not overwritten; give another name with --output, or move it away")
