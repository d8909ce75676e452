"""The paper's noise model: K stacked sigmoid functions, each with a learned place and height.

z_i = A^2 + sum_j B_j^2 sigma(C (x_i - F_j)) on the left half of the grid, C fixed (section 3.1 of the paper;
its softmax(log z) is z / sum z). A sigmoid is 0 or 1 in float64 but for a band of cells round F_j, so nothing
here forms the N x K matrix: on the host Numba kernels compute (:mod:`optnoise.kernels`), on a device CUDA
kernels (:mod:`optnoise.kernels_cuda`), and :func:`stacked_sigmoids`, in plain array operations, is the
reference for both and the fallback for other array modules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from optnoise import kernels, kernels_cuda
from optnoise.backend import array_namespace
from optnoise.noise import half_masses, mirror, mirror_pull_back, step_scales
from optnoise.spec import TrainSpec

START_OFFSET = 10.0  # the paper's A at the start
SATURATED = 37.5  # sigma(u) is 1 in float64 from here on
UNDERFLOW = 745.0  # and 0 from here on, below 0


@dataclass(frozen=True)
class Sigmoid:
    """Rows (A, B_1..B_K, F_1..F_K) of parameters, P = 1 + 2K; F_j may leave [-r, 0], B_j may be 0."""

    batch: int
    stacked: int
    seed: int
    half_width: float
    band: kernels.Band
    x: Any  # the left half's cell centres (N,), in the module xp
    xp: ModuleType

    def initial(self) -> Any:
        """The paper's start: A = 10, B_j uniform on [0, 1], F_j equidistant on [-r, 0)."""
        b = np.random.default_rng(self.seed).uniform(size=self.stacked)
        row = np.concatenate([[START_OFFSET], b, self._places()])
        return self.xp.asarray(np.tile(row, (self.batch, 1)))

    def _places(self) -> np.ndarray:
        return (np.arange(self.stacked) / self.stacked - 1.0) * self.half_width

    def forward(self, params: Any) -> tuple[Any, Any]:
        """See :class:`optnoise.noise.NoiseModel`; ``params`` must not change before the pull-back."""
        places = None
        if isinstance(params, np.ndarray):
            z, places = kernels.stacked_sigmoids(params, self.band)
        elif hasattr(self.xp, "RawModule"):
            z = kernels_cuda.stacked_sigmoids(params, self.x, self.band.slope)
        else:
            z = stacked_sigmoids(params, self.x, self.band.slope, self.band.cell_width)
        p, total = mirror(z)
        return p, (params, places, p, total)

    def pull_back(self, tape: Any, dp: Any) -> Any:
        """See :class:`optnoise.noise.NoiseModel`."""
        params, places, p, total = tape
        dz = mirror_pull_back(p, total, dp)
        if isinstance(params, np.ndarray):
            return kernels.stacked_sigmoids_pull_back(params, places, dz, self.band)
        constants = (self.x, self.band.slope, self.band.cell_width)
        if hasattr(self.xp, "RawModule"):
            return kernels_cuda.stacked_sigmoids_pull_back(params, dz, *constants)
        return stacked_sigmoids_pull_back(params, dz, *constants)

    def bounds(self) -> None:
        """Every real parameter is allowed."""
        return None

    def from_masses(self, p: Any) -> Any:
        """A close fit, not an exact one: sigmoids stay equidistant and rise as ``p`` does between them.

        Where ``p`` is flat or falls, B_j keeps a millionth of its usual size, so that it can grow again.
        """
        xp = array_namespace(p)
        z = half_masses(p, self.batch, self.x.size)
        z = z * ((START_OFFSET**2 + self.stacked / 3.0) / z.max(axis=-1, keepdims=True))
        # Between F_j - r/2K and F_j + r/2K lie these fractions of the cells; z is linear between centres.
        edges = (np.arange(self.stacked + 1) - 0.5) / self.stacked * z.shape[-1] - 0.5
        edges = np.clip(edges, 0.0, z.shape[-1] - 1.0)
        lower = np.minimum(edges.astype(np.int64), max(z.shape[-1] - 2, 0))
        upper = xp.asarray(np.minimum(lower + 1, z.shape[-1] - 1))
        fraction, lower = xp.asarray(edges - lower), xp.asarray(lower)
        at_edges = z[:, lower] * (1.0 - fraction) + z[:, upper] * fraction
        rise = at_edges[:, 1:] - at_edges[:, :-1]
        places = xp.asarray(np.tile(self._places(), (self.batch, 1)))
        b = xp.sqrt(xp.maximum(rise, 1e-12))
        return xp.concatenate([xp.sqrt(xp.maximum(z[:, :1], 0.0)), b, places], axis=-1)

    def scales(self, params: Any, price: Any) -> Any:
        """See :class:`optnoise.noise.NoiseModel`; places count as heights do on average."""
        xp = array_namespace(params, price)
        steps = step_scales(price)
        cells = xp.floor(params[:, 1 + self.stacked :] / self.band.cell_width) + self.x.size
        heights = xp.take_along_axis(steps, xp.clip(cells, 0, self.x.size - 1).astype(np.int64), axis=-1)
        return xp.concatenate([steps[:, :1], heights, xp.ones_like(heights)], axis=-1)


