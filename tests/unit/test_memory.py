"""Freed memory stays in the process, where the C library can be told so."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

STILL_THERE = """
import sys
import numpy as np
from optnoise.memory import keep_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "kept":
    assert keep_freed_memory()
arrays = [np.ones(1_000_000) for _ in range(20)]
full = resident()
del arrays
print((full - resident()) / 160e6)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep freed memory")
def test_freed_arrays_stay_in_the_process() -> None:
    returned = {
        how: float(subprocess.run([sys.executable, "-c", STILL_THERE, how], capture_output=True, check=True).stdout)
        for how in ("kept", "default")
    }
    assert returned["kept"] < 0.1 < 0.9 < returned["default"]
