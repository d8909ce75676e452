"""Host kernels of the privacy losses: sort outcomes into loss buckets and sum exponential moments, compiled.

Each does on NumPy arrays what :mod:`optnoise.losses` also writes with array operations (the reference, and
what a device runs). Rows are independent, and the interpreter's lock is released.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_compiled = njit(cache=True, nogil=True, error_model="numpy")
# Sums may be re-ordered to use vector registers: by the compiler, once, so that equal input gives equal bytes.
_reordered = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


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
def ratios(a, b, ratio, mass, edge):
    """What a and b, (W, M), share, in one pass.

    ratio: a/b where both are positive and the quotient is of a plain size, 1 where not both are, else NaN. mass: a
    where b is positive, else 0. edge (W,): the sum of the rest of a.
    """
    for w in range(a.shape[0]):
        row_a, row_b, row_ratio, row_mass = a[w], b[w], ratio[w], mass[w]
        # No branches, so that the loop fills vector registers.
        for o in range(row_a.size):
            x, y = row_a[o], row_b[o]
            plain = (x > 1e-300) & (y > 1e-300) & (x < 1e290 * y) & (y < 1e290 * x)
            row_ratio[o] = x / y if plain else (math.nan if (x > 0) & (y > 0) else 1.0)
            row_mass[o] = x if y > 0 else 0.0
        edge[w] = 0.0
        for o in range(row_a.size):
            if not row_b[o] > 0:
                edge[w] += row_a[o]


@_compiled
def mend(a, b, loss):
    """Replace the NaN that extreme quotients left behind in ``loss`` by log a - log b; at thin edges only."""
    for w in range(a.shape[0]):
        for o in range(a.shape[1]):
            if math.isnan(loss[w, o]):
                loss[w, o] = math.log(a[w, o]) - math.log(b[w, o])


@_reordered
def weigh(mass, loss, powers):
    """Multiply ``powers`` by ``mass`` in place; its sums weighted by 1, l and l^2, as three arrays (W,)."""
    rows = mass.shape[0]
    first, second, third = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for w in range(rows):
        s0 = s1 = s2 = 0.0
        for o in range(mass.shape[1]):
            m = powers[w, o] * mass[w, o]
            powers[w, o] = m
            m1 = m * loss[w, o]
            s0 += m
            s1 += m1
            s2 += m1 * loss[w, o]
        first[w], second[w], third[w] = s0, s1, s2
    return first, second, third


@_compiled
def histogram(a, b, loss, least, step, count):
    """Sums of a, a l over outcomes with both masses, by bin of the loss, each (W, count)."""
    mass, moment = np.zeros((a.shape[0], count)), np.zeros((a.shape[0], count))
    for w in range(a.shape[0]):
        scale = 1.0 / step[w]
        for o in range(a.shape[1]):
            if a[w, o] > 0 and b[w, o] > 0:
                i = min(int((loss[w, o] - least[w]) * scale), count - 1)
                mass[w, i] += a[w, o]
                moment[w, i] += a[w, o] * loss[w, o]
    return mass, moment


@_compiled
def newton(mass, loss, epsilon, least_order, most_order, steps, settled, order):
    """Newton's steps on alpha'(order) = epsilon, kept inside a bracket, from ``order`` (W,) and into it.

    alpha(order) = log sum mass e^(order loss). At most ``steps``, until one is shorter than ``settled`` of the order.
    """
    for w in range(mass.shape[0]):
        top = loss[w, 0]
        for o in range(loss.shape[1]):
            top = max(top, loss[w, o])
        low, high, at = least_order, most_order, order[w]
        for _ in range(steps):
            s0 = s1 = s2 = 0.0
            for o in range(mass.shape[1]):
                if mass[w, o] > 0:
                    m = mass[w, o] * math.exp(at * (loss[w, o] - top))
                    m1 = m * loss[w, o]
                    s0 += m
                    s1 += m1
                    s2 += m1 * loss[w, o]
            s0 = max(s0, 1e-300)
            mean = s1 / s0
            slope = mean - epsilon
            if slope > 0:
                high = at
            else:
                low = at
            step = slope / max(s2 / s0 - mean * mean, 1e-300)
            after = min(max(at - min(max(step, -1e12), 1e12), least_order), most_order)
            if not low <= after <= high:
                after = math.sqrt(low * high)  # the bracket spans decades
            short = abs(after - at) <= settled * at
            at = after
            if short:
                break
        order[w] = at


@_compiled
def moment_gradients(a, b, powers, loss, order, scale, edge, da, db):
    """scale (1 + order) powers / a and -scale order powers / b; at distinguishing events ``edge`` and 0.

    powers: a e^(order loss - shift) where both masses are positive.
    """
    for w in range(a.shape[0]):
        up, down, most = scale[w] * (1.0 + order[w]), -scale[w] * order[w], edge[w]
        row_a, row_b, row_powers, row_da, row_db = a[w], b[w], powers[w], da[w], db[w]
        for o in range(row_a.size):
            x, y, m = row_a[o], row_b[o], row_powers[o]
            per_a, per_b = up * (m / x), down * (m / y)
            row_da[o] = most if y <= 0 else per_a if x > 0 else 0.0
            row_db[o] = per_b if (x > 0) & (y > 0) else 0.0
