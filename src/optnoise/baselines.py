"""Analytic noises on the same grid: truncated Gaussian, Laplace, staircase and uniform, as cell masses.

Each is the exact cell integral of its density, re-normalised to the grid's range and exactly symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr

from optnoise.grid import Grid

FAMILIES = ("gaussian", "laplace", "staircase", "uniform_for_delta", "gaussian_for_delta")


def truncated_gaussian(grid: Grid, sigma: float, *, point_mass: float = 0.0) -> np.ndarray:
    """Cell masses (2N,) of a zero-centred Gaussian with standard deviation ``sigma``, cut at the half-width."""
    _positive("sigma", sigma)
    edges = _edges(grid) / sigma
    # Differences of upper tails in logarithms: relative accuracy survives far out where the tail is 1e-300.
    upper = log_ndtr(-edges)
    half = np.exp(upper[:-1]) * -np.expm1(upper[1:] - upper[:-1])
    return _mirrored(half, grid, point_mass)


def truncated_laplace(grid: Grid, scale: float, *, point_mass: float = 0.0) -> np.ndarray:
    """Cell masses (2N,) of a zero-centred Laplace distribution with the given ``scale``, cut at the half-width."""
    _positive("scale", scale)
    return _mirrored(np.exp(-_edges(grid)[:-1] / scale), grid, point_mass)


def staircase(grid: Grid, epsilon: float, *, point_mass: float = 0.0) -> np.ndarray:
    """Cell masses (2N,) of the L1-optimal staircase (Geng et al. 2015), cut at the half-width.

    Steps lie at s (k + gamma) with gamma = 1 / (1 + e^(epsilon/2)), and each is e^-epsilon of the last.
    A cell that holds a step gets its exact share of both levels.
    """
    _positive("epsilon", epsilon)
    gamma = 1.0 / (1.0 + math.exp(epsilon / 2))
    edges = _edges(grid) / grid.sensitivity
    whole = np.floor(edges)
    # The density's integral from 0 to x: full stairs, then the part of the current one on either level.
    ratio = math.exp(-epsilon)
    full = gamma + (1 - gamma) * ratio
    level = ratio**whole
    part = edges - whole
    integral = full * (1 - level) / (1 - ratio) + level * (
        np.minimum(part, gamma) + ratio * np.maximum(part - gamma, 0.0)
    )
    return _mirrored(np.diff(integral), grid, point_mass)


def uniform(grid: Grid, *, point_mass: float = 0.0) -> np.ndarray:
    """Equal cell masses (2N,)."""
    return _mirrored(np.ones(grid.half_cells), grid, point_mass)


def with_point_mass(p: np.ndarray, mass: float) -> np.ndarray:
    """The mixture (1 - mass) p + mass at zero, the latter split over the two cells beside zero."""
    if not 0 <= mass < 1:
        raise ValueError(f"point_mass: {mass!r} is not allowed; it must be in [0, 1)")
    if mass == 0:
        return p
    mixed = (1.0 - mass) * p
    middle = p.shape[-1] // 2
    mixed[..., middle - 1 : middle + 1] += mass / 2
    return mixed


def _edges(grid: Grid) -> np.ndarray:
    return np.arange(grid.half_cells + 1) * grid.cell_width


def _mirrored(half: np.ndarray, grid: Grid, point_mass: float) -> np.ndarray:
    """Mirror and normalise masses given from the centre outwards."""
    half = half / (2 * math.fsum(half))
    return with_point_mass(np.concatenate([half[::-1], half]), point_mass)


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: {value!r} is not allowed; it must be a positive finite number")


def grid_of(spec: dict, *, parameter: float) -> Grid:
    """The grid of an analytic noise spec; the ``_for_delta`` families choose theirs from the parameter.

    They have one cell per sensitivity: uniform noise of half-width s / (2 delta), and a Gaussian cut at 8 sigma.
    """
    sensitivity = spec.get("sensitivity", 1.0)
    if spec["family"] == "uniform_for_delta":
        half = round(0.5 / _delta(parameter))
        return Grid(half * sensitivity, 2 * half, sensitivity)
    if spec["family"] == "gaussian_for_delta":
        half = math.ceil(8 * _sigma_for_delta(parameter))
        return Grid(half * sensitivity, 2 * half, sensitivity)
    for name in ("half_width", "cells"):
        if name not in spec:
            raise ValueError(f"{name}: missing; a {spec['family']} noise needs it")
    return Grid(spec["half_width"], spec["cells"], sensitivity)


def analytic_noise(spec: dict, *, parameter: float) -> np.ndarray:
    """Cell masses (2N,) of the analytic noise that ``spec`` and one ``parameter`` describe.

    The parameter is sigma (gaussian), scale (laplace), epsilon (staircase), or delta at one release and epsilon 0
    (uniform_for_delta, gaussian_for_delta).
    """
    grid = grid_of(spec, parameter=parameter)
    mass = spec.get("point_mass", 0.0)
    family = spec["family"]
    if family == "gaussian":
        return truncated_gaussian(grid, parameter, point_mass=mass)
    if family == "laplace":
        return truncated_laplace(grid, parameter, point_mass=mass)
    if family == "staircase":
        return staircase(grid, parameter, point_mass=mass)
    if family == "uniform_for_delta":
        return uniform(grid, point_mass=mass)
    if family == "gaussian_for_delta":
        return truncated_gaussian(grid, _sigma_for_delta(parameter) * grid.sensitivity, point_mass=mass)
    raise ValueError(f"family: {family!r} is not allowed; choose one of {', '.join(FAMILIES)}")


def matched_gaussian(grid: Grid, *, utility: float, loss: str) -> np.ndarray:
    """The truncated Gaussian (2N,) on ``grid`` whose E|x| (``l1``) or E x^2 (``l2``) equals ``utility``.

    Raises ``ValueError`` when no sigma reaches it: the uniform noise on the grid has the largest.
    """
    return _matched(truncated_gaussian, grid, utility, loss)


def matched_laplace(grid: Grid, *, utility: float, loss: str) -> np.ndarray:
    """The truncated Laplace noise (2N,) whose E|x| or E x^2 equals ``utility``; see :func:`matched_gaussian`."""
    return _matched(truncated_laplace, grid, utility, loss)


def _matched(make: Callable[[Grid, float], np.ndarray], grid: Grid, utility: float, loss: str) -> np.ndarray:
    from scipy.optimize import brentq

    cost = grid.cost(loss)
    most = float(uniform(grid) @ cost)
    if not utility < most:
        raise ValueError(f"utility: {utility!r} is not allowed; on this grid it must be below {most!r}")

    def excess(log_width: float) -> float:
        return float(make(grid, math.exp(log_width)) @ cost) - utility

    low, high = math.log(grid.cell_width / 100), math.log(grid.half_width)
    if excess(low) >= 0:
        return make(grid, math.exp(low))
    while excess(high) < 0 and high < 60:
        high += 1.0
    if excess(high) < 0:
        return uniform(grid)
    return make(grid, math.exp(brentq(excess, low, high, xtol=1e-14, rtol=1e-14)))


def _delta(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"delta: {value!r} is not allowed; it must be in (0, 1)")
    return value


def _sigma_for_delta(delta: float) -> float:
    """Sigma, in sensitivities, at which an untruncated Gaussian has total variation delta = 2 Phi(1/(2 sigma)) - 1."""
    from scipy.special import ndtri

    return 1.0 / (2.0 * ndtri((1.0 + _delta(delta)) / 2.0))
