"""Host kernels of the privacy losses: sort outcomes into loss buckets and sum exponential moments, compiled.

Each does on NumPy arrays what :mod:`optnoise.losses` also writes with array operations (the reference, and
what a device runs). Rows are independent, and the interpreter's lock is released.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def split(a, b, ends, interval, sum_a, sum_b):
    """Interval of every outcome and the sums of both masses by interval, row by row.

    a, b, interval: (W, M); ends, sum_a, sum_b: (W, I). Outcome o lies in the last interval i with
    a_o >= ends_i b_o; ends_0 is 0. A noise is mostly smooth, so the interval is found by walking from the last
    outcome's: no logarithm, no division. Where it jumps, a binary search takes over.
    """
    last = ends.shape[1] - 1
    for w in range(a.shape[0]):
        j = 0
        for o in range(a.shape[1]):
            x, y = a[w, o], b[w, o]
            steps = 0
            while steps < 8 and j < last and x >= ends[w, j + 1] * y:
                j += 1
                steps += 1
            while steps < 8 and x < ends[w, j] * y:
                j -= 1
                steps += 1
            if steps == 8:
                low, high = 0, last
                while low < high:
                    middle = (low + high + 1) // 2
                    if x >= ends[w, middle] * y:
                        low = middle
                    else:
                        high = middle - 1
                j = low
            interval[w, o] = j
            sum_a[w, j] += x
            sum_b[w, j] += y


@_compiled
def gather(interval, per_a, per_b, da, db):
    """Read both tables (W, I) at every outcome's interval, into (W, M)."""
    for w in range(interval.shape[0]):
        for o in range(interval.shape[1]):
            j = interval[w, o]
            da[w, o] = per_a[w, j]
            db[w, o] = per_b[w, j]


@_compiled
def log_ratios(a, b, loss):
    """log(a/b) where both are positive, else 0, into ``loss`` (W, M)."""
    for w in range(a.shape[0]):
        for o in range(a.shape[1]):
            x, y = a[w, o], b[w, o]
            loss[w, o] = 0.0
            if x > 0 and y > 0:
                ratio = x / y
                # At thin edges the quotient leaves the range of float64 where its logarithm does not.
                plain = 1e-290 < ratio < 1e290 and x > 1e-300 and y > 1e-300
                loss[w, o] = math.log(ratio) if plain else math.log(x) - math.log(y)


@_compiled
def moments(mass, loss, order, shift):
    """Sums over outcomes of m, m l and m l^2 with m = mass e^(order l - shift), as three arrays (W,)."""
    rows = mass.shape[0]
    first, second, third = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for w in range(rows):
        for o in range(mass.shape[1]):
            if mass[w, o] > 0:
                value = loss[w, o]
                m = mass[w, o] * math.exp(order[w] * value - shift[w])
                first[w] += m
                second[w] += m * value
                third[w] += m * value * value
    return first, second, third


@_compiled
def moment_gradients(mass, loss, order, shift, scale, da, db):
    """scale (1 + order) e^(order l - shift) and -scale order e^((1 + order) l - shift) where there is mass."""
    for w in range(mass.shape[0]):
        for o in range(mass.shape[1]):
            if mass[w, o] > 0:
                value = loss[w, o]
                power = scale[w] * math.exp(order[w] * value - shift[w])
                da[w, o] = (1.0 + order[w]) * power
                db[w, o] = -order[w] * power * math.exp(min(value, 700.0))
            else:
                da[w, o] = 0.0
                db[w, o] = 0.0
