"""Where data sets are looked for, and the error if they are not found."""

from __future__ import annotations

import os
from pathlib import Path

from labelloop.errors import DataError

VARIABLE = "LABELLOOP_DATA"


def places(root: str | Path | None) -> list[Path]:
    """The folder to look in: `root`, else LABELLOOP_DATA; none if neither is set."""
    said = root if root is not None else os.environ.get(VARIABLE)
    return [Path(said).expanduser()] if said else []


def not_found(name: str, root: str | Path | None, needed: str) -> DataError:
    """The error for a data set that was not found, or whose folder is not set."""
    if not places(root):
        return DataError(
            f"{name}: no folder of data sets is set; set {VARIABLE} to the folder that holds {needed}, or give root="
        )
    looked_in = [f"{place}{'' if place.exists() else ' (does not exist)'}" for place in places(root)]
    return DataError(
        f"{name}: not found in {', '.join(looked_in)}; put {needed} there, or name another folder with root= or the"
        f" variable {VARIABLE}"
    )
