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
LANES = 8  # windows are a whole number of these, so that their loops fill vector registers
LARGEST = 690.0  # of |u| at a window's centre: what this cuts is below the least normal number


class Band(NamedTuple):
    """The constants of one grid and slope, shared by all rows and both passes.

    A sigmoid's window is ``window`` cells, the cell nearest to F in the middle. Arrays over cells are padded by
    ``pad`` on both sides, beyond which no window reaches. x, drift: (N + 2 pad,). table: e^(-C h n) for the
    offsets n = -pad..pad. powers: q, q^2, .., q^M with q = e^(-C h).
    """

    x: np.ndarray
    drift: np.ndarray
    table: np.ndarray
    powers: tuple[float, ...]
    slope: float
    cell_width: float
    window: int
    pad: int

    @property
    def half(self) -> int:
        """N, the number of cells."""
        return self.x.size - 2 * self.pad


def make_band(x: np.ndarray, cell_width: float, slope: float) -> Band:
    """Constants for cell centres ``x`` (N,), the left half of a grid, and slope C.

    Narrow bands (C h > 3) use one mode and a cutoff at |u| = 39.2, wider ones four modes and 9.8.
    """
    step = slope * cell_width
    modes = 1 if step > 3.0 else 4
    window = LANES * math.ceil((2.0 * LOG_NEGLIGIBLE / modes / step + 3.0) / LANES)
    pad = window + 2
    offsets = np.arange(-pad, pad + 1)
    powers = tuple(math.exp(-step * (m + 1)) for m in range(modes))
    with localcontext(prec=50):
        product = Decimal(slope) * Decimal(cell_width)
        rest = float(product - Decimal(step))
        # The recurrences multiply by the rounded e^(-C h): exact for a step that is longer by ``excess``.
        excess = float(-Decimal(powers[0]).ln() - product) if powers[0] > 1e-290 else 0.0
    with np.errstate(over="ignore", under="ignore"):
        table = np.exp(-step * offsets) * (1.0 - offsets * (rest + excess))
    lattice = x.size - np.arange(-pad, x.size + pad) - 0.5  # cell centres are -lattice h, rounded
    centres = -lattice * cell_width
    centres[pad : pad + x.size] = x
    high = float(np.float32(cell_width))  # both products below are exact: 24 + 18 and 30 + 18 bits
    drift = slope * ((centres + lattice * high) + lattice * (cell_width - high)) + lattice * excess
    return Band(centres, drift, table, powers, float(slope), float(cell_width), window, pad)


def stacked_sigmoids(params: np.ndarray, band: Band) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """z (W, N) with z_i = A^2 + sum_j B_j^2 sigma(C (x_i - F_j)), from rows (A, B_1..B_K, F_1..F_K).

    The second result is for :func:`stacked_sigmoids_pull_back`.
    """
    from optnoise.kernels_cpu import forward, place  # compiles, or loads what is compiled

    params = _plain(params)
    batch, stacked = params.shape[0], (params.shape[1] - 1) // 2
    z = np.empty((batch, band.half))
    base, odds = np.empty((batch, stacked), dtype=np.int32), np.empty((batch, stacked))

    def work(start: int, stop: int) -> None:
        place(params, base, odds, start, stop, band.x, band.cell_width, band.slope, band.pad)
        np.exp(odds[start:stop], out=odds[start:stop])
        forward(params, base, odds, z, start, stop, *_window(band))

    map_rows(work, batch)
    return z, (base, odds)


def stacked_sigmoids_pull_back(
    params: np.ndarray, places: tuple[np.ndarray, np.ndarray], dz: np.ndarray, band: Band
) -> np.ndarray:
    """The gradient (W, 1 + 2K) with respect to the parameters, from the one with respect to z (W, N)."""
    from optnoise.kernels_cpu import backward

    params, dz = _plain(params), _plain(dz)
    out = np.empty(params.shape)
    map_rows(lambda start, stop: backward(params, *places, dz, out, start, stop, band.slope, *_window(band)), len(out))
    return out


def _plain(array: np.ndarray) -> np.ndarray:
    """The array, contiguous and writable: Numba would compile everything anew for any other kind."""
    array = np.ascontiguousarray(array)
    return array if array.flags.writeable else array.copy()


def _window(band: Band) -> tuple:
    return band.drift, band.table, band.powers, band.window, band.pad


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
