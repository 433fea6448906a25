"""Checks of the options that data sets share."""

from __future__ import annotations

import numpy as np

from labelloop.errors import UsageError


def checked_limit(limit: int | None, count: int | None = None, name: str = "limit") -> int | None:
    """Checks a limit. `count` is the number of such rows, once known."""
    rows = "test rows" if name == "test_limit" else "training rows"
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1:
        raise UsageError(f"{name} is {limit!r}: give the number of {rows} to use, 1 or more, or leave it out")
    if count is not None and limit > count:
        raise UsageError(f"{name} is {limit}, but there are {count} {rows}: give {count} or less, or leave it out")
    return int(limit)


def check_flags(**flags: bool) -> None:
    """Refuses anything but true or false: the text "false" would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise UsageError(f"{name} is {value!r}: give True or False")
