"""The list of changes: one row for every label that changed and every row that was dropped."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.export.decision import Decision

COLUMNS = ("id", "row", "column", "before", "after", "confidence", "reason", "run")


def write_changes(path: Path, ids: list[str], decision: Decision, column: str, run: Path) -> int:
    """Writes the changes as CSV and returns their number. Rows are counted from 0, in the order of the input."""
    rows = np.flatnonzero(decision.relabelled | decision.dropped)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows.tolist():
            after = "" if decision.dropped[row] else _text(decision.final[row])
            sure = float(decision.confidence[row])
            confidence = "" if math.isnan(sure) else f"{sure:.6g}"
            before, reason = _text(decision.given[row]), decision.reason(row)
            writer.writerow((ids[row], row, column, before, after, confidence, reason, run))
    return len(rows)


def _text(label: Any) -> str:
    return "" if label is None else str(label)
