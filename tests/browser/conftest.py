"""A browser where one can be had. Where LABELLOOP_BROWSER is "required", as in CI, a missing one is a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, missing

ROOT = Path(__file__).resolve().parents[2]


def cannot(why: str) -> None:
    if os.environ.get("LABELLOOP_BROWSER") == "required":
        pytest.fail(f"{why}; `make browser` sets it up")
    pytest.skip(f"{why}; `make browser` sets it up")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if why := missing():
        cannot(why)
    with Browser(tmp_path / "browser") as opened:
        yield opened


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which looks for barriers."""
    file = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
    if not file.exists():
        cannot("axe-core is not installed")
    return file.read_text(encoding="utf-8")
