"""Convex programs over noises with smooth divergences, and the noise of least n-fold delta that they lead to.

A divergence of a worst-case pair has the form sum_o b psi(a/b) with psi convex: psi(x) = x^(1 + lam) for the moments
accountant at order lam, and psi(x) = E[max(0, x - e^(eps - Y))] for the n-fold delta in which n - 1 rounds are held
at a noise whose composed privacy loss is Y. Such a sum is jointly convex in (a, b), thus in the noise, and its Hessian
is sparse: :func:`minimise_divergence` is an interior-point Newton method over symmetric monotone masses with
a limit on the utility loss, at O(N k) per step for a shift of k cells.

For n = 1 and for the moments accountant this is a global optimum, and :func:`moments_optimum` proves it with a
Frank-Wolfe gap. For n > 1, delta_n is not convex; with n - 1 rounds held it is, and its gradient is 1/n of the
full one. So the minimiser of the held problem, the best response, is a direction of descent, and
:func:`best_noise` moves along it as far as the true delta_n falls, from the moments accountant's optimum. Where
the best response gains nothing the noise is stationary; how far it can be from the best is what
:mod:`optnoise.lower_bounds` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optnoise.certificates import EPS, vertex_values
from optnoise.grid import Grid
from optnoise.pairs import in_order, pull_back, worst_case_pair

Psi = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""x -> (psi(x), psi'(x), psi''(x))."""


@dataclass(frozen=True)
class MomentsOptimum:
    """The noise of least moments bound at one order.

    noise: (2N,) masses. delta: its e^(-moment epsilon) M^n + n a_inf, an upper bound on its delta_n. lower: no noise
    of the class has a smaller one.
    """

    noise: np.ndarray
    utility: float
    delta: float
    lower: float


def moments_optimum(
    grid: Grid,
    *,
    loss: str,
    utility: float,
    moment: float,
    epsilon: float,
    compositions: int,
    pair: str = "additive",
    q: float | None = None,
    order: str = "A/B",
) -> MomentsOptimum:
    """Minimise e^(-moment epsilon) M^n + n a_inf over symmetric monotone noises that reach the grid's edge.

    M = sum a^(1 + moment) b^(-moment) over outcomes that both have. utility: the most u_1 or u_2. The noises reach
    the edge because a smaller support is another, again convex, problem: that of a grid with less half-width.
    """
    if not (math.isfinite(moment) and moment > 0):
        raise ValueError(f"moment: {moment!r} is not allowed; it must be positive and finite")
    n = compositions
    space = _Space(grid, loss, utility, pair, q, order)
    psi = power(moment)
    half = _start(space)
    # D = e^(-moment eps) M^n + n a_inf is minimal where kappa M + n a_inf is, kappa = n e^(-moment eps) M^(n-1).
    log_m = math.log(space.divergence(half, psi))
    for _ in range(12):
        log_kappa = math.log(n) - moment * epsilon + (n - 1) * log_m
        half = minimise_divergence(space, psi, half, edge=n * math.exp(min(600.0, -log_kappa)))
        before, log_m = log_m, math.log(space.divergence(half, psi))
        if abs(log_m - before) * n < 1e-7:
            break
    noise = space.noise(half)
    a, b = space.pair_of(noise)
    both = (a > 0) & (b > 0)
    x = a[both] / b[both]
    moment_sum = math.fsum(a[both] * x**moment)
    factor = math.exp(-moment * epsilon) * moment_sum ** (n - 1)
    delta = factor * moment_sum + n * math.fsum(a[b == 0])
    da, db = np.where(b == 0, float(n), 0.0), np.zeros_like(b)
    da[both] = n * factor * (1 + moment) * x**moment
    db[both] = -n * factor * moment * x ** (1 + moment)
    lower = delta + least_change(noise, space.gradient(da, db), grid, loss, utility)
    return MomentsOptimum(noise, float(noise @ grid.cost(loss)), delta, lower)


