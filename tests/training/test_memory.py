"""The setting of malloc: made on Linux, refused without harm elsewhere, and never by importing the package."""

from __future__ import annotations

import subprocess
import sys

from labelloop import large_arrays

MEASURE = """
import resource, sys
import numpy as np
{first}
for _ in range(30):
    np.ones(6_000_000)  # 48 MB, touched
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults(first: str) -> int:
    """How often a process that makes and frees large arrays had to ask the system for a page."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(first=first)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_freed_memory_is_kept():
    if not sys.platform.startswith("linux"):
        assert not large_arrays.keep_freed_memory()
        return
    keep = "from labelloop.large_arrays import keep_freed_memory; assert keep_freed_memory()"
    assert faults(keep) < 0.5 * faults("import labelloop.large_arrays")


def test_another_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert large_arrays.keep_freed_memory() is False
