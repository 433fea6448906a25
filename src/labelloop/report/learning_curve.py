"""The learning curve as a figure: how corrected labels improve with more clean rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelloop.report.figure import new_figure, save


def draw_learning_curve(curve: dict[str, Any], path: Path) -> list[Path]:
    """Draws path.png and path.svg from the curve of `plan`."""
    figure, (axes,) = new_figure(1, 1)
    for points, label, style in ((curve["measured"], "measured", "o-"), (curve["beyond"], "power law", "s--")):
        value, low, high, rows = ([point[key] for point in points] for key in ("value", "low", "high", "clean_rows"))
        below = [max(v - a, 0) for v, a in zip(value, low, strict=True)]
        above = [max(b - v, 0) for v, b in zip(value, high, strict=True)]
        axes.errorbar(rows, value, yerr=[below, above], fmt=style, capsize=3, label=label)
    axes.set(xlabel="clean rows", ylabel="corrected labels that are right", xscale="log")
    axes.legend(fontsize=8)
    return save(figure, path)
