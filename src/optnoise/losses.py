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

The buckets are a constant of each call (:class:`Buckets`): given, or chosen by :func:`choose_buckets` from the
distributions in steps of 2^(1/4), so that they change rarely while the noise moves. The gradient is that with
the buckets held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from optnoise.backend import array_namespace

# Order of the moments accountant: below the least one the bound is trivial, yet its slope still tells
# where to go; above the greatest one exp(order * loss) says nothing that float64 can hold.
LEAST_ORDER, GREATEST_ORDER = 0.1, 1e6
SETTLED = 1e-6  # of the order, in one step of Newton's: what is left then is about its square
_BINS = 1024
# Circular convolutions are no longer than this many buckets' reach m; see choose_buckets.
_REACHES = 16
_HALVINGS = 6


@dataclass(frozen=True)
class Buckets:
    """What the bucketed losses need to know that does not depend on the distributions.

    width: (W,) widths t. half: m. compositions: n. ends, scale: (W, 2m + 2), the lower ends e^(l_j) of the
    intervals (the first, below the bottom bucket, is 0) and 1/(1 - e^-t) or 1 at both extremes. payoffs: g on
    the buckets (n = 1), else its spectrum for convolutions of length ``size``. tilt: theta of the Chernoff bound on
    what leaves a circle, (W,), None where nothing can.
    """

    width: Any
    half: int
    compositions: int
    ends: Any
    scale: Any
    payoffs: Any
    size: int
    tilt: Any = None


def adp(
    a: Any,
    b: Any,
    *,
    epsilon: float,
    compositions: int,
    buckets: int | Buckets = 1001,
    width: Any = None,
    smoothing: float = 0.0,
) -> tuple[Any, Any, Any]:
    """(delta, d delta/da, d delta/db) of approximate differential privacy after ``compositions`` rounds.

    a, b: (W, M) masses. buckets: 2m + 1, or a prepared :class:`Buckets`, which then stands for all other
    settings. width: of the buckets, (W,) or a number; None chooses it. smoothing: scale over which the kink
    of the payoff at epsilon is rounded off, from above; 0 is the hockey-stick itself. The value is at least
    the exact delta, up to rounding.
    """
    return _bucketed(a, b, "adp", epsilon, compositions, buckets, width, smoothing)


def pdp(
    a: Any,
    b: Any,
    *,
    epsilon: float,
    compositions: int,
    buckets: int | Buckets = 1001,
    width: Any = None,
    smoothing: float = 0.0,
) -> tuple[Any, Any, Any]:
    """(delta, d delta/da, d delta/db) of probabilistic differential privacy, P[loss > epsilon].

    As :func:`adp` with a step for payoff, or a logistic of scale ``smoothing``. The derivative comes from the
    split between buckets.
    """
    return _bucketed(a, b, "pdp", epsilon, compositions, buckets, width, smoothing)


def ma(
    a: Any,
    b: Any,
    *,
    epsilon: float,
    compositions: int,
    buckets: int | Buckets = 1001,
    width: Any = None,
    smoothing: float = 0.0,
) -> tuple[Any, Any, Any]:
    """(bound on delta, d/da, d/db) of the moments accountant with distinguishing events.

    With alpha(order) = log sum a (a/b)^order over b > 0, and E = min over order of n alpha - order epsilon
    (convex; safeguarded Newton), the bound is e^E + 1 - (1 - a_inf)^n. Where E > 0 it is trivial and e^E is
    replaced by its tangent 1 + E: still a bound, and finite with a slope wherever training starts. By the
    envelope theorem the order counts as a constant in the gradient. smoothing: keeps the order below its inverse,
    at which the largest losses do not yet outweigh all others; still a bound. Bucket settings are ignored.
    """
    xp = array_namespace(a, b)
    n = compositions
    loss, mass, distinguishing = _shared(xp, a, b)
    extremes = xp.min(loss, axis=-1), xp.max(loss, axis=-1)

    greatest = GREATEST_ORDER if smoothing == 0 else 1.0 / smoothing
    order = _best_order(xp, a, b, mass, loss, extremes, epsilon / n, greatest)
    shift = order * extremes[1]
    powers, (total, _, _) = _moments(xp, mass, loss, order, shift)
    nothing_shared = total == 0
    total = xp.where(nothing_shared, 1.0, total)
    exponent = n * (shift + xp.log(total)) - order * epsilon
    exponent = xp.where(nothing_shared, -math.inf, exponent)
    bounded = xp.exp(xp.minimum(exponent, 0.0))
    value = xp.where(exponent > 0, 1.0 + exponent, bounded)
    floor, floor_slope = _distinguishing_events(xp, distinguishing, n)
    # Where one mass near the least float outweighs all others, a shorter gradient, not an infinite one.
    gradients = _moment_gradients(xp, a, b, powers, loss, order, n * bounded / xp.maximum(total, 1e-290), floor_slope)
    return value + floor, *gradients