@dataclass(frozen=True)
class BestNoise:
    """A noise found by best responses, its utility loss, and its n-fold delta and epsilon by the evaluator (upper)."""

    noise: np.ndarray
    utility: float
    epsilon: float
    delta: float
    responses: int


def best_noise(
    grid: Grid,
    *,
    loss: str,
    utility: float,
    compositions: int,
    epsilon: float | None = None,
    delta: float | None = None,
    start: np.ndarray | None = None,
    responses: int = 20,
    gain: float = 1e-4,
    growth: float = 1.4,
) -> BestNoise:
    """A symmetric monotone noise of small n-fold delta at ``epsilon``, or small epsilon at ``delta``; additive pair.

    Give ``epsilon`` or ``delta``. utility: the most u_1 or u_2. start: (2N,) masses; by default the moments
    accountant's optima, of which the best order is taken, tried from 2 upwards by factors of ``growth``.
    responses, gain: stop after so many best responses, or when one improves delta by a smaller share. At n = 1 the
    problem is a linear program and solved as such by :func:`optnoise.certificates.linear_program`.
    """
    from optnoise.accounting import delta_bounds, epsilon_bounds

    if (epsilon is None) == (delta is None):
        raise ValueError(f"epsilon: give either epsilon or delta, not {epsilon!r} and {delta!r}")
    if compositions < 2:
        raise ValueError(f"compositions: {compositions!r} is not allowed here; at n = 1 use linear_program")
    space = _Space(grid, loss, utility, "additive", None, "A/B")
    n = compositions

    def epsilon_of(p: np.ndarray) -> float:
        if epsilon is not None:
            return epsilon
        return float(epsilon_bounds(*space.pair_of(p), delta, n).upper)

    if start is None:
        start = _best_moments(space, n, epsilon, delta, growth)
    p = np.asarray(start, dtype=float)
    if p @ grid.cost(loss) > utility:
        safe = space.noise(_start(space))
        excess = float(p @ grid.cost(loss)) - utility
        share = excess / (float(p @ grid.cost(loss)) - float(safe @ grid.cost(loss)))
        p = (1 - share) * p + share * safe
    done = 0
    for _ in range(responses):
        target = epsilon_of(p)
        if not math.isfinite(target):
            break
        before = _Composed.of(space.pair_of(p), n)
        psi = held_rounds(_Composed.of(space.pair_of(p), n - 1), target)
        half = minimise_divergence(space, psi, p[grid.half_cells :], accuracy=1e-7)
        answer = space.noise(half)
        now, best = before.delta(target), None
        for share in 0.5 ** np.arange(7):
            trial = (1 - share) * p + share * answer
            value = _Composed.of(space.pair_of(trial), n).delta(target)
            if value < (now if best is None else best[0]):
                best = (value, trial)
            elif best is not None:
                break
        if best is None:
            break
        done += 1
        p = best[1]
        if best[0] > now * (1 - gain):
            break
    p = space.noise(p[grid.half_cells :])
    final = epsilon_of(p)
    upper = float(delta_bounds(*space.pair_of(p), final, n).upper)
    return BestNoise(p, float(p @ grid.cost(loss)), final, upper, done)


def _best_moments(space: _Space, n: int, epsilon: float | None, delta: float | None, growth: float) -> np.ndarray:
    """The moments optimum whose n-fold privacy is best, by a short search over orders."""
    from optnoise.accounting import delta_bounds, epsilon_bounds

    half = None
    found: tuple[float, np.ndarray] | None = None
    moment = 2.0
    while moment < 200:
        half = minimise_divergence(space, power(moment), _start(space) if half is None else half, accuracy=1e-6)
        p = space.noise(half)
        pair = space.pair_of(p)
        if epsilon is not None:
            score = float(delta_bounds(*pair, epsilon, n).upper)
        else:
            score = float(epsilon_bounds(*pair, delta, n).upper)
        if found is not None and score >= found[0]:
            break
        if found is None or score < found[0]:
            found = (score, p)
        moment *= growth
    return found[1]


