"""What this process does with memory that it has freed. Imports no torch."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # numbers of parameters in glibc's malloc.h


def keep_freed_memory() -> None:
    """Let the C library keep freed blocks for the next update instead of giving them back to the system.

    By default each block of more than 128 kB comes from the system and goes back to it, and the system clears it page by page:
    a sixth of the time of an update on a processor. An update needs the blocks of the one before, so memory at its peak is the
    same. Libraries without mallopt are left as they are.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)
