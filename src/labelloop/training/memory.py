"""How the C library keeps memory: a setting of the whole process, so commands make it and the library never does."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
ONE_GIB = 2**30


def keep_freed_memory() -> bool:
    """Lets malloc keep what training frees, for the next step; says whether this system knows how.

    By default glibc hands every block above 32 MiB back to the system and gets it again page by page. The activations
    of a batch are of that size, so each step would pay for it.
    """
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError, AttributeError):  # musl has no mallopt
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        return all(mallopt(option, ONE_GIB) for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))
    return False
