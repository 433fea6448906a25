"""New figures and saved ones. Only here is matplotlib imported, and only when a figure is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelloop.errors import DataError, UsageError


def new_figure(rows: int, columns: int) -> tuple[Any, list[Any]]:
    """A figure and its axes, row by row.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        from matplotlib import rcParams
        from matplotlib.figure import Figure  # not pyplot: nothing is shown, and no state is kept
    except ModuleNotFoundError:
        raise UsageError("figures need matplotlib: pip install 'labelloop[report]'") from None
    rcParams["svg.hashsalt"] = "labelloop"  # the same figure is the same file
    figure = Figure(figsize=(5 * columns, 3.6 * rows + 0.8), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save(figure: Any, path: Path) -> list[Path]:
    """Writes path.png and path.svg.

    Raises:
        DataError: There is no writing there.
    """
    written = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "svg")]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for one in written:
            figure.savefig(one, dpi=110, metadata={"Date": None} if one.suffix == ".svg" else None)
    except OSError as error:
        raise DataError(f"no figure can be written to {path.parent}: {error.strerror}; name another place") from None
    return written
