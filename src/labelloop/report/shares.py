"""Shares with a 95% interval (Clopper and Pearson's), and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from scipy.special import betaincinv

LEVEL = 0.95

Share = dict[str, Any]  # value, low, high, rows


def share(hits: float, rows: int) -> Share | None:
    """The share of hits with its interval; None without rows."""
    if rows <= 0:
        return None
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(hits, rows - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, rows - hits, 1 - tail)) if hits < rows else 1.0
    return {"value": hits / rows, "low": low, "high": high, "rows": int(rows)}


def is_share(found: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether an entry of run.json is a share with its interval."""
    return isinstance(found, Mapping) and all(
        isinstance(found.get(key), int | float) and found[key] == found[key] for key in ("value", "low", "high")
    )


def percent(value: float | None, digits: int = 1) -> str:
    """A share as text."""
    return "unknown" if value is None or value != value else f"{100 * value:.{digits}f}%"


def within(found: Mapping[str, Any]) -> str:
    """The interval as text."""
    return f"{100 * found['low']:.1f} to {100 * found['high']:.1f}%"
