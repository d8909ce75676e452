"""Two-sided (epsilon, delta) bounds for any pair of discrete distributions under n-fold composition.

``delta_bounds`` and ``epsilon_bounds`` read the given float64 masses as exact real numbers. Masses may sum to
1 within 1e-9. What a delta of such masses means can be read in two ways, as sum max(0, A^n - e^eps B^n)
of the measures themselves or of the measures divided by their sums; with r = n log(sum A / sum B) the two
are D(eps) and (sum A)^-n D(eps + r). The bounds hold for both: D falls with eps, so the lower bound is read
at eps + max(0, r) and the upper one at eps + min(0, r), times the smaller or larger of 1 and (sum A)^-n.
(The upper bound is then cut at 1, which the second reading never exceeds.)

n = 1 is a direct sum. For n > 1 see :mod:`optnoise.pld`: the bucketing, the tilted FFT and their errors.

Distinguishing events (mass d of A where B is 0) make 1 - (1 - d)^n of any delta, computed as
-expm1(n log1p(-d)) so that tiny d survive. Losses so large that the mass of B behind them is b_cut in
total, with n e^eps b_cut negligible, are treated as distinguishing: with b set to 0 there, delta can only rise,
and by at most n e^eps b_cut (sum B)^(n-1), which the lower bound subtracts.

Sources: privacy loss distributions, Sommer, Meiser and Mohammadi (2019); connect the dots, Doroshenko et al.
(2022); the rest is argued where it is coded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optnoise.backend import array_namespace, to_host
from optnoise.composed_sums import divergence_bounds, tail_bounds
from optnoise.composition import compose, connect_the_dots, round_down, transform_length
from optnoise.pld import Atoms, U, Window, choose_window, cumulant, loss_of_masses, saddle_point

KINDS = ("adp", "pdp")
MAX_COMPOSITIONS = 1_000_000
MAX_BUCKETS = 10_000_000
SUM_TOLERANCE = 1e-9
LOOSE = 1e-3
"""Bounds of a whole curve that are wider than this, relative to delta, are looked at again."""
SMALLEST = 5e-324
"""Not zero where a positive sum has underflowed."""
LEAST_MASS = 1e-290
"""Products with smaller masses would be rounded to whole multiples of the least float, by any share of themselves."""
FAR = 0.4 * float(np.log(np.finfo(np.longdouble).max))
"""Twice as far, e^-x is still a normal number in extended precision (which is double on some machines)."""
REACH = 4.5
"""Standard deviations of the tilted composed loss, on each side of its mean, that one composition serves."""


@dataclass(frozen=True)
class DeltaBounds:
    """``lower`` <= delta <= ``upper`` (shaped as epsilon) and the n-fold mass of ``distinguishing`` events."""

    lower: Any
    upper: Any
    distinguishing: float


@dataclass(frozen=True)
class EpsilonBounds:
    """``lower`` <= epsilon <= ``upper``; infinite where delta is below the floor of distinguishing events."""

    lower: Any
    upper: Any


@dataclass(frozen=True)
class _Pair:
    """A privacy loss distribution with the scalars that its bounds need (all for one fold)."""

    atoms: Atoms
    infinite: float
    log_total: float
    log_ratio: float
    slack: float
    tiny: float  # A's mass of outcomes that ``atoms`` leaves out: counted in full above, not at all below


def delta_bounds(
    a: Any,
    b: Any,
    epsilon: Any,
    compositions: int = 1,
    kind: str = "adp",
    buckets: int = 250_000,
) -> DeltaBounds:
    """Bounds on the delta(epsilon) of A^n against B^n (``a`` first; swap them for the other order).

    a, b: masses of equal shape (m,), NumPy or CuPy. epsilon: a number >= 0 or an array of them. kind:
    ``adp`` (hockey-stick divergence) or ``pdp`` (the probability under A that the loss exceeds epsilon). The
    results are NumPy floats. Raises ``ValueError`` with one line on bad input.
    """
    pair = _pair_of_masses(a, b)
    return _delta_bounds(pair, epsilon, compositions, kind, buckets)


def delta_bounds_of_losses(
    losses: Any,
    masses: Any,
    infinite: float,
    epsilon: Any,
    compositions: int = 1,
    kind: str = "adp",
    buckets: int = 250_000,
) -> DeltaBounds:
    """The same for a privacy loss distribution given by its atoms: ``masses`` (under A) at finite ``losses``,

    and the mass ``infinite`` at infinite loss; masses and ``infinite`` sum to 1 within 1e-9.
    """
    xp = array_namespace(losses, masses)
    losses, masses = _vector(xp, "losses", losses), _vector(xp, "masses", masses)
    _equal_lengths("losses", losses, "masses", masses)
    if not xp.isfinite(losses).all().item():
        raise ValueError("losses: all must be finite; put the mass at infinite loss into `infinite`")
    infinite = float(infinite)
    _masses(xp, "masses", masses)
    if not (math.isfinite(infinite) and infinite >= 0):
        raise ValueError(f"infinite: {infinite!r} is not allowed; it must be a finite number >= 0")
    excess, slack = _excess(xp, xp.concatenate([masses, xp.asarray([infinite])]), "masses and infinite")
    kept = masses > 0
    of_b = xp.exp(xp.minimum(xp.log(masses[kept]) - losses[kept], 700.0)).sum().item()
    if of_b > 1 + SUM_TOLERANCE:
        raise ValueError(f"losses: they give B a mass of {of_b:.6g}; masses times e^-losses must sum to at most 1")
    atoms = Atoms(losses[kept], masses[kept], xp.zeros_like(losses[kept]))
    atoms, tiny = _without_tiny(atoms)
    pair = _Pair(atoms, infinite, math.log1p(excess), 0.0, slack, tiny)
    return _delta_bounds(pair, epsilon, compositions, kind, buckets)


def epsilon_bounds(a: Any, b: Any, delta: Any, compositions: int = 1, buckets: int = 250_000) -> EpsilonBounds:
    """Bounds on the least epsilon >= 0 at which A^n against B^n has at most ``delta`` (a number or an array).

    ``upper`` is infinite where delta is below the (upper bound on the) mass of distinguishing events.
    """
    pair = _pair_of_masses(a, b)
    n = _compositions(compositions)
    _buckets(buckets)
    deltas = _reals(np, "delta", delta)
    if not bool((np.isfinite(deltas) & (deltas >= 0) & (deltas <= 1)).all()):
        raise ValueError(f"delta: {delta!r} is not allowed; it must be in [0, 1]")
    results = [_invert(pair, float(value), n, buckets) for value in deltas.ravel()]
    lower = np.array([r[0] for r in results]).reshape(deltas.shape)
    upper = np.array([r[1] for r in results]).reshape(deltas.shape)
    return EpsilonBounds(lower, upper) if deltas.ndim else EpsilonBounds(float(lower), float(upper))


def _invert(pair: _Pair, delta: float, n: int, buckets: int) -> tuple[float, float]:
    """Bounds on the least epsilon: where delta's upper bound is <= delta, and where its lower bound is still above.

    Both are monotone in epsilon, so each is found by narrowing a bracket; a few hundred epsilons cost one
    composition, so that a few rounds suffice.
    """
    floor = _infinite_mass(pair, n)
    if floor[0] > delta:
        return math.inf, math.inf
    largest = pair.atoms.extremes[1] if pair.atoms.size else 0.0
    top = max(0.0, n * (largest + abs(pair.log_ratio) + pair.slack)) * (1 + 1e-12) + 1e-300
    # (known to be too small, known to be enough) for the upper and the lower bound
    for_upper, for_lower = [0.0, top], [0.0, top]
    ends = _delta_bounds(pair, np.array([0.0, top]), n, "adp", buckets)
    if ends.upper[0] <= delta:
        return 0.0, 0.0
    if ends.upper[1] > delta:
        for_upper = [math.inf, math.inf]
    if ends.lower[0] <= delta:
        for_lower = [0.0, 0.0]
    start = _guess(pair, max(delta - floor[1], 1e-300), n)
    for attempt in range(12):
        brackets = [(low, high) for low, high in (for_upper, for_lower) if high - low > 1e-9 * high]
        if not brackets:
            break
        points = np.concatenate([np.linspace(*bracket, 16) for bracket in brackets])
        if attempt == 0 and start is not None:
            points = np.concatenate([points[::8], np.linspace(*start, 400)])
        elif attempt > 0:
            points = np.concatenate([np.linspace(*bracket, 400) for bracket in brackets])
        points = np.unique(points[(points > 0) & (points < top)])
        if points.size == 0:
            break
        bounds = _delta_bounds(pair, points, n, "adp", buckets)
        before = [*for_upper, *for_lower]
        _narrow(for_upper, points, bounds.upper <= delta)
        _narrow(for_lower, points, bounds.lower <= delta)
        if [*for_upper, *for_lower] == before and attempt > 1:
            break
    return for_lower[0], for_upper[1]


def _narrow(bracket: list[float], points: np.ndarray, enough: np.ndarray) -> None:
    inside = (points > bracket[0]) & (points < bracket[1])
    if (inside & enough).any():
        bracket[1] = points[inside & enough].min().item()
    inside &= points < bracket[1]
    if (inside & ~enough).any():
        bracket[0] = points[inside & ~enough].max().item()


def _guess(pair: _Pair, delta: float, n: int) -> tuple[float, float] | None:
    """An interval likely to hold epsilon, from Chernoff's bound; only speed depends on it."""
    if pair.atoms.size == 0:
        return None
    low, high = 0.0, 1.0
    while high < 1e7 and _log_chernoff(pair.atoms, high, n)[0] > math.log(delta):
        low, high = high, 2 * high
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _log_chernoff(pair.atoms, middle, n)[0] > math.log(delta) else (low, middle)
    _, epsilon, deviation = _log_chernoff(pair.atoms, high, n)
    return max(0.0, epsilon - 3 * deviation), epsilon + deviation


