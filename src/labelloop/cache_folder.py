"""Where what can be made again is kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

PLACE = "LABELLOOP_CACHE"  # the environment variable that names the folder


def cache_folder() -> Path:
    """$LABELLOOP_CACHE, else labelloop in the user's folder of caches."""
    if named := os.environ.get(PLACE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "labelloop"