LOSSES = {"adp": adp, "pdp": pdp, "ma": ma}


def choose_buckets(
    a: Any,
    b: Any,
    *,
    epsilon: float,
    compositions: int,
    buckets: int = 1001,
    kind: str = "adp",
    smoothing: float = 0.0,
    finer: int = 1,
) -> Buckets:
    """Buckets that reach epsilon and whatever the other rounds can take away, for distributions like these.

    Let mu be the standard deviation of the sum of the privacy losses, each counted up to 8. The top bucket
    lies at epsilon + 6 mu, but not much beyond the largest finite loss. That is more than a few thin
    edges are worth where the buckets are then too wide for the bulk: of this width and its halves,
    quarters and so on the one with the least delta is taken, all of them being upper bounds. Widths are powers of
    2^(1/4), so that nearly equal noises have the same; for one round epsilon lies on a bucket, which makes the
    bucketed delta exact.

    A convolution of n rounds reaches n m buckets, almost all of them empty. Beyond 16 m it is done on a circle
    of that length, at least 20 mu round, on which sums from 7/20 of it below zero downwards are
    given the payoff 1, so that what wraps around from below is over-counted. What could wrap around from above is
    bounded by e^(-theta T) (E e^(theta loss))^n, theta = 6/mu, T the end of the circle, and added to delta: nothing
    as long as the distributions resemble those given here, and a slope back to them otherwise.

    finer: so many times as many buckets, each so much narrower, over the same reach; the search is over the wide ones.
    """
    xp = array_namespace(a, b)
    half = _half(buckets)
    size, fine_size = _circle(half, compositions), _circle(half * finer, compositions)
    loss, mass, _ = _shared(xp, a, b)
    total = xp.maximum(xp.sum(mass, axis=-1), 1e-300)
    clipped = xp.clip(loss, -8.0, 8.0)
    mean = xp.sum(mass * clipped, axis=-1) / total
    square = xp.sum(mass * clipped * clipped, axis=-1) / total
    spread = xp.sqrt(compositions * xp.maximum(square - mean * mean, 0.0))
    largest = xp.max(xp.abs(loss), axis=-1)
    top = xp.minimum(epsilon + xp.minimum(6.0 * spread, 8.0), 1.05 * largest + 1e-6)
    least = xp.full_like(top, 1e-6 / half)
    tilt = None
    if size and fine_size:
        length = min(size, fine_size / finer)
        centre = xp.maximum(compositions * mean, 0.0)
        least = xp.maximum(least, xp.maximum(20.0 * spread, 20.0 / 11.0 * (epsilon + centre + 9.0 * spread)) / length)
        tilt = 6.0 / xp.maximum(spread, least)
    else:
        size = fine_size = 0
    width = xp.exp2(xp.ceil(4.0 * xp.log2(xp.maximum(top / half, least))) / 4.0)
    if compositions == 1:
        if epsilon > 0:
            width = epsilon / xp.clip(xp.floor(epsilon / width), 1.0, half)
        return _prepare(xp, kind, width / finer, half * finer, epsilon, compositions, smoothing, 0)

    best, best_delta = width, None
    for _ in range(_HALVINGS):
        plan = _prepare(xp, "adp", width, half, epsilon, compositions, smoothing, size, tilt)
        delta = _bucketed_delta(xp, plan, *_split(xp, a, b, plan)[1:])[0]
        if best_delta is None:
            best_delta = delta
        best = xp.where(delta < best_delta, width, best)
        best_delta = xp.minimum(delta, best_delta)
        width = xp.where(0.5 * width >= least, 0.5 * width, width)
    return _prepare(xp, kind, best / finer, half * finer, epsilon, compositions, smoothing, fine_size, tilt)