def _log_chernoff(atoms: Atoms, theta: float, n: int) -> tuple[float, float, float]:
    """(log of the bound on delta at epsilon, epsilon = n Lambda'(theta), standard deviation of the n-fold loss)."""
    value, mean, variance = cumulant(atoms, theta)
    return n * (value - theta * mean), n * mean, math.sqrt(n * variance)


def _delta_bounds(pair: _Pair, epsilon: Any, compositions: int, kind: str, buckets: int) -> DeltaBounds:
    n = _compositions(compositions)
    _buckets(buckets)
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r} is not allowed; choose one of {', '.join(KINDS)}")
    epsilons = _reals(np, "epsilon", to_host(epsilon))
    if not bool((np.isfinite(epsilons) & (epsilons >= 0)).all()):
        raise ValueError(f"epsilon: {epsilon!r} is not allowed; it must be finite and >= 0")
    flat = epsilons.ravel()
    ratio, slack = n * pair.log_ratio, n * pair.slack + 4 * U * abs(n * pair.log_ratio)
    for_lower = np.nextafter(flat + max(0.0, ratio + slack), math.inf)
    for_upper = np.nextafter(flat + min(0.0, ratio - slack), -math.inf)
    lower, upper = _literal_and_normalised(pair, for_lower, for_upper, n, kind, buckets)
    floor = _infinite_mass(pair, n)
    if n > 1:
        one = _bounds_from_one_fold(pair, flat, n, kind, buckets)
        lower, upper = np.maximum(lower, one[0]), np.minimum(upper, one[1])
    upper = upper + 1.01 * n * pair.tiny
    # One step further out: below 1e-308 a relative margin is lost to rounding.
    upper = np.clip(np.where(upper > 0, np.nextafter(upper * (1 + 4 * U), 2.0), 0.0), 0.0, 1.0)
    lower = np.nextafter(np.maximum(lower * (1 - 4 * U), floor[0]), 0.0)
    lower = np.clip(lower, 0.0, upper)
    # What bounds delta at one epsilon from above bounds it at greater ones; from below, at smaller ones.
    order = np.argsort(flat, kind="stable")
    upper[order] = np.minimum.accumulate(upper[order])
    lower[order] = np.maximum.accumulate(lower[order][::-1])[::-1]
    if epsilons.ndim == 0:
        return DeltaBounds(float(lower[0]), float(upper[0]), floor[0])
    return DeltaBounds(lower.reshape(epsilons.shape), upper.reshape(epsilons.shape), floor[0])