def make_sigmoid(spec: TrainSpec, xp: ModuleType = np) -> Sigmoid:
    """The sigmoid model of a training spec, with its constants in the array module ``xp``."""
    grid = spec.grid
    x = np.ascontiguousarray(grid.centres[: grid.half_cells])
    band = kernels.make_band(x, grid.cell_width, spec.slope)
    return Sigmoid(len(spec.weights), spec.stacked, spec.seed, float(spec.half_width), band, xp.asarray(x), xp)


def _offsets(half: int, slope: float, cell_width: float) -> range:
    """Cells round a sigmoid's own where it is neither 0 nor 1 in float64."""
    reach = UNDERFLOW / (slope * cell_width)
    return range(-min(half, math.ceil(reach) + 1), math.ceil(SATURATED / (slope * cell_width)) + 2)


def _own_cells(f: Any, half: int, cell_width: float, offsets: range) -> Any:
    """The cell each sigmoid's place is in, as integers (W, K), moved to where it still matters."""
    xp = array_namespace(f)
    place = xp.floor(f / cell_width + half)
    return xp.clip(place, -float(offsets.stop), float(half - offsets.start)).astype(np.int64)


def _sigma(u: Any) -> tuple[Any, Any]:
    """(sigma(u), sigma(-u)), neither of which overflows or loses its small values."""
    xp = array_namespace(u)
    e = xp.exp(-xp.abs(u))
    large, small = 1.0 / (1.0 + e), e / (1.0 + e)
    return xp.where(u < 0, small, large), xp.where(u < 0, large, small)


def stacked_sigmoids(params: Any, x: Any, slope: float, cell_width: float) -> Any:
    """z (W, N) from rows (A, B_1..B_K, F_1..F_K), cell centres ``x`` (N,) and slope C; O(K band) operations."""
    xp = array_namespace(params, x)
    batch, half, stacked = params.shape[0], x.size, (params.shape[1] - 1) // 2
    b, f = params[:, 1 : 1 + stacked], params[:, 1 + stacked :]
    offsets = _offsets(half, slope, cell_width)
    own = _own_cells(f, half, cell_width, offsets)
    rows = xp.arange(batch)[:, None]

    def scatter(cells: Any, values: Any, columns: int) -> Any:
        places = (rows * columns + cells).reshape(-1)
        return xp.bincount(places, weights=values.reshape(-1), minlength=batch * columns).reshape(batch, columns)

    steps = scatter(xp.clip(own + offsets.stop, 0, half), b * b, half + 1)
    z = params[:, :1] ** 2 + xp.cumsum(steps, axis=-1)[:, :half]
    for offset in offsets:
        cells = xp.clip(own + offset, 0, half - 1)
        value, _ = _sigma(slope * (x[cells] - f))
        z = z + scatter(cells, xp.where(cells == own + offset, b * b * value, 0.0), half)
    return z


def stacked_sigmoids_pull_back(params: Any, dz: Any, x: Any, slope: float, cell_width: float) -> Any:
    """The gradient (W, 1 + 2K) with respect to the parameters, from the one with respect to z (W, N)."""
    xp = array_namespace(params, dz, x)
    batch, half, stacked = params.shape[0], x.size, (params.shape[1] - 1) // 2
    b, f = params[:, 1 : 1 + stacked], params[:, 1 + stacked :]
    offsets = _offsets(half, slope, cell_width)
    own = _own_cells(f, half, cell_width, offsets)
    after = xp.concatenate([xp.cumsum(dz[:, ::-1], axis=-1)[:, ::-1], xp.zeros((batch, 1))], axis=-1)
    value = xp.take_along_axis(after, xp.clip(own + offsets.stop, 0, half), axis=-1)
    derivative = xp.zeros((batch, stacked))
    for offset in offsets:
        cells = xp.clip(own + offset, 0, half - 1)
        g = xp.where(cells == own + offset, xp.take_along_axis(dz, cells, axis=-1), 0.0)
        sigma, rest = _sigma(slope * (x[cells] - f))
        value = value + g * sigma
        derivative = derivative + g * (sigma * rest)
    da = 2.0 * params[:, :1] * after[:, :1]
    return xp.concatenate([da, 2.0 * b * value, -slope * b * b * derivative], axis=-1)
