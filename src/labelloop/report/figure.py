"""Figures: the learning curve and the reliability of confidences. The only module that imports matplotlib."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from labelloop.errors import DataError, UsageError
from labelloop.runs.files import write_atomically
from labelloop.runs.folder import read_record

KINDS = ("png", "svg")
OTHER_KINDS = ("pdf", "jpg", "jpeg", "eps", "gif", "tif", "tiff", "webp")


def figure_place(path: Path) -> Path:
    """The path of a figure without its extension, checked to be writable as far as possible without writing.

    Raises:
        UsageError: It is not the name of a figure, or matplotlib is not installed.
        DataError: It cannot be written.
    """
    need_matplotlib()
    ending = path.suffix.lower().removeprefix(".")
    if ending in OTHER_KINDS:
        raise UsageError(f"{path}: figures are written as .png and .svg, not as .{ending}; give the name without it")
    if ending in KINDS:
        path = path.with_suffix("")
    if path.name in ("", ".."):
        raise UsageError(f"{path} is a folder; give the name of a figure in it")
    folder = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not folder.is_dir():
        raise _no_writing(path, f"{folder} is not a folder")
    for one, mode in ((folder, os.W_OK | os.X_OK), *((one, os.W_OK) for one in _files(path))):
        if one != folder and one.is_dir():
            raise _no_writing(path, f"{one} is a folder")
        if one.exists() and not os.access(one, mode):
            raise _no_writing(path, f"{one} is not writable for you")
    return path


def need_matplotlib() -> None:
    """Refuses to draw without matplotlib.

    Raises:
        UsageError: With how to install it.
    """
    if find_spec("matplotlib") is None:
        raise UsageError("figures need matplotlib: pip install 'labelloop[report]'")


def new_figure(rows: int, columns: int) -> tuple[Any, list[Any]]:
    """A figure and its axes, row by row.

    Raises:
        UsageError: matplotlib is not installed.
    """
    need_matplotlib()
    from matplotlib import rcParams
    from matplotlib.figure import Figure  # not pyplot: no window, no global state

    rcParams["svg.hashsalt"] = "labelloop"  # the same figure gives the same file
    figure = Figure(figsize=(5 * columns, 3.6 * rows + 0.8), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save(figure: Any, path: Path) -> list[Path]:
    """Writes path.png and path.svg.

    Raises:
        DataError: They cannot be written.
    """
    written = _files(path)
    try:
        for one in written:  # never through a link that a stranger put there
            write_atomically(one, partial(_draw, figure, one.suffix))
    except OSError as error:
        raise _no_writing(path, error.strerror or str(error)) from None
    return written


def _draw(figure: Any, suffix: str, place: Path) -> None:
    about = {"Date": None} if suffix == ".svg" else None
    figure.savefig(place, format=suffix.removeprefix("."), dpi=110, metadata=about)


def _files(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}.{kind}") for kind in KINDS]


def _no_writing(path: Path, why: str) -> DataError:
    return DataError(f"no figure can be written to {path.parent}: {why}; name another place")


def _with_intervals(axes: Any, points: list[dict[str, Any]], x: str, **style: Any) -> None:
    value = [point["value"] for point in points]
    spread = [[max(sign * (p[end] - p["value"]), 0) for p in points] for sign, end in ((-1, "low"), (1, "high"))]
    axes.errorbar([point[x] for point in points], value, yerr=spread, capsize=3, **style)


def draw_learning_curve(curve: dict[str, Any], path: Path) -> list[Path]:
    """Draws path.png and path.svg from the curve of `plan`."""
    figure, (axes,) = new_figure(1, 1)
    for points, label, style in ((curve["measured"], "measured", "o-"), (curve["beyond"], "forecast", "s--")):
        _with_intervals(axes, points, "clean_rows", fmt=style, label=label)
    axes.set(xlabel="clean rows", ylabel=f"{curve['of']} that are right", xscale="log")
    axes.legend(fontsize=8)
    return save(figure, path)


def draw_reliability(folder: Path) -> list[Path]:
    """Draws reliability.png and reliability.svg of a run into its folder."""
    found: dict[str, Any] = read_record(folder).estimate or {}
    bins = found.get("reliability")
    if not bins:
        why = "; ".join(found.get("notes", ["it was made by an older version"]))
        raise DataError(f"{folder}: the run has no reliability to draw: {why}")
    figure, (axes,) = new_figure(1, 1)
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1, label="perfectly calibrated")
    _with_intervals(axes, bins, "confidence", fmt="o", label="clean rows, with 95% intervals")
    for part in bins:
        place = (part["confidence"], part["value"])
        axes.annotate(str(part["rows"]), place, textcoords="offset points", xytext=(6, -10), fontsize=8)
    axes.set(xlabel="confidence of the corrected label", ylabel="share that is right", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.legend(loc="upper left", fontsize=8)
    return save(figure, folder / "reliability")
