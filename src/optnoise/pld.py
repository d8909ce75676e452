"""Privacy loss distributions: atoms (loss, mass), their n-fold composition by tilted FFT, and its error bounds.

Atoms. A pair of measures (A, B) gives, for each outcome with a, b > 0, the loss L = log(a/b) with mass a;
outcomes with b = 0 are distinguishing events (loss infinity), outcomes with a = 0 never count. With
f(x) = max(0, 1 - e^-x) the finite part of the n-fold hockey-stick divergence is
D(eps) = sum over n-tuples of finite atoms of prod a * f(sum L - eps).

Every quantity here is a sum of non-negative terms, so relative rounding errors stay relative: each fold
carries one factor 1 +- rho and n folds carry (1 +- rho)^n. ``U`` is the unit roundoff, 2^-53.

Rounding to a lattice (why it survives composition). Losses are put on the lattice {j t}, t > 0, by
"connect the dots": an atom at L in [j t, (j+1) t] is split over the two lattice points such that its mass a
and its mass under B, a e^-L, are both kept. In y = e^-L this is a mean-preserving spread, and for fixed
other coordinates (sum x) the integrand max(0, 1 - e^(eps-x) y) is convex in y: replacing the coordinates one
by one never lowers D. So the lattice distribution, composed, is an upper bound. What one replacement adds is
known as well: the integrand is linear in y except at its kink, so the k-th replacement changes nothing
unless the kink eps - x falls into the atom's bucket, and then adds at most tanh(t/4) <= t/4. In the k-th
hybrid, n - k coordinates are not yet rounded and each differs from its rounding by at most t, so the kink
is in the bucket only if the fully rounded sum R satisfies |R - eps| <= (n - k + 1) t. Hence

    0 <= D_lattice(eps) - D(eps) <= (t/4) sum_{m=1..n} P[ |R - eps| <= m t ],

P being the composed lattice measure itself. The same composition thus yields both bounds, and the gap is of
second order in t.

Float losses. log(a/b) is computed with an absolute error of at most e_L (``LOSS_ERROR``); the lattice is built from
L + e_L, which only raises D, and the lower bound is read at eps + 2 n e_L, which only lowers it.

Tilt (why small deltas survive). The FFT's absolute error would swamp deltas below 1e-16. With
x_j = w_j exp(theta j t - Lambda), the n-fold convolution c of the tilted x gives the composed masses as
c_J exp(n Lambda - theta J t) exactly. theta is the saddle point, where the tilted n-fold mean is eps, so
the entries that matter are the largest ones of c. Lambda and theta are any floats: the identity holds for
each value, and only the rounding of the exponentials has to be paid for, inside rho.

Circular convolution. c is computed modulo the transform length N and read on a window [J0, J0 + N). Wrapping
is exact for single-fold indices however large (no atom is cut off). The tilted composed mass above the
window, tau_top, and on both sides, tau_out, is bounded by Chernoff's inequality on the lattice atoms
themselves. An upper bound keeps what was wrapped into the window (all terms are non-negative) and adds the
most that mass above the window can count; a lower bound subtracts the most that wrapped mass can have
been counted.

FFT rounding. A transform of length N has relative error at most eps_F = 10 (log2 N + 2) U in the 2-norm
(Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2: at most 6.7 U per radix-2 stage; only
factors 2, 3, 5 are used, whose butterflies stay below 8 U per bit). With X the exact transform, |X_k| <= 1:
|fl(X)_k^n - X_k^n| <= n (|X_k| + e_X)^(n-1) e_k + 4 n U |X_k|^n, where ||e||_2 <= e_X = eps_F sqrt(N) ||x||_2.
Summed by Cauchy-Schwarz and transformed back, each entry of c is off by at most
(n ||(|X| + e_X)^(n-1)||_2 e_X + 4 n U || |X|^n ||_1) / N + eps_F ||c||_2 =: e_c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optnoise.backend import array_namespace, to_host

U = 2.0**-53
"""Unit roundoff of float64."""

LOSS_ERROR = 12 * U
"""|fl(L) - L| <= LOSS_ERROR (1 + |L|), and LOSS_ERROR |L| for a and b within a factor 2 of each other."""

TAIL = 30.0
"""-log of the tilted mass allowed outside the window (on each side)."""

SHORT_TAIL = 18.0
"""The same where it makes that side of the window at least four times shorter."""

REACH = 4.5
"""Standard deviations of the tilted composed loss, on each side of its mean, that one tilt serves."""


@dataclass(frozen=True)
class Atoms:
    """Finite atoms of a privacy loss distribution: ``losses`` and positive ``masses`` (arrays of one module).

    ``errors`` bounds the error of each loss; the masses are exact.
    """

    losses: Any
    masses: Any
    errors: Any

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """Bounds on the least and the greatest loss."""
        return float((self.losses - self.errors).min()), float((self.losses + self.errors).max())

    @cached_property
    def loss_error(self) -> float:
        """The greatest of the errors."""
        return float(self.errors.max())

    @cached_property
    def log_masses(self) -> Any:
        return array_namespace(self.masses).log(self.masses)

    def where(self, kept: Any) -> Atoms:
        """The atoms that a mask keeps."""
        return Atoms(self.losses[kept], self.masses[kept], self.errors[kept])

    @property
    def size(self) -> int:
        return int(self.losses.shape[0])


@dataclass(frozen=True)
class Plan:
    """A tilt, the window [bottom, top] of losses, tilts for its tail bounds, and the epsilons it serves."""

    tilt: float
    bottom: float
    top: float
    tail_tilts: tuple[float, float]
    reach: tuple[float, float]


@dataclass(frozen=True)
class Composed:
    """Tilted masses of an n-fold lattice distribution on a window, with what is needed to bound sums over it.

    The composed mass at loss (start + i) * step lies in
    (tilted[i] +- entry_error) * exp(log_scale - tilt * loss) * (1 +- rho), up to mass from outside the window.
    """

    tilted: Any
    start: int
    step: float
    compositions: int
    tilt: float
    log_scale: float
    entry_error: float
    mass_above: float
    mass_outside: float
    rho: float
    reach: tuple[float, float]
    loss_error: float


def loss_of_masses(a: Any, b: Any) -> tuple[Any, Any]:
    """(L, error): log(a/b) of positive arrays and a bound on its error, also where a/b overflows or is subnormal.

    Near a = b, where a - b is exact, L = log1p((a - b)/b) is good relatively. Elsewhere the mantissas' quotient is
    within [1/2, 2], so its logarithm is good to a few U and the exponents' difference times log 2 to 2 U |L| more.
    (NumPy's and CUDA's log, log1p and exp are taken to be good to 4 ulp; they are.)
    """
    xp = array_namespace(a, b)
    mantissa_a, exponent_a = xp.frexp(a)
    mantissa_b, exponent_b = xp.frexp(b)
    losses = xp.log(mantissa_a / mantissa_b) + (exponent_a - exponent_b) * math.log(2.0)
    near = (a < 2 * b) & (b < 2 * a)
    losses = xp.where(near, xp.log1p(xp.where(near, a - b, 0.0) / b), losses)
    return losses, LOSS_ERROR * xp.where(near, xp.abs(losses), 1 + xp.abs(losses))


def cumulant(atoms: Atoms, theta: float) -> tuple[float, float, float]:
    """(Lambda, Lambda', Lambda'') at theta: log sum a e^(theta L), its mean and variance. Not rigorous."""
    xp = array_namespace(atoms.losses)
    exponent = theta * atoms.losses + atoms.log_masses
    peak = float(exponent.max())
    weight = xp.exp(exponent - peak)
    total = float(weight.sum())
    mean = float(weight @ atoms.losses) / total
    variance = float(weight @ (atoms.losses - mean) ** 2) / total
    return peak + math.log(total), mean, variance


def saddle_point(atoms: Atoms, target: float, compositions: int) -> float:
    """theta >= 0 with n Lambda'(theta) = target, or 0 where the mean is above it. Any value is valid."""
    _, mean, variance = cumulant(atoms, 0.0)
    if compositions * mean >= target:
        return 0.0
    low, high, theta = 0.0, math.inf, 0.0
    for _ in range(60):
        error = compositions * mean - target
        if abs(error) <= 0.02 * math.sqrt(compositions * variance):
            break
        if error < 0:
            low = theta
        else:
            high = theta
        step = -error / (compositions * variance) if variance > 0 else math.inf
        theta = theta + step
        if not low < theta < high or not math.isfinite(theta):
            theta = 0.5 * (low + high) if math.isfinite(high) else 2 * low + 1.0
        theta = min(theta, 4 * low + 1e3) if not math.isfinite(high) else theta
        if theta > 1e8:
            return theta
        _, mean, variance = cumulant(atoms, theta)
    return theta


def make_plan(atoms: Atoms, epsilon: float, compositions: int) -> Plan:
    """Tilt and window for losses near ``epsilon``: good choices, on whose quality only the width depends.

    The window holds the tilted composed loss up to a mass of e^-TAIL on either side.
    """
    n = compositions
    theta = saddle_point(atoms, epsilon, n)
    value, mean, variance = cumulant(atoms, theta)
    extreme = max(abs(loss) for loss in atoms.extremes)
    deviation = max(math.sqrt(n * variance), 1e-9 * extreme * n, 1e-9)
    best = []
    for sign in (1, -1):
        choices = []
        for reach in (2.0, 4.0, 6.0, 8.0, 11.0):
            other = theta + sign * reach / deviation
            growth = n * (cumulant(atoms, other)[0] - value)
            # |edge - n mean| at which Chernoff's bound falls to e^-TAIL and to e^-SHORT_TAIL
            edges = [(growth + tail) / abs(other - theta) - sign * n * mean for tail in (TAIL, SHORT_TAIL)]
            choices.append((*edges, other))
        long, short = min(choices), min(choices, key=lambda choice: choice[1])
        # A few heavy outliers must not coarsen the whole lattice.
        best.append((short[1], short[2]) if 4 * short[1] < long[0] else (long[0], long[2]))
    (above, theta_top), (below, theta_bottom) = best
    top, bottom = n * mean + above, n * mean - below
    centre = n * mean
    reach = (centre - REACH * deviation, centre + REACH * deviation)
    if theta == 0.0:
        reach = (-math.inf, reach[1])
    return Plan(theta, bottom, top, (theta_bottom, theta_top), reach)


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


def connect_the_dots(atoms: Atoms, step: float) -> tuple[Any, Any, Any]:
    """(index, lower weight, upper weight): each mass split over index and index + 1, keeping a and a e^-L.

    Losses are raised by their error first. Weights are exact up to a relative 20 U: the offset in the
    bucket is an exact difference or one rounded relatively, and both weights are quotients of expm1.
    """
    xp = array_namespace(atoms.losses)
    raised = atoms.losses + atoms.errors
    index = xp.floor(raised / step)
    offset = raised - index * step
    index = index + (offset >= step) - (offset < 0)
    offset = xp.clip(raised - index * step, 0.0, step)
    upper = atoms.masses * (xp.expm1(-offset) / math.expm1(-step))
    lower = atoms.masses * (xp.expm1(step - offset) / math.expm1(step))
    return index, lower, upper


def round_down(atoms: Atoms, step: float) -> tuple[Any, Any, Any]:
    """(index, mass, 0): each loss lowered to the lattice, by less than ``step`` + 2 ``loss_error``."""
    xp = array_namespace(atoms.losses)
    lowered = atoms.losses - atoms.errors
    index = xp.floor(lowered / step)
    index = index - (index * step > lowered)
    return index, atoms.masses, xp.zeros_like(atoms.masses)


def compose(atoms: Atoms, plan: Plan, compositions: int, buckets: int, rounding: Any) -> Composed:
    """The n-fold composition of ``atoms`` rounded to a lattice, tilted and cut to a window as planned.

    ``rounding`` is :func:`connect_the_dots` or :func:`round_down`; the window has about ``buckets`` places.
    """
    xp = array_namespace(atoms.losses)
    n = compositions
    length = transform_length(max(buckets, 16))
    theta, bottom, top = plan.tilt, plan.bottom, plan.top
    extreme = max(abs(loss) for loss in (*atoms.extremes, bottom, top))
    step = lattice_step(max((top - bottom) / (length - 2), extreme * n * 2.0**-44))
    index, lower, upper = rounding(atoms, step)
    theta = min(theta, 300.0 / step)

    # Lambda of the lattice atoms: at theta it only normalises; at the tails' thetas it gives Chernoff bounds.
    def log_moment(at: float) -> float:
        exponent = at * step * index + atoms.log_masses
        peak = float(exponent.max())
        growth = (lower + upper * math.exp(at * step)) / atoms.masses
        return peak + math.log(float((xp.exp(exponent - peak) * growth).sum()))

    scale = log_moment(theta)
    exponent = theta * step * index - scale
    root = xp.exp(0.5 * exponent)
    largest = float(xp.abs(exponent).max()) + abs(scale) + theta * step
    offset = round(float((root * lower * root * index).sum()))
    place = (index - offset).astype(np.int64) % length
    place = xp.concatenate([place, (place + 1) % length])
    weight = xp.concatenate([root * lower * root, root * upper * math.exp(theta * step) * root])
    x = xp.bincount(place, weights=weight, minlength=length)
    crowd = int(xp.bincount(place, minlength=length).max())
    rho = (60 + 4 * largest + min(crowd, atoms.size)) * U

    start = math.floor(0.5 * (bottom + top) / step) - length // 2
    first, last = start * step, (start + length) * step
    log_slack = n * (rho + 8 * U * (largest + 100))

    def tail(at: float, edge: float) -> float:
        at = max(-600.0 / step, min(at, 600.0 / step))
        moment = log_moment(at)
        exponent = n * (moment - scale) - (at - theta) * edge + log_slack
        exponent += (abs(at) + theta) * abs(edge) * 4 * U
        return math.exp(min(exponent, 700.0))

    mass_above = tail(plan.tail_tilts[1], last)
    mass_below = tail(plan.tail_tilts[0], first)
    c, entry_error = _power(x, n)
    shift = (start - n * offset) % length
    c = xp.concatenate([c[shift:], c[:shift]])
    return Composed(
        tilted=c,
        start=start,
        step=step,
        compositions=n,
        tilt=theta,
        log_scale=n * scale,
        entry_error=entry_error,
        mass_above=mass_above,
        mass_outside=mass_above + mass_below,
        rho=rho,
        reach=plan.reach,
        loss_error=atoms.loss_error,
    )


def _power(x: Any, n: int) -> tuple[Any, float]:
    """(c, e_c): the circular n-fold convolution of x >= 0, clipped to be non-negative, and its entries' error."""
    xp = array_namespace(x)
    length = x.shape[0]
    fft = _fft(xp)
    spectrum = fft.rfft(x)
    relative = 10 * (math.log2(length) + 2) * U
    spectrum_error = relative * math.sqrt(length) * math.sqrt(float(x @ x)) * 1.01
    magnitude = xp.abs(spectrum)
    # Frequencies whose power cannot matter are left at zero: the power of a tiny number is slow and says nothing.
    cut = 1e-40 ** (1.0 / n)
    kept = magnitude > cut
    values, size = spectrum[kept], magnitude[kept] + spectrum_error
    before = float((size ** (n - 1) @ size ** (n - 1)) * 2) + length * (cut + spectrum_error) ** (2 * n - 2)
    total = 2 * float((size**n).sum())
    powered = xp.zeros_like(spectrum)
    powered[kept] = _integer_power(values, n)
    c = fft.irfft(powered, length)
    spectral = n * math.sqrt(before) * spectrum_error + 4 * n * U * total + length * (cut + spectrum_error) ** n
    norm = math.sqrt(float(c @ c))
    error = 1.1 * spectral / length + relative * (norm + 1.1 * spectral / math.sqrt(length)) + n * 1e-290
    return xp.maximum(c, 0.0), error


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


def divergence_bounds(
    composed: Composed, for_upper: np.ndarray, for_lower: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (lower, upper) on sum_J c_J f(l_J - eps) minus the lattice gap, shape as the epsilons given.

    The upper bound is read at ``for_upper``, the lower one at ``for_lower``; the lower one has the gap between
    the lattice and the true losses taken off (module docstring).
    """
    table = _SuffixSums(composed, float(min(for_upper.min(), for_lower.min())))
    if table.hopeless:
        return np.zeros(for_lower.shape), np.ones(for_upper.shape)
    upper = table.upper(for_upper, hockey_stick=True)
    lower = table.lower(for_lower, hockey_stick=True) - _lattice_gap(table, for_lower)
    return lower, upper


def tail_bounds(composed: Composed, for_upper: np.ndarray, for_lower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (lower, upper) on P[sum L > eps] from losses rounded down by at most step + 2 loss_error each."""
    shift = composed.compositions * (composed.step + 2 * composed.loss_error) * (1 + 8 * U)
    for_upper = for_upper - shift
    table = _SuffixSums(composed, float(min(for_upper.min(), for_lower.min())))
    if table.hopeless:
        return np.zeros(for_lower.shape), np.ones(for_upper.shape)
    return table.lower(for_lower, hockey_stick=False), table.upper(for_upper, hockey_stick=False)


class _SuffixSums:
    """Suffix sums over the window of c_J e^(-theta (l - reference)) and of the same times e^-(l - reference).

    They give sum_J c_J f(l_J - eps) for any number of epsilons; every sum is of non-negative terms, added in
    sequence, so its relative error is at most its number of terms times U.
    """

    def __init__(self, composed: Composed, lowest: float) -> None:
        self.composed = composed
        step, theta = composed.step, composed.tilt
        xp = array_namespace(composed.tilted)
        length = composed.tilted.shape[0]
        self.reference = max(lowest, composed.start * step)
        # Below the reference only the lattice gap looks; there e^(-theta l) must not explode.
        below = min(composed.compositions + 2.0, 50.0 / (theta * step) if theta > 0 else math.inf)
        first = math.floor(self.reference / step - below) - composed.start
        self.first = min(max(first, 0), length)
        losses = (composed.start + xp.arange(self.first, length, dtype=np.float64)) * step - self.reference
        plain = composed.tilted[self.first :] * xp.exp(-theta * losses)
        discounted = plain * xp.exp(-losses)
        self.plain = _reverse_cumsum(plain)
        self.discounted = _reverse_cumsum(discounted)
        self.summing = (length + 20) * U
        largest = max(abs(composed.start), abs(composed.start + length)) * step + abs(self.reference)
        exponents = (abs(composed.log_scale) + (theta + 1) * largest + 50) * 8 * U
        self.growth = math.exp(composed.compositions * composed.rho + exponents)
        log_scale = composed.log_scale - theta * self.reference
        self.hopeless = log_scale > 600.0
        self.scale = math.exp(min(log_scale, 600.0))
        self.length = length

    def position(self, epsilon: np.ndarray) -> np.ndarray:
        """Index within the window of the first loss above epsilon (may lie outside the window)."""
        step = self.composed.step
        index = np.floor(epsilon / step)
        index = index + ((index + 1) * step <= epsilon) - (index * step > epsilon)
        return np.clip(index + 1 - self.composed.start, -1e15, 1e15).astype(np.int64)

    def read(self, table: Any, position: np.ndarray) -> np.ndarray:
        return table[np.clip(position - self.first, 0, self.length - self.first)]

    def entry_sum(self, epsilon: np.ndarray, hockey_stick: bool) -> np.ndarray:
        """Bound on the sum over the window above epsilon of e^(-theta (l - reference)) f(l - eps)."""
        theta, step = self.composed.tilt, self.composed.step
        share = theta / 2 if hockey_stick else theta
        places = min(self.length, 1 / -math.expm1(-share * step)) if theta > 0 else self.length
        return self.decay(epsilon) * (places / (1 + theta / 2) if hockey_stick else places)

    def decay(self, epsilon: np.ndarray) -> np.ndarray:
        return np.exp(np.minimum(-self.composed.tilt * (epsilon - self.reference), 700.0))

    def value(self, epsilon: np.ndarray, hockey_stick: bool) -> tuple[np.ndarray, np.ndarray]:
        """(sum, its rounding error), before scaling."""
        position = self.position(epsilon)
        plain = self.read(self.plain, position)
        if not hockey_stick:
            return plain, plain * self.summing
        discounted = self.read(self.discounted, position) * np.exp(epsilon - self.reference)
        return plain - discounted, (plain + discounted) * self.summing

    def upper(self, epsilon: np.ndarray, hockey_stick: bool) -> np.ndarray:
        composed = self.composed
        value, error = self.value(epsilon, hockey_stick)
        value = np.maximum(value, 0.0) + error + composed.entry_error * self.entry_sum(epsilon, hockey_stick)
        value += composed.mass_above * self.decay(np.maximum(epsilon, self.edge(self.length)))
        below = epsilon < self.edge(0)
        value += np.where(below, composed.mass_outside * self.decay(epsilon), 0.0)
        return self.scale * self.growth * value

    def lower(self, epsilon: np.ndarray, hockey_stick: bool) -> np.ndarray:
        composed = self.composed
        value, error = self.value(epsilon, hockey_stick)
        value = value - error - composed.entry_error * self.entry_sum(epsilon, hockey_stick)
        value -= composed.mass_outside * self.decay(epsilon) / (1 + composed.tilt if hockey_stick else 1.0)
        return np.maximum(value, 0.0) * self.scale / self.growth

    def edge(self, place: int) -> float:
        return (self.composed.start + place) * self.composed.step


def _lattice_gap(table: _SuffixSums, epsilon: np.ndarray) -> np.ndarray:
    """(t/4) sum_{m=1..n} P[|R - eps| <= m t]: the most by which the lattice raises the divergence."""
    composed = table.composed
    n, step = composed.compositions, composed.step
    blocks = np.unique(np.ceil(np.geomspace(1, n, 25)).astype(np.int64)) if n > 1 else np.array([1])
    blocks[-1] = n
    position = table.position(epsilon)[..., None]
    # P grows with m: within a block of m its value at the block's end is used.
    above, below = position + blocks, position - 1 - blocks
    inside = table.read(table.plain, below) - table.read(table.plain, above)
    error = table.read(table.plain, below) * table.summing
    count = 2.0 * blocks + 1
    error = error + composed.entry_error * count * table.decay(epsilon[..., None] - (blocks + 1) * step)
    error = error + composed.mass_outside * table.decay(epsilon[..., None] - (blocks + 1) * step)
    probability = (inside + error) * table.scale * table.growth
    # Where the table does not reach down far enough, only the trivial bound is left.
    unknown = (below < table.first) & (table.first > 0)
    probability = np.where(unknown, 1.0, np.minimum(probability, 1.0))
    return 0.25 * step * (probability @ np.diff(blocks, prepend=0)) * 1.01


def _reverse_cumsum(terms: Any) -> np.ndarray:
    """sums[i] = terms[i] + terms[i+1] + ..., with a final 0, on the host."""
    xp = array_namespace(terms)
    return np.append(to_host(xp.cumsum(terms[::-1])[::-1]), 0.0)
