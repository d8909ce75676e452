"""Stacked sigmoid functions on the device: CUDA kernels, one thread for each output, no atomics.

A thread gathers what its output needs, so that sums have a fixed order and equal input gives equal bytes:

- forward, one thread a cell: sigmoids are sorted by their place, those more than 37.5 / C to the left count in
  full through a prefix sum, the rest are added until they cannot change the sum;
- backward, one thread a sigmoid: cells that it saturates enter through a suffix sum of the gradient, the rest
  are added, nearest first, until they cannot matter.

The source compiles without a device; with ``OPTNOISE_HOST`` defined it compiles as C++ for the host.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from optnoise.backend import array_namespace

SOURCE = r"""
#ifdef OPTNOISE_HOST
#include <cmath>
using std::exp; using std::fabs;
extern "C" { long long thread_index = 0; }
#define KERNEL extern "C" void
#define THREAD thread_index
#else
#define KERNEL extern "C" __global__ void
#define THREAD ((long long)blockDim.x * blockIdx.x + threadIdx.x)
#endif

#define SATURATED 37.5   /* e^-37.5 is below half a unit in the last place of 1 */
#define UNDERFLOW -745.0 /* e^-745 is the least number above 0 */
#define NEGLIGIBLE 1e-18

/* z[w, i] from places f and amplitudes B^2 sorted by place, below[w, k] = sum of the first k amplitudes. */
KERNEL stacked_sigmoids(double* z, const double* a, const double* f, const double* amplitude,
                        const double* below, const double* x, long long batch, long long half,
                        long long stacked, double slope)
{
    long long t = THREAD;
    if (t >= batch * half) return;
    long long row = t / half;
    double centre = x[t % half];
    f += row * stacked;
    amplitude += row * stacked;
    below += row * (stacked + 1);
    long long low = 0, high = stacked;
    while (low < high) {
        long long middle = (low + high) / 2;
        if (slope * (centre - f[middle]) >= SATURATED) low = middle + 1; else high = middle;
    }
    double sum = a[row] * a[row] + below[low], all = below[stacked];
    for (long long k = low; k < stacked; ++k) {
        double u = slope * (centre - f[k]);
        if (u < UNDERFLOW) break;
        double e = exp(-fabs(u));
        double s = (u < 0.0 ? e : 1.0) / (1.0 + e);
        sum += amplitude[k] * s;
        if (u < 0.0 && s * all <= NEGLIGIBLE * sum) break;
    }
    z[t] = sum;
}

/* Gradients of B and F, in the parameters' own order; after[w, i] = sum of g from cell i on. */
KERNEL stacked_sigmoids_pull_back(double* db, double* df, const double* b, const double* f, const double* g,
                                  const double* after, const double* size, const double* x, long long batch,
                                  long long half, long long stacked, double slope, double cell_width)
{
    long long t = THREAD;
    if (t >= batch * stacked) return;
    long long row = t / stacked;
    g += row * half;
    after += row * (half + 1);
    double edge = (f[t] + SATURATED / slope) / cell_width + (double)half + 0.5;
    long long first = !(edge > 0.0) ? 0 : edge >= (double)half ? half : (long long)edge;
    double value = after[first], derivative = 0.0, seen = 0.0;
    for (long long i = first - 1; i >= 0; --i) {
        double u = slope * (x[i] - f[t]);
        if (u < UNDERFLOW) break;
        double e = exp(-fabs(u));
        double s = (u < 0.0 ? e : 1.0) / (1.0 + e), rest = (u < 0.0 ? 1.0 : e) / (1.0 + e);
        value += g[i] * s;
        derivative += g[i] * (s * rest);
        seen += fabs(g[i]) * s;
        if (u < 0.0 && s * size[row] <= NEGLIGIBLE * seen) break;
    }
    db[t] = 2.0 * b[t] * value;
    df[t] = -slope * b[t] * b[t] * derivative;
}
"""
THREADS = 256


@cache
def _module(xp: ModuleType) -> Any:
    return xp.RawModule(code=SOURCE, options=("--std=c++17",))


def _launch(xp: ModuleType, name: str, count: int, arguments: tuple[Any, ...]) -> None:
    _module(xp).get_function(name)(((count + THREADS - 1) // THREADS,), (THREADS,), arguments)


def stacked_sigmoids(params: Any, x: Any, slope: float) -> Any:
    """z (W, N) with z_i = A^2 + sum_j B_j^2 sigma(C (x_i - F_j)), from rows (A, B_1..B_K, F_1..F_K)."""
    xp = array_namespace(params, x)
    batch, half, stacked = params.shape[0], x.size, (params.shape[1] - 1) // 2
    b, f = params[:, 1 : 1 + stacked], params[:, 1 + stacked :]
    order = xp.argsort(f, axis=-1)
    f = xp.ascontiguousarray(xp.take_along_axis(f, order, axis=-1))
    amplitude = xp.ascontiguousarray(xp.take_along_axis(b * b, order, axis=-1))
    below = xp.zeros((batch, stacked + 1))
    below[:, 1:] = xp.cumsum(amplitude, axis=-1)
    z = xp.empty((batch, half))
    sizes = (np.int64(batch), np.int64(half), np.int64(stacked))
    a = xp.ascontiguousarray(params[:, 0])
    _launch(xp, "stacked_sigmoids", batch * half, (z, a, f, amplitude, below, x, *sizes, np.float64(slope)))
    return z


def stacked_sigmoids_pull_back(params: Any, dz: Any, x: Any, slope: float, cell_width: float) -> Any:
    """The gradient (W, 1 + 2K) with respect to the parameters, from the one with respect to z (W, N)."""
    xp = array_namespace(params, dz, x)
    batch, half, stacked = params.shape[0], x.size, (params.shape[1] - 1) // 2
    g = xp.ascontiguousarray(dz)
    after = xp.zeros((batch, half + 1))
    after[:, :half] = xp.cumsum(g[:, ::-1], axis=-1)[:, ::-1]
    b = xp.ascontiguousarray(params[:, 1 : 1 + stacked])
    f = xp.ascontiguousarray(params[:, 1 + stacked :])
    db, df = xp.empty((batch, stacked)), xp.empty((batch, stacked))
    sizes = (np.int64(batch), np.int64(half), np.int64(stacked))
    constants = (np.float64(slope), np.float64(cell_width))
    arguments = (db, df, b, f, g, after, xp.abs(g).sum(axis=-1), x, *sizes, *constants)
    _launch(xp, "stacked_sigmoids_pull_back", batch * stacked, arguments)
    return xp.concatenate([2.0 * params[:, :1] * after[:, :1], db, df], axis=-1)
