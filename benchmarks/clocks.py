"""How things are measured side by side: in turns, by processor time, on a machine that is quiet or said not to be."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

QUIET = 0.35  # processors that other programs may take together
PATIENCE = 60.0  # seconds to wait for that


@dataclass(frozen=True)
class Target:
    """What a measurement shall be: at most or at least a number."""

    bound: float
    most: bool = True

    def met(self, value: float) -> bool:
        return value <= self.bound if self.most else value >= self.bound

    def __str__(self) -> str:
        return f"{'at most' if self.most else 'at least'} {self.bound:g}"


@dataclass(frozen=True)
class Measured:
    """One line of the table.

    Attributes:
        name: What is measured, in a few words.
        values: One a repeat; the median counts.
        target: What it shall be, or None.
        unit: Of the values; empty for a ratio.
        about: Whatever else is worth keeping.
    """

    name: str
    values: list[float]
    target: Target | None = None
    unit: str = ""
    about: Mapping[str, Any] | None = None

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    def to_json(self) -> dict[str, Any]:
        target = None if self.target is None else {"bound": self.target.bound, "most": self.target.most}
        met = None if self.target is None else self.target.met(self.value)
        return {
            "name": self.name, "value": self.value, "values": self.values, "unit": self.unit, "target": target,
            "met": met, "about": dict(self.about or {}),
        }  # fmt: skip


def line(entry: Mapping[str, Any]) -> str:
    """An entry of the JSON as a line of the table."""
    low, high = min(entry["values"]), max(entry["values"])
    spread = (
        f"{_number(low)} to {_number(high)}, {len(entry['values'])} repeats" if len(entry["values"]) > 1 else "once"
    )
    target = entry["target"]
    words = "" if target is None else str(Target(**target))
    verdict = "" if target is None else ("met" if entry["met"] else "MISSED")
    value = f"{_number(entry['value'])} {entry['unit']}".strip()
    return f"| {entry['name']} | {value} | {spread} | {words} | {verdict} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


HEADER = "| what | median | spread | target | |\n|---|---|---|---|---|"


def in_turns(ways: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Processor seconds of each way, one a repeat; the ways take turns, after one turn that is not counted.

    Every other repeat has them the other way round: what comes second finds another cache and another machine.
    """
    for run in ways.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats):
        for name in list(ways)[:: -1 if repeat % 2 else 1]:
            start = time.process_time()
            ways[name]()
            seconds[name].append(time.process_time() - start)
    return seconds


def ratios(seconds: Mapping[str, list[float]], one: str, other: str) -> list[float]:
    """one / other, repeat by repeat."""
    return [a / b for a, b in zip(seconds[one], seconds[other], strict=True)]


def load_of_others(seconds: float = 2.0) -> float:
    """How many processors other programs take just now."""
    before, own = _busy(), time.process_time()
    start = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - start
    return max(0.0, (_busy() - before) - (time.process_time() - own)) / passed


def _busy() -> float:
    """Seconds that all processors have worked so far."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(value) for value in file.readline().split()[1:9]]
    except OSError:  # not Linux
        return 0.0
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(patience: float = PATIENCE) -> float:
    """Waits until other programs let go, for a while; returns what they still take."""
    deadline = time.monotonic() + patience
    load = load_of_others()
    while load > QUIET and time.monotonic() < deadline:
        load = min(load, load_of_others())
    return load


@contextmanager
def one_thread() -> Any:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Usage:
    """What a process of its own took: processor seconds, the most memory in MiB, and where it held that much."""

    seconds: float
    peak_mib: float
    anonymous_mib: float
    where: str


WATCHED = """
import json, sys, threading, time
most, where = [0, 0], [""]
def watch(thread):
    while True:
        with open("/proc/self/status") as file:
            sizes = dict(line.split()[:2] for line in file if line.startswith(("VmRSS", "RssAnon")))
        most[1] = max(most[1], int(sizes["RssAnon:"]))
        if int(sizes["VmRSS:"]) > most[0]:
            most[0], frame, found = int(sizes["VmRSS:"]), sys._current_frames()[thread], []
            while frame is not None:
                if "labelloop" in frame.f_code.co_filename:
                    found.append(frame.f_code.co_name)
                frame = frame.f_back
            where[0] = " < ".join(found[:4])
        time.sleep(0.05)
threading.Thread(target=watch, args=(threading.get_ident(),), daemon=True).start()
from labelloop.cli import main
code = main(sys.argv[1:])
with open("/proc/self/status") as file:  # ru_maxrss would start at what the parent held
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
print("USAGE" + json.dumps([time.process_time(), peak / 1024, most[1] / 1024, where[0]]))
sys.exit(code)
"""


def labelloop(*arguments: object) -> Usage:
    """Runs a command in a process of its own, and says what it took."""
    import json

    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"labelloop {arguments}: {done.stderr[-2000:]}")
    return Usage(*json.loads(done.stdout.rpartition("USAGE")[2]))
