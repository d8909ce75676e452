"""Which array library computes: NumPy on the host or CuPy on a device, inferred from the arrays themselves.

Numerical functions call :func:`array_namespace` on what they are given and never look at a global setting.
Host data crosses to the device once, at the edge, through :func:`resolve`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

BACKENDS = ("auto", "numpy", "cupy")


def array_namespace(*arrays: Any) -> ModuleType:
    """The module (``numpy`` or ``cupy``) that the arrays belong to.

    Raises ``TypeError`` when host and device arrays are mixed: nothing is copied between them silently.
    Python scalars and ``None`` are ignored.
    """
    cupy = sys.modules.get("cupy")
    on_device = [cupy is not None and isinstance(a, cupy.ndarray) for a in arrays]
    on_host = [isinstance(a, np.ndarray) for a in arrays]
    if any(on_device):
        if any(on_host):
            raise TypeError("host and device arrays are mixed; move them to one side first")
        return cupy
    return np


def to_host(array: Any) -> np.ndarray:
    """A NumPy array with the same values, copied from the device when it lives there."""
    return array.get() if hasattr(array, "get") and not isinstance(array, np.ndarray) else np.asarray(array)


def device_problem() -> str | None:
    """Why CuPy cannot be used here, in one line, or ``None`` when it can."""
    try:
        import cupy
    except ImportError as error:
        return f"cupy cannot be imported ({error})"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no usable CUDA device ({error})"
    return None if count else "no CUDA device"


def resolve(name: str = "auto") -> ModuleType:
    """The array module for a backend name: ``auto`` takes CuPy when a device answers, else NumPy.

    Raises ``ValueError`` for an unknown name and ``RuntimeError`` for ``cupy`` without a device.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend: {name!r} is not allowed; choose one of {', '.join(BACKENDS)}")
    if name == "numpy":
        return np
    problem = device_problem()
    if problem is None:
        import cupy

        return cupy
    if name == "cupy":
        raise RuntimeError(f"backend: 'cupy' needs a CUDA device, but {problem}; use 'numpy' or 'auto'")
    return np
