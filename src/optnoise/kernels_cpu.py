"""Stacked sigmoid functions, compiled by Numba: the loops behind :mod:`optnoise.kernels`, which explains them.

Functions stand at the top level, not in a closure, so that Numba finds its own earlier results on disk.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from optnoise.kernels import LANES, LARGEST, TINY


def _compiled(function: Callable) -> Callable:
    """Compiled on first use and kept on disk where that works.

    Sums may be re-ordered to use vector registers: by the compiler, once, so that equal input still gives equal
    bytes.
    """
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder that can be written to
        return numba.njit(**options)(function)


@_compiled
def place(params, base, u, start, stop, x, h, slope, pad):
    """The padded cell nearest to each F, and -C (x - F) there."""
    stacked = base.shape[1]
    low, high = pad // 2, x.size - 1 - pad // 2
    for row in range(start, stop):
        for j in range(stacked):
            f = params[row, 1 + stacked + j]
            t = f / h + (x.size - pad)
            # Comparisons before the conversion to an integer: they send a NaN to the first cell.
            cell = low if not t > low else high if t > high else int(t)
            base[row, j] = cell
            v = slope * (f - x[cell])
            u[row, j] = -LARGEST if v < -LARGEST else LARGEST if v > LARGEST else v


@_compiled
def spread(z, amplitude, e, near, drift):
    for i in range(LANES * (z.size // LANES)):
        z[i] += amplitude / (1.0 + e * near[i] * (1.0 - drift[i]))


@_compiled
def gather(g, e, near, drift):
    value = 0.0
    derivative = 0.0
    for i in range(LANES * (g.size // LANES)):
        ratio = min(e * near[i] * (1.0 - drift[i]), 1e300)
        s = 1.0 / (1.0 + ratio)
        value += g[i] * s
        derivative += g[i] * s * (ratio * s)
    return value, derivative


@_compiled
def forward(params, base, odds, z, start, stop, drift, table, powers, window, pad):
    half = z.shape[1]
    size = drift.size
    stacked = base.shape[1]
    modes = len(powers)
    out = np.empty(size)
    steps = np.empty(size)
    left = np.empty((size, modes))
    right = np.empty((size, modes))
    below = np.empty(modes)
    above = np.empty(modes)
    near = table[pad - window // 2 :]
    ratio_left = table[pad + window // 2 + 1]
    ratio_right = table[pad + window - window // 2]
    for row in range(start, stop):
        out[:] = params[row, 0] * params[row, 0]
        steps[:] = 0.0
        left[:] = 0.0
        right[:] = 0.0
        # Neighbours' windows overlap: every fourth in turn, so that no sum waits for the one before.
        for turn in range(4):
            for j in range(turn, stacked, 4):
                b = params[row, 1 + j]
                amplitude = b * b
                cell = base[row, j]
                begin = cell - window // 2
                e = odds[row, j] * (1.0 + drift[cell])
                spread(out[begin : begin + window], amplitude, e, near, drift[begin : begin + window])
                # Above 1 only for windows wholly in the padding, whose tails nobody reads.
                ratio = min(ratio_left / e, 1.0)
                term = amplitude
                for m in range(modes):
                    term *= ratio
                    left[begin - 1, m] += term
                steps[begin + window] += amplitude
                ratio = min(ratio_right * e, 1.0)
                term = amplitude
                for m in range(modes):
                    term *= ratio
                    right[begin + window, m] += term
        below[:] = 0.0
        above[:] = 0.0
        saturated = 0.0
        for up in range(size):
            down = size - 1 - up
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
        for i in range(half):  # array assignment would double the time to compile
            z[row, i] = out[pad + i]


@_compiled
def backward(params, base, odds, dz, out, start, stop, slope, drift, table, powers, window, pad):
    half = dz.shape[1]
    size = drift.size
    stacked = base.shape[1]
    modes = len(powers)
    g = np.zeros(size)
    after = np.empty(size)
    left = np.empty((size, modes))
    right = np.empty((size, modes))
    below = np.empty(modes)
    above = np.empty(modes)
    near = table[pad - window // 2 :]
    ratio_left = table[pad + window // 2 + 1]
    ratio_right = table[pad + window - window // 2]
    for row in range(start, stop):
        for i in range(half):
            g[pad + i] = dz[row, i]
        below[:] = 0.0
        above[:] = 0.0
        total = 0.0
        for up in range(size):
            down = size - 1 - up
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
            cell = base[row, j]
            begin = cell - window // 2
            e = odds[row, j] * (1.0 + drift[cell])
            value, derivative = gather(g[begin : begin + window], e, near, drift[begin : begin + window])
            value += after[begin + window]
            ratio = min(ratio_left / e, 1.0)
            term = -1.0
            for m in range(modes):
                term *= -ratio
                value += term * left[begin - 1, m]
                derivative += (m + 1) * term * left[begin - 1, m]
            ratio = min(ratio_right * e, 1.0)
            term = -1.0
            for m in range(modes):
                term *= -ratio
                value -= term * right[begin + window, m]
                derivative += (m + 1) * term * right[begin + window, m]
            out[row, 1 + j] = 2.0 * b * value
            out[row, 1 + stacked + j] = -slope * b * b * derivative
