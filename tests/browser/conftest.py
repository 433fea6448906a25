"""A browser where one can be had. Where LABELLOOP_BROWSER is "required", as in CI, a missing one is a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, missing
from page_runs import KINDS, made

ROOT = Path(__file__).resolve().parents[2]


def cannot(why: str) -> None:
    if os.environ.get("LABELLOOP_BROWSER") == "required":
        pytest.fail(f"{why}; `make browser` sets it up")
    pytest.skip(f"{why}; `make browser` sets it up")


@pytest.fixture(scope="session")
def window(tmp_path_factory) -> Iterator[Browser]:
    if why := missing():
        cannot(why)
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def browser(window) -> Browser:
    """The window as if it were new: empty, of its first size, light, and with nothing in its logs."""
    window.reset()
    return window


@pytest.fixture(scope="session")
def runs(tmp_path_factory, window) -> dict[str, Path]:
    """A run of each kind, which tests only read."""
    place = tmp_path_factory.mktemp("runs")
    return {kind: made(kind, place) for kind in KINDS}


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which looks for barriers."""
    file = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
    if not file.exists():
        cannot("axe-core is not installed")
    return file.read_text(encoding="utf-8")
