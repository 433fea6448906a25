"""Bars and clocks with a name, on the terminal, for whatever may take longer than two seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TypeVar

PATIENCE = 2.0  # seconds that may pass in silence
OFTEN = 0.5  # seconds between two looks at a clock

Item = TypeVar("Item")


def bar(items: Iterable[Item], name: str, unit: str, progress: bool | None = None) -> Iterable[Item]:
    """The items, with a bar that counts them.

    Args:
        items: What is done one by one.
        name: What is done.
        unit: What one of them is called.
        progress: Whether to draw it; None draws it only in a terminal.
    """
    from tqdm import tqdm  # only when asked for: `--help` answers at once

    hide = None if progress is None else not progress
    return tqdm(items, desc=name, unit=unit, disable=hide, leave=False, delay=PATIENCE)


@contextmanager
def clock(name: str, progress: bool | None = None) -> Iterator[None]:
    """Shows a name and how long it has taken, while something is done whose steps cannot be counted.

    Args:
        name: What is done.
        progress: Whether to draw it; None draws it only in a terminal.
    """
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield
        return
    done = Event()
    ticking = Thread(target=_tick, args=(name, done), name=f"clock: {name}", daemon=True)
    ticking.start()
    try:
        yield
    finally:
        done.set()
        ticking.join()


def _tick(name: str, done: Event) -> None:
    if done.wait(PATIENCE):
        return
    from tqdm import tqdm

    with tqdm(desc=name, bar_format="{desc}: {elapsed}", leave=False) as shown:
        shown.start_t -= PATIENCE
        while not done.wait(OFTEN):
            shown.refresh()
