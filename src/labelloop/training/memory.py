"""How malloc keeps memory: a setting of the whole process, so commands change it and the library never does."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
ONE_GIB = 2**30


def keep_freed_memory() -> bool:
    """Lets malloc keep memory that training frees, for the next step; returns whether this system supports it.

    By default glibc returns every block above 32 MiB to the system and gets it back page by page. The activations of a
    batch are of that size, so every step would pay for it.
    """
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError, AttributeError):  # musl has no mallopt
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        return all(mallopt(option, ONE_GIB) for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))
    return False