def _bucketed(a, b, kind, epsilon, compositions, buckets, width, smoothing):
    xp = array_namespace(a, b)
    if isinstance(buckets, Buckets):
        plan = buckets
    elif width is None:
        plan = choose_buckets(
            a, b, epsilon=epsilon, compositions=compositions, buckets=buckets, kind=kind, smoothing=smoothing
        )
    else:
        width = xp.broadcast_to(xp.asarray(width, dtype=float), a.shape[:1])
        plan = _prepare(xp, kind, width, _half(buckets), epsilon, compositions, smoothing, 0)
    interval, sum_a, sum_b = _split(xp, a, b, plan)
    delta, values, floor_slope = _bucketed_delta(xp, plan, sum_a, sum_b)
    slope = xp.concatenate([xp.zeros_like(values[:, :1]), plan.compositions * values, floor_slope[:, None]], -1)
    rise = plan.scale * (slope[:, 1:] - slope[:, :-1])
    return delta, *_gather(xp, interval, slope[:, :-1] + rise, -plan.ends * rise)


def _bucketed_delta(xp, plan: Buckets, sum_a, sum_b):
    """(delta (W,), V_j, d delta/d beta_inf) from both masses by interval."""
    upper = (sum_a - plan.ends * sum_b) * plan.scale
    beta = upper[:, :-1] + (sum_a - upper)[:, 1:]
    values = _values(xp, beta, plan)
    floor, floor_slope = _distinguishing_events(xp, upper[:, -1], plan.compositions)
    delta = xp.sum(beta * values, axis=-1) + floor
    if plan.tilt is not None:
        powers = xp.exp(xp.minimum(plan.tilt[:, None] * plan.width[:, None] * _positions(xp, plan.half), 600.0))
        moment = xp.maximum(xp.sum(beta * powers, axis=-1), 1e-300)
        end = plan.width * (plan.size + _lowest(plan.size))
        exponent = plan.compositions * xp.log(moment) - plan.tilt * end
        bound = xp.exp(xp.minimum(exponent, 0.0))
        delta = delta + xp.where(exponent > 0, 1.0 + exponent, bound)
        values = values + (bound / moment)[:, None] * powers
    return delta, values, floor_slope


def _positions(xp, reach: int):
    return xp.arange(-reach, reach + 1)


def _prepare(xp, kind, width, half, epsilon, compositions, smoothing, size, tilt=None) -> Buckets:
    step = width[:, None]
    one = xp.ones_like(step)
    ends = xp.exp(xp.minimum(_positions(xp, half) * step, 700.0))
    inner = xp.broadcast_to(-1.0 / xp.expm1(-step), (len(width), 2 * half))
    if compositions == 1:
        payoffs = PAYOFFS[kind](xp, _positions(xp, half) * step, epsilon, smoothing)
    else:
        reach = half * compositions
        lowest = _lowest(size) if size else -reach
        guarded = size // 10
        size = size or fast_length(2 * reach + 1)
        # Place i holds the sum of losses (i - n m) t; on the circle, the one of those that lies in its window.
        place = (xp.arange(size) - reach - lowest) % size
        payoffs = PAYOFFS[kind](xp, (place + lowest) * step, epsilon, smoothing)
        payoffs = xp.fft.rfft(xp.where(place < guarded, 1.0, payoffs), axis=-1)
    return Buckets(
        width=width,
        half=half,
        compositions=compositions,
        ends=xp.concatenate([0.0 * one, ends], axis=-1),
        scale=xp.concatenate([one, inner, one], axis=-1),
        payoffs=payoffs,
        size=size,
        tilt=tilt,
    )


def _values(xp, beta, plan: Buckets):
    """V_j: the expected payoff when one round has the loss of bucket j, (W, 2m + 1)."""
    if plan.compositions == 1:
        return plan.payoffs
    others = _power(xp.fft.rfft(beta, plan.size, axis=-1), plan.compositions - 1)
    return xp.fft.irfft(plan.payoffs * xp.conj(others), plan.size, axis=-1)[:, : 2 * plan.half + 1]


def _circle(half: int, compositions: int) -> int:
    """Length of the circular convolution, 0 where the linear one is no longer."""
    size = fast_length(_REACHES * half)
    return 0 if compositions == 1 or size >= fast_length(2 * half * compositions + 1) else size


def _lowest(size: int) -> int:
    """The lowest place, in buckets from zero, that a circle of this length stands for."""
    return -9 * size // 20


