"""The n-fold composition of a privacy loss distribution, by tilted FFT, with a bound on every error made.

With f(x) = max(0, 1 - e^-x), the finite part of the n-fold hockey-stick divergence of a pair with atoms
(L, a) is D(eps) = sum over n-tuples of finite atoms of prod a * f(sum L - eps). All terms are non-negative, so
relative rounding errors stay relative: a factor (1 +- rho) per fold is (1 +- rho)^n in the end. U = 2^-53.

**Lattice, and why it survives composition.** Losses go on a lattice {j t} by "connect the dots" (Doroshenko et
al. 2022): an atom in [j t, (j+1) t] is split over the two ends such that its mass a and its mass under B,
a e^-L, are both kept. In y = e^-L this is a mean-preserving spread, and with the other coordinates held (sum x)
the integrand max(0, 1 - e^(eps - x) y) is convex in y: replacing the coordinates one by one never lowers D. So
the composed lattice gives an upper bound.

**Gap, for the lower bound.** The integrand is linear in y except at its kink, so one replacement changes
nothing unless the kink eps - x lies in the atom's bucket, and then adds at most tanh(t/4) <= t/4. Let m
coordinates, this one included, be not yet rounded, R be the sum with all rounded, and xi the sum of these m
rounding differences. Given the true losses the differences are independent, each within an interval of length
t with 0 <= mean <= t^2/8 (E e^-difference = 1; Jensen and Hoeffding's lemma), so by Hoeffding's inequality
-c sqrt(m) t <= xi <= c sqrt(m) t + m t^2/8 with probability 1 - 2 e^(-2 c^2) at least, whatever the losses
are; and |xi| <= m t always. The kink is in the bucket only if |R - xi - eps| <= t. Hence, with w_m the smaller of
c sqrt(m) t + m t^2/8 and m t, and kappa = 1/(1 - 2 e^(-2 c^2)) (or 1 for w_m = m t),

    0 <= D_lattice(eps) - D(eps) <= (t/4) sum_{m=1..n} kappa P[ |R - eps| <= w_m + t ],

P being the composed lattice measure itself: one composition yields both bounds, and the gap is second order.

**Two stages.** For large n, blocks of k folds are composed on a finer lattice, whose window need only hold k of
them, and then put on the final lattice in the same way: q = n // k blocks and one of the n mod k folds left.
Both steps raise D; the fine one's gap is that of n roundings, seen through the q + 1 roundings that follow
(the interval widens by w_{q+1}, with one more kappa).

**Tilt (why small deltas survive).** An FFT's absolute error would swamp deltas below 1e-16. With
x_j = w_j exp(theta j t - Lambda), the convolution c of the tilted x gives the composed masses as
c_J exp(n Lambda - theta J t), exactly so for any floats theta and Lambda. theta is the saddle point, where the
tilted n-fold mean is eps: the entries that matter are the largest ones. Rounding of the exponentials is in rho.

**Circular convolution.** c is computed modulo the transform length N and read on a window of N places. Indices are
reduced modulo N from the start, which is exact, so no single loss is cut off however large. Tilted mass
above the window and on both sides of it is bounded by Chernoff's inequality on the rounded atoms
themselves. The upper bound keeps what was wrapped into the window and adds the most that mass above it
can count; the lower bound subtracts the most that wrapped mass can have counted. In the first of two stages such
mass, and the entries' errors, are "stray": they count at most fully, and are added and subtracted in full.

**FFT rounding.** A transform of length N has relative error at most eps_F = 10 (log2 N + 2) U in the 2-norm
(Higham 2002, theorem 24.2: 6.7 U per radix-2 stage; only factors 2, 3, 5 are used, whose butterflies stay
below 8 U per bit). With X the exact transform, |X_k| <= 1 up to rho, and ||e||_2 <= e_X = eps_F sqrt(N) ||x||_2:
|fl(X)_k^n - X_k^n| <= n (|X_k| + e_X)^(n-1) |e_k| + 4 n U |X_k|^n. Summed by Cauchy-Schwarz and transformed
back, an entry of c is off by at most (n ||(|X| + e_X)^(n-1)||_2 e_X + 4 n U || |X|^n ||_1)/N + eps_F ||c||_2.
By Parseval, all entries together are off by at most (1.1 n e_X + 4 n U || |X|^n ||_2)/sqrt(N) + eps_F ||c||_2 in the
2-norm. A weighted sum over entries uses whichever of the two is smaller for its weights.

**Float losses.** Losses come with error bounds e; the lattice is built from L + e, which only raises D, and the
lower bound is read at eps + 2 n max e (and 4 U t for each rounding), which only lowers it.

``round_down`` replaces connect-the-dots where P[sum L > eps] itself is wanted: every loss is lowered by less
than t, so the true sum lies between the lattice's and n t more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optnoise.backend import array_namespace
from optnoise.pld import Atoms, U, Window, choose_window, cumulant

RAISED = 4 * U
"""Steps by which connect-the-dots may raise a loss beside the lattice itself."""

TWO_STAGES = 400
"""Compositions from which on the two-stage lattice pays."""


@dataclass(frozen=True)
class Composed:
    """Tilted masses of a composed lattice distribution on a window, and what bounds the sums over it.

    The mass at loss (start + i) step is (tilted[i] +- entry_error) exp(log_scale - tilt loss), within a factor
    e^(+-growth) and up to ``stray`` tilted mass anywhere; ``norm_error`` bounds the entries' errors in the
    2-norm. ``above`` and ``outside`` bound the tilted mass above the window and on both sides of it.
    ``roundings`` are the lattices passed, as (step, number of roundings).
    """

    tilted: Any
    start: int
    step: float
    tilt: float
    log_scale: float
    entry_error: float
    norm_error: float
    above: float
    outside: float
    stray: float
    growth: float
    roundings: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class _Part:
    """A law to fold ``count`` times: losses and tilted weights that sum to about 1."""

    losses: Any
    weights: Any
    count: int


def compose(atoms: Atoms, tilt: float, window: Window, compositions: int, buckets: int, rounding: Any) -> Composed:
    """The n-fold composition of ``atoms`` under ``tilt`` on ``window``, on a lattice of about ``buckets`` places.

    ``rounding`` is :func:`connect_the_dots` or :func:`round_down`.
    """
    n, length = compositions, transform_length(buckets)
    level = cumulant(atoms, tilt)[0]
    raised = atoms.losses + atoms.errors if rounding is connect_the_dots else atoms.losses - atoms.errors
    weights, weight_error = _tilted(atoms, raised, tilt, level)
    first = _Part(raised, weights, n)
    block = round(n**0.45)
    fine = choose_window(atoms, tilt, block) if n >= TWO_STAGES else window
    if fine.top - fine.bottom > 0.5 * (window.top - window.bottom):
        composed = _fold([first], tilt, window, length, rounding)
    else:
        composed = _fold_blocks(first, [(block, n // block), (n % block, 1)], atoms, tilt, window, length, rounding)
    return replace(composed, log_scale=n * level, growth=composed.growth + n * weight_error)


def transform_length(buckets: int) -> int:
    """The largest even 2-3-5-smooth number up to ``buckets``."""
    best, three = 2, 1
    while three <= buckets:
        five = three
        while five * 2 <= buckets:
            best = max(best, five << ((buckets // five).bit_length() - 1))
            five *= 5
        three *= 3
    return best


def lattice_step(width: float) -> float:
    """The smallest float with 8 significant bits that is at least ``width``: its multiples are exact."""
    mantissa, exponent = math.frexp(width)
    return math.ldexp(math.ceil(mantissa * 256), exponent - 8)


def connect_the_dots(losses: Any, step: float) -> tuple[Any, Any, Any]:
    """(index, lower share, upper share): each loss split over index and index + 1, keeping 1 and e^-loss.

    The shares are exact up to a relative 30 U for a loss that is raised by at most RAISED steps: the offset in
    the bucket is an exact difference, except just below zero, where its rounding is outweighed by a small rise;
    both shares are quotients of expm1 of numbers that are not positive, which no step makes overflow.
    """
    xp = array_namespace(losses)
    index, offset = _bucket(losses, step)
    offset = xp.minimum(offset + 0.5 * RAISED * step, step)
    whole = math.expm1(-step)
    return index, xp.exp(-offset) * (xp.expm1(offset - step) / whole), xp.expm1(-offset) / whole


def round_down(losses: Any, step: float) -> tuple[Any, Any, Any]:
    """(index, 1, 0): each loss lowered to the lattice, by less than ``step``."""
    xp = array_namespace(losses)
    index, _ = _bucket(losses, step)
    return index, xp.ones_like(losses), xp.zeros_like(losses)


def _bucket(losses: Any, step: float) -> tuple[Any, Any]:
    """(index, offset) with index * step <= loss and offset = loss - index * step in [0, step]."""
    xp = array_namespace(losses)
    index = xp.floor(losses / step)
    index = index - (index * step > losses) + ((index + 1) * step <= losses)
    return index, xp.clip(losses - index * step, 0.0, step)


def _tilted(atoms: Atoms, losses: Any, tilt: float, level: float) -> tuple[Any, float]:
    """(a e^(tilt L - level), bound on its relative error)."""
    xp = array_namespace(losses)
    exponent = tilt * losses - level
    # Two halves: a may be tiny where the exponential alone would overflow.
    root = xp.exp(0.5 * exponent)
    largest = xp.abs(exponent).max().item() + 2 * abs(level)
    return root * atoms.masses * root, (4 * largest + 30) * U


def _fold_blocks(
    first: _Part,
    blocks: list[tuple[int, int]],
    atoms: Atoms,
    tilt: float,
    window: Window,
    length: int,
    rounding: Any,
) -> Composed:
    """Compose blocks of (folds, times) on fine lattices of their own, then those on the final one."""
    parts, stray, growth, folds, steps = [], 0.0, 0.0, 0, []
    for size, times in blocks:
        if size == 0:
            continue
        block = _fold([replace(first, count=size)], tilt, choose_window(atoms, tilt, size), length, rounding)
        xp = array_namespace(block.tilted)
        losses = (block.start + xp.arange(length, dtype=np.float64)) * block.step
        parts.append(_Part(losses, block.tilted, times))
        noise = min(length * block.entry_error, math.sqrt(length) * block.norm_error)
        stray += times * (noise + block.outside)
        growth += times * block.growth
        folds += size * times
        steps.append(block.step)
    composed = _fold(parts, tilt, window, length, rounding)
    # A total mass that may be off by `stray` in some part makes the products of the others off as well.
    stray = stray * math.exp(min(2 * stray, 700.0)) * 1.01
    return replace(
        composed,
        stray=stray,
        growth=composed.growth + growth,
        roundings=((max(steps), folds), *composed.roundings),
    )


def _fold(parts: list[_Part], tilt: float, window: Window, length: int, rounding: Any) -> Composed:
    """Round each part to the lattice of the window and convolve them all, each ``count`` times, modulo ``length``."""
    xp = array_namespace(parts[0].losses)
    extreme = max(xp.abs(part.losses).max().item() for part in parts)
    extreme = max(extreme, abs(window.bottom), abs(window.top))
    # Multiples of a step with 8 significant bits are exact up to an index of 2^45.
    # Rounding itself spreads the sum: leave room for it, and do not look finer than it with Chernoff's bound.
    count = sum(part.count for part in parts)
    room = 2 * min(length // 4, math.ceil(min(2 * count, 8 * math.sqrt(count))) + 2)
    step = lattice_step(max((window.top - window.bottom) / (length - room), extreme * 2.0**-43))
    steepest = 32 / (math.sqrt(count) * step)
    start = math.floor(0.5 * (window.bottom + window.top) / step) - length // 2
    low, high = start * step, (start + length) * step
    shift, growth = 0, 0.0
    spectra = []
    below = (max(window.bottom_tilt - tilt, -steepest), low)
    above = (min(window.top_tilt - tilt, steepest), high)
    log_below, log_above = -below[0] * low, -above[0] * high
    for part in parts:
        index, lower, upper = rounding(part.losses, step)
        # Weights are tilted at the true loss; move the tilt to the lattice point.
        offset = part.losses - index * step
        lower = part.weights * lower * xp.exp(-tilt * offset)
        upper = part.weights * upper * xp.exp(tilt * (step - offset))
        centre = round(((lower + upper) * index).sum().item())
        place = (index - centre).astype(np.int64) % length
        x = xp.bincount(place, weights=lower, minlength=length)
        x = x + xp.roll(xp.bincount(place, weights=upper, minlength=length), 1)
        crowd = min(xp.bincount(place, minlength=length).max().item(), part.losses.shape[0])
        growth += part.count * (60 + crowd + 4 * tilt * step) * U
        shift += part.count * centre
        log_below += part.count * _log_moment(index * step, lower, upper, below[0], step)
        log_above += part.count * _log_moment(index * step, lower, upper, above[0], step)
        spectra.append((x, part.count))
    if sum(count * abs(math.log(x.sum().item())) for x, count in spectra) > 10.0:
        growth = math.inf  # the lattice is too coarse for the tilt: what follows would say nothing
        spectra = [(xp.zeros_like(x), count) for x, count in spectra]
    c, entry_error, norm_error = _convolve(spectra)
    turn = (start - shift) % length
    steep = max(abs(below[0]), abs(above[0]))
    slack = growth + 1e-9 + 8 * U * (abs(log_below) + abs(log_above) + sum(abs(a * b) for a, b in (below, above)))
    slack += 8 * U * count * extreme * steep
    # (The tilted total is below e^10, or the lattice was given up above.)
    outside_above = math.exp(min(log_above + slack, 10.0))
    return Composed(
        tilted=xp.concatenate([c[turn:], c[:turn]]),
        start=start,
        step=step,
        tilt=tilt,
        log_scale=0.0,
        entry_error=entry_error,
        norm_error=norm_error,
        above=outside_above,
        outside=outside_above + math.exp(min(log_below + slack, 10.0)),
        stray=0.0,
        growth=growth,
        roundings=((step, count),),
    )


def _log_moment(losses: Any, lower: Any, upper: Any, tilt: float, step: float) -> float:
    """log sum (lower + upper e^(tilt step)) e^(tilt loss), never below its value but for relative rounding."""
    xp = array_namespace(losses)
    if not abs(tilt) * step < 600.0:
        return math.inf
    weight = lower + upper * math.exp(tilt * step)
    exponent = tilt * losses
    peak = exponent[weight > 0].max().item()
    # 1e-300 covers terms that underflow beside the peak.
    total = (weight * xp.exp(xp.minimum(exponent - peak, 0.0))).sum().item() + 1e-300
    return peak + math.log(total)


def _convolve(parts: list[tuple[Any, int]]) -> tuple[Any, float, float]:
    """(c, e_c, 2-norm error): the circular convolution of all x >= 0, each count times, made >= 0."""
    xp = array_namespace(parts[0][0])
    fft = _fft(xp)
    length = parts[0][0].shape[0]
    relative = 10 * (math.log2(length) + 2) * U
    spectra = [fft.rfft(x) for x, _ in parts]
    errors = [1.01 * relative * math.sqrt(length) * math.sqrt((x * x).sum().item()) for x, _ in parts]
    # Frequencies whose power cannot matter are left at zero: the power of a tiny number is slow and says nothing.
    most = max(range(len(parts)), key=lambda i: parts[i][1])
    folds = parts[most][1]
    magnitude = xp.abs(spectra[most])
    cut = 1e-40 ** (1.0 / folds)
    kept = magnitude > cut
    size = magnitude[kept] + errors[most]
    others = 1.0
    for i, (x, count) in enumerate(parts):
        others *= max(1.0, x.sum().item() * (1 + relative)) ** count if i != most else 1.0
    dropped = length * others * (cut + errors[most]) ** folds
    before = 2 * (size ** (2 * folds - 2)).sum().item() + length * (cut + errors[most]) ** (2 * folds - 2)
    powers = 2 * (size**folds).sum().item() * others
    values = None
    for spectrum, (_, count) in zip(spectra, parts, strict=True):
        power = _integer_power(spectrum[kept], count)
        values = power if values is None else values * power
    powered = xp.zeros_like(spectra[0])
    powered[kept] = values
    c = fft.irfft(powered, length)
    count = sum(count for _, count in parts)
    weighted = sum(count * error for error, (_, count) in zip(errors, parts, strict=True))
    spectral = 1.1 * (others * math.sqrt(before) * weighted + 4 * count * U * powers + dropped)
    norm = math.sqrt((c * c).sum().item())
    error = spectral / length + relative * (norm + spectral / math.sqrt(length)) + count * 1e-290
    largest = max(1.0, magnitude.max().item() + errors[most]) ** folds * others
    norm_spectral = 1.1 * largest * (weighted + 4 * count * U * math.sqrt(powers)) + dropped
    norm_error = norm_spectral / math.sqrt(length) * (1 + relative) + relative * norm + length * count * 1e-290
    return xp.maximum(c, 0.0), error, norm_error


def _integer_power(values: Any, n: int) -> Any:
    result, square = None, values
    while n:
        if n & 1:
            result = square if result is None else result * square
        n >>= 1
        if n:
            square = square * square
    return result


def _fft(xp: Any) -> Any:
    if xp is np:
        import scipy.fft

        return scipy.fft
    return xp.fft