def _bounds_from_one_fold(
    pair: _Pair, epsilon: np.ndarray, n: int, kind: str, buckets: int
) -> tuple[np.ndarray, np.ndarray]:
    """delta_1(eps) <= delta_n(eps) <= n delta_1(eps/n): post-processing, and basic composition.

    Direct sums, so exact where rounding to a lattice says little: near the largest loss, or for A close to B. (A
    loss sum above eps needs one loss above eps/n, so the upper bound holds for ``pdp`` too; the lower does not.)
    Both readings of the masses are covered by a shift of n times the single one's and a factor (sum A)^n.
    """
    shift = n * (abs(pair.log_ratio) + pair.slack)
    above = np.nextafter(epsilon + shift, math.inf)
    below = np.nextafter(epsilon / n - shift / n, -math.inf)
    lower, upper = _literal_and_normalised(pair, above, below, 1, kind, buckets)
    scale, slack = n * pair.log_total, n * pair.slack
    lower = lower * math.exp(min(0.0, scale) - slack) if kind == "adp" else np.zeros(epsilon.shape)
    return lower, n * upper * math.exp(max(0.0, scale) + slack)


def _infinite_mass(pair: _Pair, n: int) -> tuple[float, float]:
    """Bounds on 1 - (1 - d)^n and on (sum A)^n times it, d the share of distinguishing events."""
    if pair.infinite == 0.0:
        return 0.0, 0.0
    share = pair.infinite / math.exp(pair.log_total)
    error = 100 * U + 4 * pair.slack
    low, high = share * (1 - error), min(share * (1 + error), 1.0)
    if pair.atoms.size == 0:
        low = high = 1.0
    scale, slack = n * pair.log_total, n * pair.slack
    lower = (-math.expm1(n * math.log1p(-low)) if low < 1 else 1.0) * math.exp(min(0.0, scale) - slack)
    upper = (-math.expm1(n * math.log1p(-high)) if high < 1 else 1.0) * math.exp(max(0.0, scale) + slack)
    return lower * (1 - 16 * U), min(upper * (1 + 16 * U), 1.0)


