"""Array modules that numeric tests run on: NumPy, read-only NumPy, a stand-in for a device, and CuPy."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import device_stand_in

from optnoise import backend


class _ReadOnly(types.ModuleType):
    """NumPy, but what ``asarray`` returns cannot be written to: in-place writes to arguments show."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def asarray(*args: Any, **kwargs: Any) -> np.ndarray:
        array = np.array(*args, **kwargs)
        array.flags.writeable = False
        return array


@pytest.fixture(scope="session")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where CUDA source compiled for the host is kept during one test run."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def host_device(monkeypatch: pytest.MonkeyPatch, compiled_folder: Path) -> types.ModuleType:
    """The stand-in with CUDA kernels compiled for the host; skips where there is no C++ compiler."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: CUDA source cannot be compiled for the host")
    module = device_stand_in(compiled_folder)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.fixture(params=["numpy", "read-only numpy", "device stand-in", "cupy"])
def xp(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An array module: ``xp.asarray`` takes host data in, ``optnoise.backend.to_host`` takes it out."""
    if request.param == "numpy":
        return np
    if request.param == "read-only numpy":
        return _ReadOnly("read_only_numpy")
    if request.param == "device stand-in":
        module = device_stand_in()
        monkeypatch.setitem(sys.modules, "cupy", module)
        return module
    problem = backend.device_problem()
    if problem is not None:
        pytest.skip(problem)
    import cupy

    return cupy
