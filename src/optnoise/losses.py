"""Privacy losses that training minimises, each with the exact gradient of the value it computes.

A loss takes the two distributions of a worst-case pair, in the order already chosen, with a leading batch
axis, and returns its value and the gradients with respect to both. The privacy loss of an outcome is
log(a/b); outcomes with b = 0 are distinguishing and have infinite loss.

``adp`` and ``pdp`` (Sommer, Meiser and Mohammadi 2019; Doroshenko et al. 2022). Buckets l_j = j t, |j| <= m,
and one at infinity. An outcome with loss between two buckets is split so that its mass under both
distributions is kept. Written with both masses the split is linear on each interval,

    upper = (a - e^(l_j) b) / (1 - e^-t),  lower = a - upper,

so that value and gradient need no division by a vanishing mass, and the interval above the top bucket is the
limit t -> infinity of the same rule. Losses below the bottom bucket are raised to it. Both steps only ever
raise a hockey-stick divergence, composed or not, so that ``adp`` is an upper bound. ``pdp`` is its analogue
for P[loss > epsilon], which is not convex, and therefore no bound. With beta the bucket masses, g the payoff
and V_j = sum_k beta^{*(n-1)}_k g(l_j + l_k),

    delta = sum_j beta_j V_j + 1 - (1 - beta_inf)^n,  d delta/d beta_j = n V_j,
    d delta/d beta_inf = n (1 - beta_inf)^(n-1).

``ma``, the moments accountant with distinguishing events, is minimised over its order at every call.

The bucket width is a constant of each call: given, or chosen by :func:`bucket_width` from the distributions
in steps of 2^(1/4), so that it changes rarely while the noise moves. The gradient is that at a fixed width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from optnoise.backend import array_namespace

# Order of the moments accountant: below the least one the bound is trivial, yet its slope still tells
# where to go; above the greatest one exp(order * loss) says nothing that float64 can hold.
LEAST_ORDER, GREATEST_ORDER = 0.1, 1e6
_HISTOGRAM = 1024


def adp(
    a: Any, b: Any, *, epsilon: float, compositions: int, buckets: int = 1001, width: Any = None, smoothing: float = 0.0
) -> tuple[Any, Any, Any]:
    """(delta, d delta/da, d delta/db) of approximate differential privacy after ``compositions`` rounds.

    a, b: (W, M) masses. width: bucket width, (W,) or a number; None chooses it. smoothing: the standard
    deviation, in units of loss, of a logistic by which the kink of the payoff at epsilon is rounded off from
    above; 0 is the hockey-stick itself. The value is at least the exact delta, up to rounding.
    """
    return _bucketed(a, b, epsilon, compositions, buckets, width, _hockey_stick, smoothing)


def pdp(
    a: Any, b: Any, *, epsilon: float, compositions: int, buckets: int = 1001, width: Any = None, smoothing: float = 0.0
) -> tuple[Any, Any, Any]:
    """(delta, d delta/da, d delta/db) of probabilistic differential privacy, P[loss > epsilon].

    As :func:`adp` with a step for payoff, or a logistic of standard deviation ``smoothing``. The derivative
    comes from the split between buckets.
    """
    return _bucketed(a, b, epsilon, compositions, buckets, width, _step, smoothing)


def ma(
    a: Any, b: Any, *, epsilon: float, compositions: int, buckets: int = 1001, width: Any = None, smoothing: float = 0.0
) -> tuple[Any, Any, Any]:
    """(bound on delta, d/da, d/db) of the moments accountant with distinguishing events.

    With alpha(order) = log sum a (a/b)^order over b > 0, and E = min over order of n alpha - order epsilon
    (convex; safeguarded Newton), the bound is e^E + 1 - (1 - a_inf)^n. Where E > 0 it is trivial and e^E is
    replaced by its tangent 1 + E: still a bound, and finite with a slope wherever training starts. By the
    envelope theorem the order counts as a constant in the gradient. Bucket settings are ignored.
    """
    xp = array_namespace(a, b)
    n = compositions
    with np.errstate(divide="ignore", over="ignore"):
        shared = (a > 0) & (b > 0)
        # Logarithms apart: a/b leaves the range of float64 at thin edges.
        log_a = xp.log(xp.where(shared, a, 1.0))
        loss = log_a - xp.log(xp.where(shared, b, 1.0))
    log_a = xp.where(shared, log_a, -math.inf)
    distinguishing = xp.sum(xp.where(b > 0, 0.0, a), axis=-1)

    order = _best_order(xp, log_a, loss, epsilon / n)
    terms = log_a + order[:, None] * loss
    largest = xp.max(terms, axis=-1)
    largest = xp.where(largest > -math.inf, largest, 0.0)
    powers = xp.exp(terms - largest[:, None])  # a (a/b)^order, scaled
    total = xp.sum(powers, axis=-1)
    nothing_shared = total == 0
    total = xp.where(nothing_shared, 1.0, total)
    exponent = n * (largest + xp.log(total)) - order * epsilon
    exponent = xp.where(nothing_shared, -math.inf, exponent)
    moments = xp.where(exponent > 0, 1.0 + exponent, xp.exp(xp.minimum(exponent, 0.0)))
    slope = n * xp.exp(xp.minimum(exponent, 0.0)) / total

    floor, floor_slope = _distinguishing_events(xp, distinguishing, n)
    share = slope[:, None] * powers
    with np.errstate(over="ignore"):
        da = (1.0 + order)[:, None] * share / xp.where(shared, a, 1.0)
        db = -order[:, None] * share / xp.where(shared, b, 1.0)
    da = xp.where(b > 0, da, floor_slope[:, None])
    return moments + floor, da, db


LOSSES = {"adp": adp, "pdp": pdp, "ma": ma}


def bucket_width(
    a: Any, b: Any, *, epsilon: float, compositions: int, buckets: int = 1001, deviations: float = 6.0
) -> Any:
    """Width t of the buckets, (W,), such that they reach epsilon and what the other rounds can take away.

    The top bucket lies at epsilon + ``deviations`` standard deviations of the sum of the privacy losses
    (counted up to 8 each), never further out than the largest finite loss nor nearer than epsilon. The width
    is rounded up to a power of 2^(1/4), so that it is the same for nearly equal noises, and then so that
    epsilon lies on a bucket where it is wider than one.
    """
    xp = array_namespace(a, b)
    half = _half(buckets)
    loss, mass = _finite_losses(xp, a, b)
    total = xp.maximum(xp.sum(mass, axis=-1), 1e-300)
    clipped = xp.clip(loss, -8.0, 8.0)
    mean = xp.sum(mass * clipped, axis=-1) / total
    square = xp.sum(mass * clipped * clipped, axis=-1) / total
    spread = xp.sqrt(compositions * xp.maximum(square - mean * mean, 0.0))
    largest = xp.max(xp.where(mass > 0, xp.abs(loss), 0.0), axis=-1)
    top = xp.minimum(epsilon + deviations * spread, 1.05 * largest + 1e-6)
    if compositions == 1:
        top = xp.maximum(top, epsilon)
    width = xp.exp2(xp.ceil(4.0 * xp.log2(xp.maximum(top, 1e-6) / half)) / 4.0)
    if epsilon > 0:
        # For one round a bucket at epsilon makes the bucketed delta exact.
        steps = xp.maximum(xp.floor(epsilon / width + 1e-9), 1.0)
        aligned = epsilon / steps
        width = xp.where((epsilon >= width) | (compositions == 1), aligned, width)
    return width


def _bucketed(a, b, epsilon, compositions, buckets, width, payoff, smoothing):
    xp = array_namespace(a, b)
    half = _half(buckets)
    if width is None:
        width = bucket_width(a, b, epsilon=epsilon, compositions=compositions, buckets=buckets)
    width = xp.broadcast_to(xp.asarray(width, dtype=float), a.shape[:1])
    step = width[:, None]
    # Intervals: 0 below the bottom bucket, 1..2m between buckets, 2m + 1 above the top. Interval i has its
    # lower end at bucket i - 1; the coefficients of the split are those of the module's docstring.
    interval = _intervals(xp, a, b, width, half)
    sum_a = _sums_by(xp, interval, a, 2 * half + 2)
    sum_b = _sums_by(xp, interval, b, 2 * half + 2)
    ends = xp.exp(xp.arange(-half, half + 1) * step)
    scale = xp.concatenate(
        [xp.ones_like(step), xp.broadcast_to(-1.0 / xp.expm1(-step), (len(a), 2 * half)), xp.ones_like(step)],
        axis=-1,
    )
    ends = xp.concatenate([xp.zeros_like(step), ends], axis=-1)
    upper = (sum_a - ends * sum_b) * scale
    lower = sum_a - upper
    beta = upper[:, :-1] + 0.0
    beta[:, :] += lower[:, 1:]
    beyond = upper[:, -1]

    values = _values(xp, beta, step, epsilon, compositions, payoff, smoothing)
    floor, floor_slope = _distinguishing_events(xp, beyond, compositions)
    delta = xp.sum(beta * values, axis=-1) + floor

    bucket_slope = xp.concatenate([xp.zeros_like(step), compositions * values, floor_slope[:, None]], axis=-1)
    rise = scale * (bucket_slope[:, 1:] - bucket_slope[:, :-1])
    per_a = bucket_slope[:, :-1] + rise
    per_b = -ends * rise
    return delta, _take(xp, per_a, interval), _take(xp, per_b, interval)


def _values(xp, beta, step, epsilon, compositions, payoff, smoothing):
    """V_j: the expected payoff when one round has the loss of bucket j, (W, 2m + 1)."""
    half = beta.shape[1] // 2
    if compositions == 1:
        return payoff(xp, xp.arange(-half, half + 1) * step, epsilon, smoothing)
    reach = half * compositions
    size = fast_length(2 * reach + 1)
    payoffs = payoff(xp, xp.arange(-reach, reach + 1) * step, epsilon, smoothing)
    others = _power(xp.fft.rfft(beta, size, axis=-1), compositions - 1)
    spectrum = xp.fft.rfft(payoffs, size, axis=-1)
    spectrum *= xp.conj(others)
    return xp.fft.irfft(spectrum, size, axis=-1)[:, : 2 * half + 1]


def fast_length(least: int) -> int:
    """The least 2^a 3^b 5^c that is at least ``least``: a length at which FFTs are fast everywhere."""
    best = 1 << max(least - 1, 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            quotient = -(-least // three)
            best = min(best, three << max(quotient - 1, 0).bit_length())
            three *= 3
        five *= 5
    return best


def _power(base, exponent: int):
    """base ** exponent by repeated squaring: a few products where the general power takes logarithms."""
    result = None
    while True:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if not exponent:
            return result
        base = base * base


def _hockey_stick(xp, loss, epsilon, smoothing):
    if smoothing == 0:
        return -xp.expm1(xp.minimum(epsilon - loss, 0.0))
    # E max(0, 1 - e^(epsilon' - loss)) has no closed form; this majorant is convex in e^-loss, smooth, within
    # log(2) scale of the hockey-stick, and equal to it far from epsilon.
    scale = smoothing * math.sqrt(3) / math.pi
    gap = -xp.expm1(xp.minimum(epsilon - loss, 50.0))
    return xp.maximum(gap, 0.0) + scale * xp.log1p(xp.exp(-xp.abs(gap) / scale))


def _step(xp, loss, epsilon, smoothing):
    if smoothing == 0:
        # Sums of bucket positions carry rounding errors; a loss at epsilon itself must not count.
        return (loss > epsilon * (1 + 1e-12) + 1e-15).astype(float)
    scale = smoothing * math.sqrt(3) / math.pi
    return 0.5 + 0.5 * xp.tanh((loss - epsilon) / (2 * scale))


def _distinguishing_events(xp, mass, compositions):
    """1 - (1 - mass)^n without cancellation, and its derivative."""
    kept = xp.log1p(-xp.clip(mass, 0.0, 1.0 - 2.0**-53))
    return -xp.expm1(compositions * kept), compositions * xp.exp((compositions - 1) * kept)


def _half(buckets: int) -> int:
    if buckets < 3:
        raise ValueError(f"buckets: {buckets!r} is not allowed; it must be at least 3")
    return (buckets - 1) // 2


def _finite_losses(xp, a, b):
    """(loss, mass) with both 0 where one of the distributions has no mass."""
    shared = (a > 0) & (b > 0)
    loss = xp.log(xp.where(shared, a, 1.0)) - xp.log(xp.where(shared, b, 1.0))
    return loss, xp.where(shared, a, 0.0)


def _intervals(xp, a, b, width, half):
    """Index of the interval between buckets that holds log(a/b), (W, M) integers in 0..2m + 1.

    Where both masses are 0 the answer is the topmost: an outcome that enters the support enters on the side
    where the other distribution has no mass yet.
    """
    log_top = (half + 1) * width[:, None]
    with np.errstate(over="ignore"):
        ratio = a / xp.where(b > 0, b, 1.0)
    ratio = xp.where(b > 0, ratio, math.inf)
    loss = xp.log(xp.clip(ratio, xp.exp(-log_top), xp.exp(log_top)))
    index = xp.floor(loss / width[:, None]) + (half + 1)
    return xp.clip(index, 0, 2 * half + 1).astype(np.int32)


def _sums_by(xp, index, mass, count):
    """Sum of ``mass`` by ``index`` per row, (W, count); the same bits every time on either backend."""
    rows = len(mass)
    flat = (index + count * xp.arange(rows, dtype=np.int32)[:, None]).ravel()
    if xp is np:
        return np.bincount(flat, mass.ravel(), minlength=rows * count).reshape(rows, count)
    # Atomic additions of floats come in any order; those of integers do not care. Masses are at most 1.
    sums = xp.zeros(rows * count, dtype=np.uint64)
    xp.add.at(sums, flat, (mass.ravel() * 2.0**62).astype(np.uint64))
    return sums.astype(float).reshape(rows, count) * 2.0**-62


def _take(xp, table, index):
    return xp.take_along_axis(table, index, axis=-1) if len(table) > 1 else table[0][index]


def _best_order(xp, log_a, loss, epsilon):
    """The order that minimises alpha(order) - order epsilon, (W,), within the allowed range.

    Newton's steps on the derivative, kept inside a bracket: first on a histogram of the losses, which is
    cheap and lands within a per mille or so, then on the losses themselves.
    """
    rows = len(loss)
    mass = xp.exp(log_a)
    least, greatest = xp.min(loss, axis=-1), xp.max(loss, axis=-1)
    step = xp.maximum((greatest - least) / _HISTOGRAM, 1e-300)[:, None]
    index = xp.clip(xp.floor((loss - least[:, None]) / step), 0, _HISTOGRAM - 1).astype(np.int32)
    binned = _sums_by(xp, index, mass, _HISTOGRAM)
    with np.errstate(divide="ignore"):
        log_binned = xp.where(binned > 0, xp.log(xp.where(binned > 0, binned, 1.0)), -math.inf)
    middles = least[:, None] + (xp.arange(_HISTOGRAM) + 0.5) * step

    low = xp.full(rows, LEAST_ORDER)
    high = xp.full(rows, GREATEST_ORDER)
    order = xp.ones(rows)
    for _ in range(40):
        order, low, high = _newton(xp, log_binned, middles, epsilon, order, low, high)
    low = xp.full(rows, LEAST_ORDER)
    high = xp.full(rows, GREATEST_ORDER)
    for _ in range(4):
        order, low, high = _newton(xp, log_a, loss, epsilon, order, low, high)
    return order


def _newton(xp, log_mass, loss, epsilon, order, low, high):
    """One Newton step on alpha' = epsilon from ``order``, by bisection of the bracket where it leaves it."""
    terms = log_mass + order[:, None] * loss
    largest = xp.max(terms, axis=-1, keepdims=True)
    powers = xp.exp(terms - xp.where(largest > -math.inf, largest, 0.0))
    total = xp.maximum(xp.sum(powers, axis=-1), 1e-300)
    powers *= loss
    mean = xp.sum(powers, axis=-1) / total
    powers *= loss
    variance = xp.maximum(xp.sum(powers, axis=-1) / total - mean * mean, 1e-300)
    slope = mean - epsilon
    high = xp.where(slope > 0, order, high)
    low = xp.where(slope > 0, low, order)
    # The bracket spans decades, so that its middle is the geometric one.
    step = order - xp.clip(slope / variance, -1e12, 1e12)
    inside = (step >= low) & (step <= high)
    return xp.where(inside, step, xp.sqrt(low * high)), low, high
