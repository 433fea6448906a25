"""Certified labels: `labelloop.certify`, and `export` and `plan` with --max-error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelloop.data.readers.arrow_file import own_columns
from labelloop.errors import DataError, UsageError, some
from labelloop.relabel.certificate import CERTAINTY, HeldOut, certify_classes, certify_rows
from labelloop.relabel.sample import MIN_PAIRS
from labelloop.runs.read import read_run
from labelloop.runs.result_files import RowArrays
from labelloop.runs.run_json import RunRecord
from labelloop.types import DIFFER, MISSING

if TYPE_CHECKING:
    from labelloop.workflows.correct import CorrectionResult
    from labelloop.workflows.fit import Result

KEPT = "judged"  # the name of the array that a run keeps for this
RANDOM = "this holds if the clean rows are a random sample of all rows, or are weighted by how they were chosen"
UNPAIRED = (
    "the clean rows have no given labels, so only labels that the inputs alone confirm can be certified;"
    f" with {MIN_PAIRS} or more clean rows that keep their given label, others can be certified too"
)


@dataclass(frozen=True)
class Certified:
    """What `certify` returns.

    Attributes:
        rows: Which rows of the input have a certified label [n]. Clean rows are not among them: their label is known.
        max_error: The largest share of wrong labels among the certified ones.
        certainty: The probability that it is not larger.
        certificates: One for all rows, or one for every class, as `to_json` of a certificate gives it.
        notes: What is assumed, as sentences.
        how: "measured" on pairs, or "bounded" without them.
    """

    rows: NDArray[np.bool_]
    max_error: float
    certainty: float
    certificates: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    how: str

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The certificate in words."""
        count, wrong = int(self.rows.sum()), f"at most {100 * self.max_error:g}% wrong"
        sure = f"with {100 * self.certainty:g}% certainty"
        them = "those of each class" if len(self.certificates) > 1 else "them"
        lines = [f"{count} labels are certified: at most {100 * self.max_error:g}% of {them} are wrong, {sure}"]
        if not count:
            reasons = [one["reason"] for one in self.certificates]
            lines = [f"no label can be certified as {wrong}, {sure}: {max(reasons, key=reasons.count)}"]
        for one in self.certificates:
            name = f"  {one['class']}: " if "class" in one else "  "
            if one["rows"]:
                like_them = f"{one['wrong']} of {one['clean_rows']} clean rows like them"
                lines.append(f"{name}{one['rows']} labels; {like_them} have a wrong label")
            for step in one["forecast"][:3]:
                lines.append(f"{name}{step['more']} more random clean rows would probably certify {step['rows']}")
        return lines + [f"  {note}" for note in self.notes]


def certify(
    of: CorrectionResult | Result | str | Path,
    max_error: float = 0.02,
    certainty: float = CERTAINTY,
    *,
    by_class: bool = False,
    look: int = 0,
    clean_weight: str | None = None,
) -> Certified:
    """Finds the largest set of corrected labels of which, with the stated certainty, at most a given share is wrong.

    The clean rows must be a random sample of all rows, or have known weights. The statement holds even though the
    threshold is chosen on the same clean rows; docs/guarantees.md says what is assumed.

    Args:
        of: What `correct` or `fit` returned, or the folder of a run.
        max_error: The largest share of wrong labels among the certified ones.
        certainty: The probability that the share is not larger.
        by_class: Certify the labels of each class separately.
        look: Number the certificates from 1 if you add clean rows and certify again; 0 for a single certificate.
        clean_weight: A column of the input with weights of the clean rows: 1 / the probability that a row was chosen to
            be verified. Only with the folder of a run that was made from a file.

    Returns:
        The certified rows, and the certificates.

    Raises:
        DataError: The run does not store what is needed.
    """
    arrays, classes, record, folder = _what_is_known(of)
    weight = None if clean_weight is None else _weights(record, folder, clean_weight, arrays)
    held_out, rows = held_out_rows(arrays, weight)
    if by_class:
        found = certify_classes(held_out, len(classes), max_error, certainty, look)
    else:
        found = [certify_rows(held_out, max_error, certainty, look)]
    mask = np.zeros(len(arrays.given), bool)
    mask[rows[np.any([one.rows for one in found], axis=0)]] = True
    estimate = (of.estimate if record is None else record.estimate) or {}  # type: ignore[union-attr]
    warned = [note for note in estimate.get("notes", ()) if note.startswith(DIFFER)]
    notes = [*warned, RANDOM] if held_out.paired else [*warned, UNPAIRED, RANDOM]
    if by_class:
        notes.insert(0, "the certainty holds for each class separately")
    return Certified(
        mask,
        max_error,
        certainty,
        tuple({**({"class": classes[k]} if by_class else {}), **one.to_json()} for k, one in enumerate(found)),
        tuple(notes),
        "measured" if held_out.paired else "bounded",
    )


def held_out_rows(arrays: RowArrays, weight: NDArray[np.float64] | None = None) -> tuple[HeldOut, NDArray[np.int64]]:
    """What a certificate is made from, and the positions of its noisy rows."""
    validation = arrays.validation & (arrays.clean != MISSING)
    kept = np.asarray(arrays.inputs[KEPT])
    held_out = HeldOut.of(kept, arrays.given, arrays.clean, validation, MIN_PAIRS, weight)
    return held_out, np.flatnonzero((arrays.given != MISSING) & (arrays.clean == MISSING))


def _what_is_known(of: Any) -> tuple[RowArrays, list[Any], RunRecord | None, Path | None]:
    """The arrays, classes, record and folder of a result or a run."""
    place = of if isinstance(of, str | Path) else getattr(of, "output_dir", None)
    folder, record = None if place is None else Path(place), None
    if folder is not None:
        run = read_run(folder)
        arrays, classes, record = run.row_arrays(), list(run.classes), run.record
    elif isinstance(getattr(of, "rows", None), RowArrays):
        arrays, classes = of.rows, of.classes.tolist()
    else:
        raise UsageError(
            "certify takes what `correct` returned, the folder of a run, or what `fit` returned with an output_dir;"
            f" give one of these, not {type(of).__name__}"
        )
    if KEPT not in arrays.inputs:
        where = "this result" if folder is None else str(folder)
        raise DataError(
            f"{where} does not store how likely its labels are: it comes from an older version or another method; run"
            " `labelloop refit`, `correct` or `fit` again, with the method labelloop"
        )
    return arrays, classes, record, folder


def _weights(record: RunRecord | None, folder: Path | None, column: str, arrays: RowArrays) -> NDArray[np.float64]:
    """The weights of the clean rows, from a column of the input [n]."""
    path = Path(str(((record.source if record else None) or {}).get("path", "")))
    if folder is None or not path.is_file():
        raise UsageError("clean_weight names a column of the input file; give the folder of a run whose input exists")
    table = own_columns(path)
    if column not in table.column_names:
        raise UsageError(f"{path} has no column {column!r}; it has {some(table.column_names)}")
    if len(table) != len(arrays.given):
        raise DataError(f"{path} has {len(table)} rows and {folder} {len(arrays.given)}; it is not its input any more")
    try:
        values = np.array([float(cell) if str(cell or "").strip() else np.nan for cell in table[column].to_pylist()])
    except ValueError as error:
        raise DataError(f"{path}: column {column!r} holds something that is not a number ({error})") from None
    bad = np.flatnonzero(arrays.validation & (arrays.clean != MISSING) & ~((values > 0) & np.isfinite(values)))
    if len(bad):
        raise DataError(f"{path}: column {column!r} has no positive number in the clean rows {some(bad)}")
    return values
