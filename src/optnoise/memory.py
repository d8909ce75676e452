"""Keeps freed memory in the process, where the C library can be told to."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt's names for them, in malloc.h
KEPT = 512 << 20  # bytes free at the end of the heap before any are returned
LARGEST = 32 << 20  # bytes of one array, the most that mallopt accepts


@cache
def keep_freed_memory() -> bool:
    """Let freed arrays of up to 32 MiB stay in the process for the next ones; whether the C library agreed.

    By default glibc returns large arrays to the system, and a training epoch frees dozens of them: to give pages back
    and get others took a third of its time at the paper's size. Holds for the whole process.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return bool(mallopt and mallopt(MMAP_THRESHOLD, LARGEST) and mallopt(TRIM_THRESHOLD, KEPT))
