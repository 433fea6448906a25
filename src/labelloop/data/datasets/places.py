"""Where data sets are looked for, and what to say when they are not there."""

from __future__ import annotations

import os
from pathlib import Path

from labelloop.errors import DataError

VARIABLE = "LABELLOOP_DATA"


def places(root: str | Path | None) -> list[Path]:
    """The folders to look in: `root`, else that of LABELLOOP_DATA, else the usual ones."""
    said = root if root is not None else os.environ.get(VARIABLE)
    if said:
        return [Path(said).expanduser()]
    here, project = Path.cwd(), Path(__file__).resolve().parents[4]
    beside = [here, project] if (project / "pyproject.toml").is_file() else [here]  # run from its source, or installed
    return list(dict.fromkeys([*(folder.parent / "shared" / "data" for folder in beside), here / "data"]))


def not_found(name: str, root: str | Path | None, needed: str) -> DataError:
    """The error for a data set that is in none of its places."""
    looked_in = [f"{place}{'' if place.exists() else ' (does not exist)'}" for place in places(root)]
    return DataError(
        f"{name}: not found in {', '.join(looked_in)}; put there {needed}; or name another folder with root= or the"
        f" variable {VARIABLE}"
    )
