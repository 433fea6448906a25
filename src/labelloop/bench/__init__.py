"""The researcher's side: experiments, grids of experiments, and their tables.

Here: how a process of a bench ends with the one that started it. A worker needs that before all slow imports.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # prctl.h
PARENT = "LABELLOOP_BENCH"  # the variable with the number of the process that started a worker


def end_with_parent(parent: int | None = None) -> None:
    """Asks the system to kill this process when its parent has gone. Only Linux can; elsewhere the pipe has to do.

    Args:
        parent: The process that started this one, if that may have gone already.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
