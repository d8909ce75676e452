"""Stacked sigmoid functions on an equally spaced grid in O(N + K band), compiled by Numba for the CPU.

With u = C (x_i - F_j), a sigmoid away from its centre is a power series in e^u, whose sum over j is again a few
geometric sequences in i:

    sigma(u) = sum_{m >= 1} (-1)^(m+1) e^(m u)          for u <= -cutoff,
    sigma(u) = 1 - sum_{m >= 1} (-1)^(m+1) e^(-m u)     for u >= cutoff.

So each sigmoid is evaluated on the cells with |u| < cutoff only; to the left and right it enters M running
sums ("modes"), each one multiplication and one addition a cell, and the 1 of the right tail a step. Every
term has one sign within its mode and the series is cut below 1e-17 of its first term, so the result equals
the dense sum to rounding, tails included. The backward pass is the transpose of the same recurrences.

Cell centres in floating point are off the lattice by up to half a unit in the last place, which moves u by up
to 3e-11 at r = 500, and so is the rounded ratio e^(-C h): ``drift`` = C x_i - (lattice point) carries both to
first order (the second is 1e-21), so that the far tails agree with the dense sum too.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

LOG_NEGLIGIBLE = 39.2  # e^-39.2 = 9.5e-18, below half a unit in the last place of 1
TINY = 1e-300  # added to running sums, which would else decay to subnormal numbers and slow every later cell


class Band(NamedTuple):
    """The constants of one grid and slope, shared by all rows and both passes.

    x, drift: (N,). table: e^(-C h n) for n = -reach..reach. powers: q, q^2, .., q^M with q = e^(-C h).
    width: cells from a sigmoid's centre to the cutoff.
    """

    x: np.ndarray
    drift: np.ndarray
    table: np.ndarray
    powers: tuple[float, ...]
    slope: float
    cell_width: float
    width: float


def make_band(x: np.ndarray, cell_width: float, slope: float) -> Band:
    """Constants for cell centres ``x`` (N,), the left half of a grid, and slope C.

    Narrow bands (C h > 3) use one mode and a cutoff at |u| = 39.2, wider ones four modes and 9.8.
    """
    half = x.size
    step = slope * cell_width
    modes = 1 if step > 3.0 else 4
    width = LOG_NEGLIGIBLE / modes / step
    reach = math.ceil(width) + 3
    offsets = np.arange(-reach, reach + 1)
    powers = tuple(math.exp(-step * (m + 1)) for m in range(modes))
    # The recurrences multiply by the rounded e^(-C h): exact for a step that is longer by ``excess``.
    with localcontext(prec=50):
        ratio = Decimal(powers[0])
        excess = float(-ratio.ln() - Decimal(slope) * Decimal(cell_width)) if ratio > 1e-290 else 0.0
    with np.errstate(over="ignore", under="ignore"):
        table = np.exp(-step * offsets) * (1.0 - offsets * _rest(slope, cell_width)) * (1.0 - offsets * excess)
    lattice = half - np.arange(half) - 0.5  # cell centres are -lattice h, rounded
    high = float(np.float32(cell_width))  # both products below are exact: 24 + 18 and 30 + 18 bits
    drift = slope * ((x + lattice * high) + lattice * (cell_width - high)) + lattice * excess
    return Band(np.ascontiguousarray(x), drift, table, powers, float(slope), float(cell_width), float(width))


def _rest(slope: float, cell_width: float) -> float:
    """What rounding took from the product C h."""
    with localcontext(prec=50):
        return float(Decimal(slope) * Decimal(cell_width) - Decimal(slope * cell_width))


@cache
def _compiled() -> tuple[Callable, Callable]:
    """(forward, backward) for a range of rows, compiled on first use and cached on disk where that works."""
    import numba

    def compile_(**options: object) -> Callable:
        def decorate(function: Callable) -> Callable:
            try:
                return numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
            except RuntimeError:  # no folder that can be written to
                return numba.njit(nogil=True, error_model="numpy", **options)(function)

        return decorate

    # Sums may be re-ordered to use vector registers: by the compiler, once, so that equal input still gives
    # equal bytes.
    fast = compile_(fastmath={"reassoc", "contract", "nsz"})
    place = compile_()(_place)

    @compile_()
    def odds(u):
        """e^-u, kept in range: where this clips, the result is below the least normal number."""
        if u > 690.0:
            u = 690.0
        elif u < -690.0:
            u = -690.0
        return math.exp(-u)

    @fast
    def spread(z, amplitude, e, table, drift):
        for i in range(z.size):
            z[i] += amplitude / (1.0 + e * table[i] * (1.0 - drift[i]))

    @fast
    def gather(g, e, table, drift):
        value = 0.0
        derivative = 0.0
        for i in range(g.size):
            ratio = e * table[i] * (1.0 - drift[i])
            s = g[i] / (1.0 + ratio)
            value += s
            derivative += s * (ratio / (1.0 + ratio))
        return value, derivative

    @fast
    def forward(params, z, start, stop, x, drift, table, powers, slope, h, width):
        half = x.size
        stacked = (params.shape[1] - 1) // 2
        modes = len(powers)
        reach = (table.size - 1) // 2
        left = np.empty((half, modes))
        right = np.empty((half, modes))
        steps = np.empty(half)
        below = np.empty(modes)
        above = np.empty(modes)
        for row in range(start, stop):
            left[:] = 0.0
            right[:] = 0.0
            steps[:] = 0.0
            out = z[row]
            out[:] = params[row, 0] * params[row, 0]
            for j in range(stacked):
                b = params[row, 1 + j]
                f = params[row, 1 + stacked + j]
                amplitude = b * b
                last, base, first = place(f, h, width, half)
                e = odds(slope * (x[base] - f)) * (1.0 + drift[base])
                begin = last + 1
                spread(out[begin:first], amplitude, e, table[reach + begin - base :], drift[begin:])
                if last >= 0:
                    ratio = table[reach + base - last] / e
                    term = amplitude
                    for m in range(modes):
                        term *= ratio
                        left[last, m] += term
                if first < half:
                    steps[first] += amplitude
                    ratio = table[reach + first - base] * e
                    term = amplitude
                    for m in range(modes):
                        term *= ratio
                        right[first, m] += term
            below[:] = 0.0
            above[:] = 0.0
            saturated = 0.0
            for up in range(half):
                down = half - 1 - up
                rising = 0.0
                falling = 0.0
                sign = 1.0
                for m in range(modes):
                    below[m] = below[m] * powers[m] + (left[down, m] + TINY)
                    above[m] = above[m] * powers[m] + (right[up, m] + TINY)
                    rising += sign * below[m] * (1.0 + (m + 1) * drift[down])
                    falling += sign * above[m] * (1.0 - (m + 1) * drift[up])
                    sign = -sign
                saturated += steps[up]
                out[down] += rising
                out[up] += saturated - falling

    @fast
    def backward(params, dz, out, start, stop, x, drift, table, powers, slope, h, width):
        half = x.size
        stacked = (params.shape[1] - 1) // 2
        modes = len(powers)
        reach = (table.size - 1) // 2
        left = np.empty((half, modes))
        right = np.empty((half, modes))
        after = np.empty(half)
        below = np.empty(modes)
        above = np.empty(modes)
        for row in range(start, stop):
            g = dz[row]
            below[:] = 0.0
            above[:] = 0.0
            total = 0.0
            for up in range(half):
                down = half - 1 - up
                total += g[down]
                after[down] = total
                for m in range(modes):
                    below[m] = below[m] * powers[m] + (g[up] * (1.0 + (m + 1) * drift[up]) + TINY)
                    above[m] = above[m] * powers[m] + (g[down] * (1.0 - (m + 1) * drift[down]) + TINY)
                    left[up, m] = below[m]
                    right[down, m] = above[m]
            out[row, 0] = 2.0 * params[row, 0] * total
            for j in range(stacked):
                b = params[row, 1 + j]
                f = params[row, 1 + stacked + j]
                last, base, first = place(f, h, width, half)
                e = odds(slope * (x[base] - f)) * (1.0 + drift[base])
                begin = last + 1
                value, derivative = gather(g[begin:first], e, table[reach + begin - base :], drift[begin:])
                if last >= 0:
                    ratio = table[reach + base - last] / e
                    term = -1.0
                    for m in range(modes):
                        term *= -ratio
                        value += term * left[last, m]
                        derivative += (m + 1) * term * left[last, m]
                if first < half:
                    value += after[first]
                    ratio = table[reach + first - base] * e
                    term = -1.0
                    for m in range(modes):
                        term *= -ratio
                        value -= term * right[first, m]
                        derivative += (m + 1) * term * right[first, m]
                out[row, 1 + j] = 2.0 * b * value
                out[row, 1 + stacked + j] = -slope * b * b * derivative

    return forward, backward


def _place(f, h, width, half):
    """(last cell of the left tail or -1, cell nearest to f, first cell of the right tail or N).

    Comparisons come before the conversion to an integer, so that a NaN is sent to cell 0.
    """
    t = f / h + (half - 0.5)
    if not t > -width - 1.0:
        return -1, 0, 0
    if t > half + width + 1.0:
        return half - 1, half - 1, half
    last = min(max(math.floor(t - width), -1), half - 1)
    first = min(max(math.ceil(t + width), 0), half)
    base = min(max(math.floor(t + 0.5), 0), half - 1)
    return last, base, first


def stacked_sigmoids(params: np.ndarray, band: Band) -> np.ndarray:
    """z (W, N) with z_i = A^2 + sum_j B_j^2 sigma(C (x_i - F_j)), from rows (A, B_1..B_K, F_1..F_K)."""
    forward, _ = _compiled()
    z = np.empty((params.shape[0], band.x.size))
    map_rows(lambda start, stop: forward(params, z, start, stop, *band), params.shape[0])
    return z


def stacked_sigmoids_pull_back(params: np.ndarray, dz: np.ndarray, band: Band) -> np.ndarray:
    """The gradient (W, 1 + 2K) with respect to the parameters, from the one with respect to z (W, N)."""
    _, backward = _compiled()
    out = np.empty(params.shape)
    map_rows(lambda start, stop: backward(params, dz, out, start, stop, *band), params.shape[0])
    return out


def threads() -> int:
    """Processors this process may use, at most ``OMP_NUM_THREADS`` where that is set."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(available, int(limit))) if limit.isdigit() else available


def map_rows(work: Callable[[int, int], None], rows: int) -> None:
    """Call ``work(start, stop)`` on row ranges that cover 0..rows, in threads where there are several.

    Rows are independent, so the result does not depend on the number of threads. A caller that is itself a
    worker thread has split its work already and gets no further threads.
    """
    main = threading.current_thread() is threading.main_thread()
    count = min(threads(), rows) if main else 1
    if count <= 1:
        work(0, rows)
        return
    edges = [rows * k // count for k in range(count + 1)]
    for future in [_pool(count).submit(work, a, b) for a, b in pairwise(edges)]:
        future.result()


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    """Worker threads, kept: starting them costs as much as a narrow pass."""
    return ThreadPoolExecutor(count, thread_name_prefix="optnoise")