@dataclass(frozen=True)
class _Composed:
    """A composed privacy loss distribution on a lattice, for directions and line searches (not for claims)."""

    losses: np.ndarray
    masses: np.ndarray
    infinite: float

    @classmethod
    def of(cls, pair: tuple[np.ndarray, np.ndarray], n: int, buckets: int = 2000) -> _Composed:
        """The n-fold distribution of a pair, losses split between ``2 buckets + 1`` lattice points."""
        from scipy.fft import next_fast_len

        a, b = pair
        both = (a > 0) & (b > 0)
        loss = np.log(a[both] / b[both])
        reach = float(np.abs(loss).max())
        # Losses with next to no mass must not coarsen the lattice.
        heavy = np.abs(loss)[a[both] > 1e-14]
        reach = max(float(heavy.max()), 1e-6) if heavy.size else reach
        step = reach / buckets
        place = np.clip(loss, -reach, reach) / step
        low = np.clip(np.floor(place), -buckets, buckets - 1)
        u = (place - low) * step
        up = -np.expm1(-u) / -math.expm1(-step)
        index = low.astype(int) + buckets
        size = 2 * buckets + 1
        x = np.bincount(index, a[both] * (1 - up), size) + np.bincount(index + 1, a[both] * up, size)
        full = 2 * n * buckets + 1
        length = next_fast_len(full, real=True)
        c = np.maximum(np.fft.irfft(np.fft.rfft(x, length) ** n, length)[:full], 0.0)
        infinite = -math.expm1(n * math.log1p(-min(1.0, math.fsum(a[~both]))))
        return cls(step * np.arange(-n * buckets, n * buckets + 1), c, infinite)

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at e^epsilon."""
        over = self.losses > epsilon
        return float(self.masses[over] @ -np.expm1(epsilon - self.losses[over])) + self.infinite


def held_rounds(others: _Composed, epsilon: float) -> Psi:
    """psi(x) = E max(0, x - e^(eps - Y)), Y being the composed loss of the rounds that are held."""
    y, mass = others.losses, others.masses
    tail = np.cumsum(mass[::-1])[::-1]
    tilted = np.cumsum((mass * np.exp(-y))[::-1])[::-1]
    density = mass / (y[1] - y[0])

    def psi(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        z = epsilon - np.log(x)
        above = np.interp(z, y, tail)
        value = x * above - math.exp(epsilon) * np.interp(z, y, tilted)
        curve = np.interp(z, y, density) / x
        return np.maximum(value, 0.0) + 1e-12 * x * x, above + 2e-12 * x, curve + 2e-12

    return psi


def least_change(noise: np.ndarray, g: np.ndarray, grid: Grid, loss: str, utility: float) -> float:
    """A lower bound on min <g, p' - noise> over symmetric monotone p' with utility loss <= ``utility``.

    The Frank-Wolfe gap with its sign changed: max over mu >= 0 of min_t [<g, v_t> + mu (c_t - u)] - <g, noise>; any mu
    gives a valid bound, so the search for the best one need not be exact.
    """
    values = vertex_values(g, grid, True)
    cost = vertex_values(grid.cost(loss), grid, True)
    error = (grid.half_cells + 16) * EPS * vertex_values(np.abs(g), grid, True)

    def bound(mu: float) -> float:
        return float((values - error + mu * (cost - utility)).min())

    high = float(values.max() - values.min()) / max(utility - cost[0], 1e-3 * utility) + 1e-300
    low = 0.0
    for _ in range(200):
        third = (high - low) / 3
        if bound(low + third) < bound(high - third):
            low += third
        else:
            high -= third
    at = math.fsum(g * noise)
    return max(bound(low), bound(high), bound(0.0)) - at - 16 * EPS * abs(at)


def power(moment: float) -> Psi:
    """psi(x) = x^(1 + moment): the moments accountant."""

    def psi(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        base = x ** (moment - 1)
        return base * x * x, (1 + moment) * base * x, moment * (1 + moment) * base

    return psi


@dataclass(frozen=True)
class _Space:
    """Symmetric monotone noises on a grid by their half masses from the centre, with the pair maps as matrices."""

    grid: Grid
    loss: str
    utility: float
    pair: str
    q: float | None
    order: str

    def noise(self, half: np.ndarray) -> np.ndarray:
        half = np.maximum.accumulate(half[::-1])[::-1]
        p = np.concatenate([half[::-1], half])
        return p / math.fsum(p)

    def pair_of(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return in_order(*worst_case_pair(p, self.grid, pair=self.pair, q=self.q), self.order)

    def gradient(self, da: np.ndarray, db: np.ndarray) -> np.ndarray:
        da, db = in_order(da, db, self.order)
        return pull_back(da, db, self.grid, pair=self.pair, q=self.q)

    def matrices(self) -> tuple[Any, Any, np.ndarray]:
        """Sparse (outcomes, N) maps of half masses to a and to b where both exist, and the row of a_inf."""
        import scipy.sparse as sp

        grid = self.grid
        n, k, size = grid.half_cells, grid.shift, grid.cells + grid.shift
        cells = np.arange(grid.cells)
        half = np.where(cells < n, n - 1 - cells, cells - n)
        ones = np.ones(grid.cells)
        first = sp.csr_matrix((ones, (cells, half)), shape=(size, n))
        shifted = sp.csr_matrix((ones, (cells + k, half)), shape=(size, n))
        second = shifted if self.pair == "additive" else (1 - self.q) * first + self.q * shifted
        if self.order == "B/A":
            first, second = second, first
        has_a, has_b = np.diff(first.indptr) > 0, np.diff(second.indptr) > 0
        edge = np.asarray(first[has_a & ~has_b].sum(axis=0)).ravel()
        return first[has_a & has_b].tocsr(), second[has_a & has_b].tocsr(), edge

    def divergence(self, half: np.ndarray, psi: Psi) -> float:
        a, b = self.pair_of(self.noise(half))
        both = (a > 0) & (b > 0)
        return math.fsum(b[both] * psi(a[both] / b[both])[0])


def _start(space: _Space) -> np.ndarray:
    """Half masses well inside the class: a two-sided geometric noise of a little less than the utility allowed."""
    cost = space.grid.cost(space.loss)[space.grid.half_cells :]
    i = np.arange(space.grid.half_cells)
    even = float(cost.mean())
    target = 0.9 * min(space.utility, even)

    def half_of(rate: float) -> np.ndarray:
        half = np.exp(-rate * i) + 1e-12
        return half / (2 * half.sum())

    low, high = 0.0, 50.0
    for _ in range(80):
        middle = (low + high) / 2
        if 2 * float(half_of(middle) @ cost) > target:
            low = middle
        else:
            high = middle
    half = half_of(high)
    if 2 * float(half @ cost) >= space.utility:
        raise ValueError(
            f"utility: {space.utility!r} is not allowed; no monotone noise on this grid has so small a utility loss"
        )
    # Strictly falling masses, so that the barrier is finite.
    ramp = (space.grid.half_cells - i).astype(float)
    ramp /= 2 * ramp.sum()
    share = 1e-4 * min(1.0, (space.utility - 2 * float(half @ cost)) / (2 * float(ramp @ cost)))
    return (1 - share) * half + share * ramp


def minimise_divergence(
    space: _Space, psi: Psi, start: np.ndarray, *, edge: float = 0.0, accuracy: float = 1e-8
) -> np.ndarray:
    """Half masses that minimise sum b psi(a/b) + edge a_inf over the class, from a point inside it.

    A barrier method: minus the logarithms of the falls z_i - z_(i+1), of z_N and of the slack in the utility loss, with
    Newton steps on a banded Hessian. accuracy: the barrier's share of the value at the end.
    """
    import scipy.sparse as sp
    from scipy.sparse.linalg import splu

    first, second, edge_row = space.matrices()
    n = space.grid.half_cells
    cost = 2 * space.grid.cost(space.loss)[n:]
    falls = sp.diags_array([np.ones(n), -np.ones(n - 1)], offsets=[0, 1], shape=(n, n)).tocsr()
    ones = np.full(n, 2.0)

    def value(half: np.ndarray, tau: float) -> float:
        fall, room = falls @ half, space.utility - cost @ half
        if fall.min() <= 0 or room <= 0:
            return math.inf
        a, b = first @ half, second @ half
        with np.errstate(over="ignore"):  # a step much too long has an infinite value, and is halved
            total = float(b @ psi(a / b)[0]) + edge * float(edge_row @ half)
        return total - tau * (float(np.log(fall).sum()) + math.log(room))

    half = _interior(space, start, falls, cost)
    a, b = first @ half, second @ half
    size = abs(float(b @ psi(a / b)[0])) + edge * float(edge_row @ half)
    tau = 1e-2 * size / n
    least = accuracy * size / n
    central = half
    while True:
        decrement = math.inf
        for _ in range(40):
            a, b = first @ half, second @ half
            x = a / b
            f, slope, curve = psi(x)
            fall, room = falls @ half, space.utility - cost @ half
            gradient = first.T @ slope + second.T @ (f - x * slope) + edge * edge_row
            gradient = gradient - tau * (falls.T @ (1 / fall)) + tau / room * cost
            # The Hessian of b psi(a/b) is psi''/b (da - x db)^2.
            direction = first - sp.diags_array(x) @ second
            hessian = (
                direction.T @ sp.diags_array(curve / b) @ direction + falls.T @ sp.diags_array(tau / fall**2) @ falls
            )
            # Masses differ by many orders of magnitude: solve for relative changes.
            relative = sp.diags_array(half)
            factors = splu(sp.csc_matrix(relative @ hessian @ relative))
            solved = half[:, None] * factors.solve(half[:, None] * np.column_stack([-gradient, cost, ones]))
            # The slack's term is one rank, the sum of the masses is kept: two dual variables.
            weight = tau / room**2
            small = np.array(
                [
                    [1 / weight + cost @ solved[:, 1], cost @ solved[:, 2]],
                    [ones @ solved[:, 1], ones @ solved[:, 2]],
                ]
            )
            y = np.linalg.solve(small, np.array([cost @ solved[:, 0], ones @ solved[:, 0]]))
            step = solved[:, 0] - solved[:, 1:] @ y
            # The divergence is linear along the noise itself, where the solve is least accurate: keep the sum exactly.
            step -= (ones @ step) * half
            decrement = -float(gradient @ step)
            if not decrement > 1e-3 * tau:
                break
            now, length = value(half, tau), 1.0
            shrink = falls @ step
            tight = shrink < 0
            if tight.any():
                length = min(1.0, 0.99 * float((fall[tight] / -shrink[tight]).min()))
            while length > 1e-10 and not value(half + length * step, tau) <= now - 0.1 * length * decrement:
                length /= 2
            if length <= 1e-10:
                break
            half = half + length * step
            half /= ones @ half
        if not -tau <= decrement <= tau:
            return central  # rounding rules from here on; the last central point is the more accurate one
        central = half
        if tau <= least:
            return half
        tau = max(least, tau / 8)


def _interior(space: _Space, start: np.ndarray, falls: Any, cost: np.ndarray) -> np.ndarray:
    """The start, moved strictly inside the class where it touches the boundary."""
    safe = _start(space)
    share = 1e-3
    half = start / (2 * start.sum())
    half = (1 - share) * half + share * safe
    while (falls @ half).min() <= 0 or cost @ half >= space.utility:
        share = 2 * share
        if share > 1:
            return safe
        half = (1 - share) * half + share * safe
    return half