def _literal_and_normalised(
    pair: _Pair, for_lower: np.ndarray, for_upper: np.ndarray, n: int, kind: str, buckets: int
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on delta in both readings of the masses (module docstring), before they are cut to [0, 1]."""
    infinite = _infinite_mass(pair, n)
    lower, upper = np.full(for_lower.shape, infinite[0]), np.full(for_upper.shape, infinite[1])
    atoms = pair.atoms
    largest = atoms.extremes[1] if atoms.size else -math.inf
    # Where no n losses reach epsilon the finite part is exactly zero.
    order = np.flatnonzero(for_upper < n * largest * (1 + 4 * U if largest > 0 else 1 - 4 * U))
    order = order[np.argsort(for_upper[order], kind="stable")]
    scale, slack = n * pair.log_total, n * pair.slack
    shrink, grow = math.exp(min(0.0, -scale) - slack), math.exp(max(0.0, -scale) + slack)
    if n == 1 and order.size:
        finite = _single(atoms, for_lower[order], for_upper[order], kind)
        lower[order] += finite[0] * shrink
        upper[order] += np.maximum(finite[1] * grow, SMALLEST)
        return lower, upper
    lower[order], upper[order] = _composed(pair, for_lower[order], for_upper[order], n, kind, buckets, ahead=True)
    # Where hardly any losses lie between small epsilons and those ahead, the latter's tilt says little of the former.
    loose = order[upper[order] - lower[order] > LOOSE * upper[order]]
    if loose.size > 0 and order.size > 1:
        again = _composed(pair, for_lower[loose], for_upper[loose], n, kind, buckets, ahead=False)
        lower[loose], upper[loose] = np.maximum(lower[loose], again[0]), np.minimum(upper[loose], again[1])
    return lower, upper


def _composed(
    pair: _Pair, for_lower: np.ndarray, for_upper: np.ndarray, n: int, kind: str, buckets: int, *, ahead: bool
) -> tuple[np.ndarray, np.ndarray]:
    """What :func:`_literal_and_normalised` says for rising epsilons below n times the largest loss.

    As many epsilons as one composition reaches are served by it. ``ahead``: its tilt is that of a middle one of them,
    instead of the smallest one's.
    """
    lower, upper = np.empty(for_lower.shape), np.empty(for_upper.shape)
    scale, slack = n * pair.log_total, n * pair.slack
    shrink, grow = math.exp(min(0.0, -scale) - slack), math.exp(max(0.0, -scale) + slack)
    rounding, bounds = (connect_the_dots, divergence_bounds) if kind == "adp" else (round_down, tail_bounds)
    order = np.arange(for_upper.size)
    while order.size:
        lowest, highest = float(for_upper[order[0]]), float(for_upper[order[-1]])
        rest, cut = pair, 0.0
        if kind == "adp":
            rest, cut = _cut_large_losses(pair, lowest, highest, n)
        served = for_upper[order] <= lowest + 500.0
        finite = (0.0, 0.0)
        if rest.atoms.size and n * rest.atoms.extremes[1] * (1 + 4 * U) > lowest:
            tilt, window = _tilt_and_window(rest.atoms, lowest, n, buckets)
            end = window.mean + REACH * window.deviation
            if ahead and tilt > 0 and highest > end:
                # Centre the served interval on the epsilons ahead, the smallest one at its lower end.
                tilt, window = _tilt_and_window(rest.atoms, lowest + 0.9 * (end - lowest), n, buckets)
                end = window.mean + REACH * window.deviation
            served &= for_lower[order] <= end
            served[0] = True
            composed = compose(rest.atoms, tilt, window, n, buckets, rounding)
            shift = 2 * n * rest.atoms.loss_error
            finite = bounds(composed, for_upper[order[served]], for_lower[order[served]] + shift)
        now, order = order[served], order[~served]
        infinite = _infinite_mass(rest, n)
        penalty = 1.01 * n * cut * np.exp(np.minimum(for_lower[now] + 2 * n * SUM_TOLERANCE, 700.0))
        lower[now] = infinite[0] + np.maximum(finite[0], 0.0) * shrink - penalty
        upper[now] = infinite[1] + np.maximum(finite[1] * grow, SMALLEST)
    return lower, upper


def _tilt_and_window(atoms: Atoms, epsilon: float, n: int, buckets: int) -> tuple[float, Window]:
    """The saddle point's tilt, less where a lattice of ``buckets`` places could not resolve it, and its window."""
    tilt = saddle_point(atoms, epsilon, n)
    window = choose_window(atoms, tilt, n)
    while tilt * (window.top - window.bottom) * math.sqrt(n) > 2.0 * transform_length(buckets):
        tilt *= 0.5
        window = choose_window(atoms, tilt, n)
    return tilt, window


def _cut_large_losses(pair: _Pair, epsilon: float, highest: float, n: int) -> tuple[_Pair, float]:
    """(pair with its largest losses made infinite, mass of B that this removed).

    Losses far above epsilon count as infinite to all digits, but would widen the window of the composition.
    """
    atoms = pair.atoms
    xp = array_namespace(atoms.losses)
    low, high = atoms.extremes
    if high <= max(4.0, 4.0 * epsilon / n) or high - low < 1.0:
        return pair, 0.0
    bins = 1024
    place = xp.minimum((atoms.losses - low) * (bins / (high - low)), bins - 1).astype(np.int64)
    # One exponential of both: e^-loss alone may overflow where a is tiny.
    of_b = to_host(xp.bincount(place, weights=xp.exp(xp.log(atoms.masses) - atoms.losses), minlength=bins))
    behind = np.cumsum(of_b[::-1])[::-1]
    rest, cut = pair, 0.0
    for _ in range(2):
        # Chernoff's bound says how large delta may be; what is removed must not matter beside it.
        theta = saddle_point(rest.atoms, epsilon, n)
        value, _, variance = cumulant(rest.atoms, theta)
        end = min(highest, epsilon + 2 * REACH * math.sqrt(n * variance))
        if end > epsilon:
            theta = saddle_point(rest.atoms, end, n)
            value, _, _ = cumulant(rest.atoms, theta)
        estimate = min(n * value - theta * end, 0.0)
        estimate = max(estimate, math.log(max(n * rest.infinite, 1e-300)))
        with np.errstate(divide="ignore"):
            behind_log = np.log(behind) + math.log(n) + end
        removable = np.flatnonzero(behind_log <= min(estimate, 0.0) - 25.0)
        if removable.size == 0:
            break
        removed = place >= int(removable[0])
        infinite = pair.infinite + atoms.masses[removed].sum().item()
        rest = replace(pair, atoms=atoms.where(~removed), infinite=infinite)
        cut = float(behind[removable[0]]) * (1 + 1e-9)
        if rest.atoms.size == 0:
            break
    return rest, cut


def _single(atoms: Atoms, for_lower: np.ndarray, for_upper: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Direct sums for n = 1: of a (1 - e^(eps - L)), or of a for ``pdp``, over the losses above epsilon."""
    xp = array_namespace(atoms.losses)
    results = []
    for epsilons, sign in ((for_lower, -1.0), (for_upper, 1.0)):
        losses = atoms.losses + sign * atoms.errors
        error = 1 + sign * (60 + atoms.size) * U
        if kind == "adp" and epsilons.size <= 16:
            results.append(_direct_sums(losses, atoms.masses, epsilons) * error)
            continue
        # Many epsilons: suffix sums in extended precision over sorted losses.
        order = xp.argsort(losses)
        losses, masses = to_host(losses[order]), to_host(atoms.masses[order])
        first = np.searchsorted(losses, epsilons, side="right")
        plain = _suffix_sums(masses.astype(np.longdouble))
        if kind == "pdp":
            results.append((plain[first] * error).astype(np.float64))
            continue
        # Beyond the range of extended floats from the least epsilon, those that any loss exceeds are summed one by one.
        reference = np.longdouble(epsilons.min())
        far = epsilons - reference > FAR
        discounted = _suffix_sums(masses * np.exp(-np.clip(losses - reference, 0, 2 * FAR)))
        one, other = plain[first], discounted[first] * np.exp(np.where(far, 0, epsilons - reference))
        rounding = (atoms.size + 50) * float(np.finfo(np.longdouble).eps)
        value = ((one - other) + sign * rounding * (one + other)).astype(np.float64)
        value[far] = 0.0
        reached = far & (first < losses.size)
        value[reached] = _direct_sums(losses, masses, epsilons[reached])
        results.append(np.maximum(value * error, 0.0))
    return results[0], results[1]


def _direct_sums(losses: Any, masses: Any, epsilons: np.ndarray) -> np.ndarray:
    """sum a (1 - e^(eps - L)) over the losses above each epsilon."""
    xp = array_namespace(losses)
    return np.array([(masses * -xp.expm1(xp.minimum(eps - losses, 0.0))).sum().item() for eps in epsilons])


def _suffix_sums(terms: np.ndarray) -> np.ndarray:
    return np.append(np.cumsum(terms[::-1])[::-1], 0)


def _pair_of_masses(a: Any, b: Any) -> _Pair:
    xp = array_namespace(a, b)
    a, b = _vector(xp, "a", a), _vector(xp, "b", b)
    _equal_lengths("a", a, "b", b)
    _masses(xp, "a", a)
    _masses(xp, "b", b)
    (excess_a, slack_a), (excess_b, slack_b) = _excess(xp, a, "a"), _excess(xp, b, "b")
    log_a, log_b = math.log1p(excess_a), math.log1p(excess_b)
    infinite = a[b == 0].sum().item()
    both = (a > 0) & (b > 0)
    a, b = a[both], b[both]
    losses, errors = loss_of_masses(a, b)
    atoms, tiny = _without_tiny(Atoms(losses, a, errors))
    return _Pair(atoms, infinite, log_a, log_a - log_b, slack_a + slack_b, tiny)


def _without_tiny(atoms: Atoms) -> tuple[Atoms, float]:
    """The atoms of at least ``LEAST_MASS``, and the sum of the others: products with those lose digits, or all."""
    kept = atoms.masses >= LEAST_MASS
    if kept.all().item():
        return atoms, 0.0
    return atoms.where(kept), atoms.masses[~kept].sum().item()


def _vector(xp: Any, name: str, values: Any) -> Any:
    array = _reals(xp, name, values)
    if array.ndim != 1:
        raise ValueError(f"{name}: shape {array.shape} is not allowed; it must be a vector of masses")
    return array


def _equal_lengths(name_a: str, a: Any, name_b: str, b: Any) -> None:
    if a.shape != b.shape:
        raise ValueError(f"{name_b}: length {b.shape[0]} is not allowed; it must be that of {name_a}, {a.shape[0]}")


def _masses(xp: Any, name: str, values: Any) -> None:
    bad = ~(xp.isfinite(values) & (values >= 0))
    if bad.any().item():
        place = xp.argmax(bad).item()
        raise ValueError(
            f"{name}: mass {values[place].item()!r} at index {place} is not allowed; masses must be finite and >= 0"
        )


def _excess(xp: Any, values: Any, name: str) -> tuple[float, float]:
    """(sum - 1, bound on its error)."""
    with np.errstate(over="ignore", invalid="ignore"):
        high, low = _compensated_sum(xp, values)
    excess = (high - 1.0) + low
    if not abs(excess) <= SUM_TOLERANCE:
        raise ValueError(f"{name}: sum {1.0 + excess!r} is not allowed; masses must sum to 1 within {SUM_TOLERANCE:g}")
    return excess, 4 * U


def _compensated_sum(xp: Any, values: Any) -> tuple[float, float]:
    """The sum of non-negative values as a float and the rest that it lacks, by Knuth's two-sum on a binary tree.

    The rests are below U log2(m) times the sum, so that adding them up in floats errs by O((U log2 m)^2).
    """
    high, low = values, xp.zeros_like(values)
    while high.shape[0] > 1:
        if high.shape[0] % 2:
            high, low = (xp.concatenate([part, xp.zeros(1)]) for part in (high, low))
        x, y = high[0::2], high[1::2]
        high = x + y
        from_y = high - x
        low = low[0::2] + low[1::2] + ((x - (high - from_y)) + (y - from_y))
    return high.sum().item(), low.sum().item()


def _compositions(n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 1 <= n <= MAX_COMPOSITIONS:
        raise ValueError(f"compositions: {n!r} is not allowed; it must be a whole number from 1 to {MAX_COMPOSITIONS}")
    return int(n)


def _buckets(buckets: Any) -> None:
    if isinstance(buckets, bool) or not isinstance(buckets, (int, np.integer)) or not 16 <= buckets <= MAX_BUCKETS:
        raise ValueError(f"buckets: {buckets!r} is not allowed; it must be a whole number from 16 to {MAX_BUCKETS}")


def _reals(xp: Any, name: str, values: Any) -> Any:
    """The values as float64; text, complex numbers and ragged lists are refused, not cut to what fits."""
    try:
        array = xp.asarray(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: not an array of real numbers ({error})") from None
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name}: values of type {array.dtype} are not allowed; they must be real numbers")
    return array.astype(np.float64, copy=False)
