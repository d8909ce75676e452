"""A stand-in for a device: a module that passes for CuPy, on which every hidden copy is an error.

Its arrays hold NumPy data, refuse to become host arrays unless asked (``.get()``), refuse to be mixed with them, and
refuse to be read as Python numbers or truth values: what would be a hidden copy or a synchronisation on a device is
an error in a test. Where a C++ compiler is present its ``RawModule`` compiles CUDA source for the host and runs it
one thread after another.
"""

from __future__ import annotations

import ctypes
import hashlib
import operator
import subprocess
import types
from pathlib import Path
from typing import Any

import numpy as np


def _unwrap(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return value._data
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type numpy.ndarray: host and device arrays do not mix")
    if isinstance(value, (tuple, list)):
        return type(value)(_unwrap(v) for v in value)
    return value


def _wrap(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return DeviceArray(np.asarray(value))
    if isinstance(value, tuple):
        return tuple(_wrap(v) for v in value)
    return value


class DeviceArray:
    """A NumPy array that behaves as if it were in a device's memory."""

    __array_ufunc__ = None  # NumPy's operators give way to ours, which refuse host arrays

    def __init__(self, data: np.ndarray) -> None:
        self._data = data

    def get(self) -> np.ndarray:
        return self._data.copy()

    def item(self) -> Any:
        return self._data.item()

    @property
    def T(self) -> DeviceArray:
        return DeviceArray(self._data.T)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._data, name)
        if callable(value):
            return lambda *args, **kwargs: _wrap(
                value(*map(_unwrap, args), **{k: _unwrap(v) for k, v in kwargs.items()})
            )
        return value

    def __getitem__(self, key: Any) -> DeviceArray:
        return _wrap(self._data[_unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._data[_unwrap(key)] = _unwrap(value)

    def __len__(self) -> int:
        return len(self._data)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a host value is not allowed; use .get() or .item()")

    __array__ = __float__ = __int__ = __bool__ = __index__ = __complex__ = __iter__ = _refuse
    __hash__ = None


def _operator(function: Any, reflected: bool = False) -> Any:
    def method(self: DeviceArray, other: Any) -> DeviceArray:
        other = _unwrap(other)
        return _wrap(function(other, self._data) if reflected else function(self._data, other))

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    _function = getattr(operator, f"__{_name}__")
    setattr(DeviceArray, f"__{_name}__", _operator(_function))
    setattr(DeviceArray, f"__r{_name}__", _operator(_function, reflected=True))
for _name in ("iadd", "isub", "imul", "itruediv"):
    setattr(DeviceArray, f"__{_name}__", _operator(getattr(operator, f"__{_name}__")))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(DeviceArray, f"__{_name}__", _operator(getattr(operator, f"__{_name}__")))


def _unary(function: Any) -> Any:
    return lambda self: _wrap(function(self._data))


for _name in ("neg", "pos", "abs", "invert"):
    setattr(DeviceArray, f"__{_name}__", _unary(getattr(operator, f"__{_name}__")))


class HostModule:
    """``RawModule`` for the stand-in: the kernels' logic, compiled by the host's C++ compiler."""

    folder: Path  # where compiled sources go, set by the fixture

    def __init__(self, code: str, options: tuple[str, ...] = ()) -> None:
        name = hashlib.sha256(code.encode()).hexdigest()[:16]
        library = self.folder / f"{name}.so"
        if not library.exists():
            source = self.folder / f"{name}.cpp"
            source.write_text(code)
            flags = ["-O1", "-Wall", "-Werror", "-ffp-contract=off", "-shared", "-fPIC", "-DOPTNOISE_HOST"]
            subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True)
        self.library = ctypes.CDLL(str(library))
        self.thread = ctypes.c_longlong.in_dll(self.library, "thread_index")

    def get_function(self, name: str) -> Any:
        kernel = getattr(self.library, name)
        kernel.restype = None
        kinds = {np.int64: ctypes.c_longlong, np.int32: ctypes.c_int, np.float64: ctypes.c_double}

        def convert(argument: Any) -> Any:
            if isinstance(argument, DeviceArray):
                assert argument._data.flags.c_contiguous and argument.dtype in (np.float64, np.int64)
                return ctypes.c_void_p(argument._data.ctypes.data)
            return kinds[type(argument)](argument.item())  # a Python number has no width on a device

        def launch(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            converted = [convert(a) for a in arguments]
            for thread in range(grid[0] * block[0]):
                self.thread.value = thread
                kernel(*converted)

        return launch


class _DeviceNamespace(types.ModuleType):
    """NumPy's functions on :class:`DeviceArray`; ``asarray`` and ``array`` alone take host arrays."""

    def __init__(self, name: str, source: Any) -> None:
        super().__init__(name)
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "RawModule":
            raise AttributeError(name)
        value = getattr(self._source, name)
        if isinstance(value, types.ModuleType):
            return _DeviceNamespace(name, value)
        if isinstance(value, type) or not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if name in ("asarray", "array"):
                args = tuple(a._data if isinstance(a, DeviceArray) else a for a in args)
                return DeviceArray(np.array(*args, **kwargs))
            return _wrap(value(*map(_unwrap, args), **{k: _unwrap(v) for k, v in kwargs.items()}))

        if isinstance(value, np.ufunc):
            call.at = lambda *args: value.at(*map(_unwrap, args))
        return call


def device_stand_in(folder: Path | None = None) -> types.ModuleType:
    """A module that passes for CuPy; with ``folder``, one that can also run CUDA source on the host."""
    module = _DeviceNamespace("cupy", np)
    module.ndarray = DeviceArray
    if folder is not None:
        module.RawModule = type("RawModule", (HostModule,), {"folder": folder})
    return module
