"""The software versions that a result depends on."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path


def versions() -> dict[str, str]:
    """The versions of Python, of this package and of the numerical libraries."""
    return {"python": platform.python_version()} | _of_libraries() | _commit()


@cache
def _of_libraries() -> dict[str, str]:
    return {name: version(name) for name in ("labelloop", "torch", "numpy", "scipy", "scikit-learn")}


@cache
def _commit() -> dict[str, str]:
    """The commit, if the package runs from a checkout of its sources."""
    asked = ["git", "-C", str(Path(__file__).parents[1]), "log", "-1", "--format=%H", "--", "."]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": found} if found else {}
