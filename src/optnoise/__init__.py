"""Numerically optimal truncated additive noise for differential privacy.

Data flows one way::

    config -> plan, spec -> noise (training, baselines) -> evaluation (accounting) -> frontier -> figures, claims
                                                        -> certificates, mechanism

The names below load their module when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "Grid": "grid",
    "truncated_gaussian": "baselines",
    "truncated_laplace": "baselines",
    "staircase": "baselines",
    "uniform": "baselines",
    "additive_pair": "pairs",
    "subsampled_pair": "pairs",
    "delta_bounds": "accounting",
    "epsilon_bounds": "accounting",
    "TrainSpec": "spec",
    "train": "training",
    "Mechanism": "mechanism",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"optnoise.{_HOME[name]}"), name)
    raise AttributeError(f"module 'optnoise' has no attribute {name!r}")