def fast_length(least: int) -> int:
    """The least 2^a 3^b 5^c that is at least ``least`` and a multiple of 8: fast Fourier transforms like it."""
    best = 8 << max(-(-least // 8) - 1, 0).bit_length()
    five = 8
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
    gap = -xp.expm1(xp.minimum(epsilon - loss, 50.0))
    if smoothing == 0:
        return xp.maximum(gap, 0.0)
    # Convex in e^-loss like the hockey-stick, above it by at most log(2) smoothing, equal far from the kink.
    return xp.maximum(gap, 0.0) + smoothing * xp.log1p(xp.exp(-xp.abs(gap) / smoothing))


def _step(xp, loss, epsilon, smoothing):
    if smoothing == 0:
        # Sums of bucket positions carry rounding errors; a loss at epsilon itself must not count.
        return (loss > epsilon * (1 + 1e-12) + 1e-15).astype(float)
    return 0.5 + 0.5 * xp.tanh((loss - epsilon) / (2 * smoothing))


# The losses that sort outcomes into buckets, by what a bucket pays.
PAYOFFS = {"adp": _hockey_stick, "pdp": _step}


def _distinguishing_events(xp, mass, compositions):
    """1 - (1 - mass)^n without cancellation, and its derivative."""
    kept = xp.log1p(-xp.clip(mass, 0.0, 1.0 - 2.0**-53))
    return -xp.expm1(compositions * kept), compositions * xp.exp((compositions - 1) * kept)


def _half(buckets: int) -> int:
    if buckets < 3:
        raise ValueError(f"buckets: {buckets!r} is not allowed; it must be at least 3")
    return (buckets - 1) // 2


def _shared(xp, a, b):
    """log(a/b) where both masses are positive, else 0; a where b is positive, else 0; and the sum of the rest of a."""
    if xp is np:
        from optnoise import bucketing

        loss, mass, edge = np.empty(a.shape), np.empty(a.shape), np.empty(len(a))
        bucketing.ratios(a, b, loss, mass, edge)
        np.log(loss, out=loss)
        if math.isnan(loss.sum()):
            bucketing.mend(a, b, loss)
        return loss, mass, edge
    both, mass = (a > 0) & (b > 0), xp.where(b > 0, a, 0.0)
    # Logarithms apart: a/b leaves the range of float64 at thin edges.
    loss = xp.log(xp.where(both, a, 1.0)) - xp.log(xp.where(both, b, 1.0))
    return loss, mass, xp.sum(a - mass, axis=-1)


def _split(xp, a, b, plan: Buckets):
    """The interval between buckets that holds log(a/b), (W, M) integers in 0..2m + 1, and both masses by it.

    Where both masses are 0 the answer is the topmost: an outcome that enters the support enters on the side
    where the other distribution has no mass yet.
    """
    if xp is np:
        from optnoise import bucketing

        interval = np.empty(a.shape, dtype=np.int32)
        sum_a, sum_b = np.zeros(plan.ends.shape), np.zeros(plan.ends.shape)
        bucketing.split(a, b, plan.ends, interval, sum_a, sum_b)
        return interval, sum_a, sum_b
    interval = intervals(xp, a, b, plan)
    return interval, sums_by(xp, interval, a, plan.ends.shape[1]), sums_by(xp, interval, b, plan.ends.shape[1])


def intervals(xp, a, b, plan: Buckets):
    """The interval that holds log(a/b), by array operations alone."""
    width, half = plan.width[:, None], plan.half
    ratio = xp.where(b > 0, xp.minimum(a, 1e300 * b) / xp.where(b > 0, b, 1.0), 1e300)
    index = xp.floor(xp.log(xp.maximum(ratio, 1e-300)) / width) + (half + 1)
    return xp.clip(index, 0, 2 * half + 1).astype(np.int32)


def sums_by(xp, index, mass, count):
    """Sum of ``mass`` by ``index`` per row, (W, count); the same bits every time on either backend."""
    rows = len(mass)
    flat = (index + count * xp.arange(rows, dtype=np.int32)[:, None]).ravel()
    if xp is np:
        return np.bincount(flat, mass.ravel(), minlength=rows * count).reshape(rows, count)
    # Atomic additions of floats come in any order; those of integers do not care. Masses are at most 1.
    sums = xp.zeros(rows * count, dtype=np.uint64)
    xp.add.at(sums, flat, (mass.ravel() * 2.0**62).astype(np.uint64))
    return sums.astype(float).reshape(rows, count) * 2.0**-62


def _gather(xp, interval, per_a, per_b):
    if xp is np:
        from optnoise import bucketing

        da, db = np.empty(interval.shape), np.empty(interval.shape)
        bucketing.gather(interval, per_a, per_b, da, db)
        return da, db
    return xp.take_along_axis(per_a, interval, axis=-1), xp.take_along_axis(per_b, interval, axis=-1)


def _best_order(xp, a, b, mass, loss, extremes, epsilon, most_order):
    """The order that minimises alpha(order) - order epsilon, (W,), within the allowed range.

    Newton's steps on the derivative, kept inside a bracket: first on a histogram of the losses, each bin at its
    mean loss, which is cheap and lands within about a millionth, then on the losses themselves.
    """
    least, greatest = extremes
    step = xp.maximum((greatest - least) / _BINS, 1e-300)
    if xp is np:
        from optnoise import bucketing

        binned, moment = bucketing.histogram(a, b, loss, least, step, _BINS)
    else:
        index = xp.clip(xp.floor((loss - least[:, None]) / step[:, None]), 0, _BINS - 1).astype(np.int32)
        binned = sums_by(xp, index, mass, _BINS)
        moment = binned * (least[:, None] + (xp.arange(_BINS) + 0.5) * step[:, None])
    means = xp.where(binned > 0, moment / xp.where(binned > 0, binned, 1.0), least[:, None])
    order = xp.ones(len(loss))
    parts = [(binned, means, 30), (mass, loss, 2)]
    if xp is np:
        bucketing.newton(*parts.pop(0)[:2], epsilon, LEAST_ORDER, most_order, 30, SETTLED, order)
    for some_mass, some_loss, most in parts:
        low, high = xp.full_like(order, LEAST_ORDER), xp.full_like(order, most_order)
        settled = xp.zeros(order.shape, dtype=bool)
        for _ in range(most):
            stepped, low, high = _newton(xp, some_mass, some_loss, epsilon, order, low, high, most_order)
            stepped = xp.where(settled, order, stepped)  # a row must not depend on how long others take
            settled = settled | (xp.abs(stepped - order) <= SETTLED * order)
            order = stepped
            if xp is np and settled.all():
                break  # on a device, asking costs more than going on
    return order


def _newton(xp, mass, loss, epsilon, order, low, high, most_order):
    """One Newton step on alpha' = epsilon from ``order``; the bracket's middle where it would leave that."""
    shift = order * xp.max(loss, axis=-1)
    total, first, second = _moments(xp, mass, loss, order, shift)[1]
    total = xp.maximum(total, 1e-300)
    mean = first / total
    variance = xp.maximum(second / total - mean * mean, 1e-300)
    slope = mean - epsilon
    high = xp.where(slope > 0, order, high)
    low = xp.where(slope > 0, low, order)
    step = xp.clip(order - xp.clip(slope / variance, -1e12, 1e12), LEAST_ORDER, most_order)
    # The bracket spans decades, so that its middle is the geometric one.
    return xp.where((step >= low) & (step <= high), step, xp.sqrt(low * high)), low, high


def _moments(xp, mass, loss, order, shift):
    """m = mass e^(order l - shift), and its sums weighted by 1, l, l^2; ``shift`` keeps the exponential finite."""
    powers = loss * order[:, None]
    powers -= shift[:, None]
    if xp is np:
        from optnoise import bucketing

        np.exp(powers, out=powers)
        return powers, bucketing.weigh(mass, loss, powers)
    powers = mass * xp.exp(powers)
    first = powers * loss
    return powers, (xp.sum(powers, axis=-1), xp.sum(first, axis=-1), xp.sum(first * loss, axis=-1))


def _moment_gradients(xp, a, b, powers, loss, order, scale, edge):
    """(d/da, d/db) from m = a e^(order l - shift): scale (1 + order) m/a and -scale order m/b."""
    if xp is np:
        from optnoise import bucketing

        da, db = np.empty(a.shape), np.empty(a.shape)
        bucketing.moment_gradients(a, b, powers, loss, order, scale, edge, da, db)
        return da, db
    shared = (a > 0) & (b > 0)
    powers = scale[:, None] * powers
    da = (1.0 + order)[:, None] * powers / xp.where(shared, a, 1.0)
    db = -order[:, None] * powers / xp.where(shared, b, 1.0)
    return xp.where(b > 0, da, edge[:, None]), db
