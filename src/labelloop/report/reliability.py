"""The reliability of confidences: accuracy against confidence, on held-out clean rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelloop.errors import DataError
from labelloop.report.figure import new_figure, save
from labelloop.runs.folder import read_record


def draw_reliability(folder: Path) -> list[Path]:
    """Draws reliability.png and reliability.svg of a run into its folder."""
    found: dict[str, Any] = read_record(folder).estimate or {}
    bins = found.get("reliability")
    if not bins:
        why = "; ".join(found.get("notes", ["it was made by an older version"]))
        raise DataError(f"{folder}: the run has no reliability to draw: {why}")
    figure, (axes,) = new_figure(1, 1)
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1, label="perfectly calibrated")
    value, low, high, confidence = ([part[key] for part in bins] for key in ("value", "low", "high", "confidence"))
    spread = [[v - a for v, a in zip(value, low, strict=True)], [b - v for v, b in zip(value, high, strict=True)]]
    axes.errorbar(confidence, value, yerr=spread, fmt="o", capsize=3, label="clean rows, with 95% intervals")
    for x, y, part in zip(confidence, value, bins, strict=True):
        axes.annotate(str(part["rows"]), (x, y), textcoords="offset points", xytext=(6, -10), fontsize=8)
    axes.set(xlabel="confidence of the corrected label", ylabel="share that is right", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.legend(loc="upper left", fontsize=8)
    return save(figure, folder / "reliability")
