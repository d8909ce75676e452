"""Linear programs for one hockey-stick divergence over all unimodal noises, and the exact value of their proofs.

**The class.** All symmetric unimodal noises on [-r, r] (r may be infinite) with E|x| or E x^2 at most u: every
density that is even and does not rise away from zero, a point mass at zero included. It holds every symmetric
monotone vector of cell masses on every grid of that half-width (cells of constant density: same privacy losses,
same utility loss), so bounds found here on a coarse grid hold on all finer ones. Its extreme points are the uniform
distributions U_t on [-t, t], 0 <= t <= r (U_0 the point mass), by Khinchine's theorem.

**One order gamma.** For a pair (first, second) with densities alpha P + beta P_s combined, P_s being P shifted by the
sensitivity s, write h(gamma) = integral of max(0, first - gamma second). For any step function 0 <= lam(x) <= 1 and
any mu >= 0, since u(P) <= u,

    h_P(gamma) >= int lam (alpha P + beta P_s) + mu (u(P) - u)
               >= inf_t [ G(t) / (2 t) + mu c(t) ] - mu u,
    G(t) = alpha int_{-t..t} lam(x) dx + beta int_{-t..t} lam(x + s) dx,   c(t) = t/2 or t^2/3.

G is piecewise linear, so the infimum over all real t is taken exactly, piece by piece. A linear program on a coarse
grid proposes lam and mu; they are clipped and lam is rounded to a multiple of 2^-32 with integer knots, whereby the
integrals are exact in float64; what rounding is left is subtracted. No tolerance of a solver enters. The bound is the
minimum of functions linear in gamma, thus concave in gamma: between two gammas at which the same (lam, mu) is
evaluated it is at least the chord. So the values at the nodes of a lattice, joined by straight lines, bound d(gamma) =
min over the class of h_P(gamma) at every gamma, not only at the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optnoise.grid import Grid
from optnoise.pairs import PAIRS, check_sampling_rate

EPS = float(np.finfo(float).eps)
LAMBDA_BITS = 32
GRAIN = 40
"""Cells per width of the noise, where the sensitivity is not the finer of the two."""


@dataclass(frozen=True)
class Problem:
    """What a bound is about: every symmetric unimodal noise on [-half_width, half_width], its loss and its pair."""

    half_width: float
    sensitivity: float
    loss: str
    pair: str = "additive"
    q: float | None = None

    def __post_init__(self) -> None:
        if self.loss not in ("l1", "l2"):
            raise ValueError(f"loss: {self.loss!r} is not allowed; choose l1 or l2")
        if self.pair not in PAIRS:
            raise ValueError(f"pair: {self.pair!r} is not allowed; choose one of {', '.join(PAIRS)}")
        if self.pair == "subsampled":
            check_sampling_rate(self.q)
        if not self.half_width > 0:
            raise ValueError(f"half_width: {self.half_width!r} is not allowed; it must be positive")
        if not 0 < self.sensitivity < math.inf:
            raise ValueError(f"sensitivity: {self.sensitivity!r} is not allowed; it must be positive and finite")

    @classmethod
    def of(cls, grid: Grid, *, loss: str, pair: str = "additive", q: float | None = None) -> Problem:
        """The problem for a grid's half-width and sensitivity; its cells do not matter."""
        return cls(grid.half_width, grid.sensitivity, loss, pair, q)

    @property
    def orders(self) -> tuple[str, ...]:
        """The orders whose curves differ."""
        return ("A/B",) if self.pair == "additive" else ("A/B", "B/A")

    def combination(self, gamma: Any, order: str) -> tuple[Any, Any]:
        """(alpha, beta) with first - gamma second = alpha P + beta P_s."""
        if self.pair == "additive":
            return np.ones_like(gamma), -gamma
        if order == "A/B":
            return 1 - gamma * (1 - self.q), -gamma * self.q
        return (1 - self.q) - gamma, self.q * np.ones_like(gamma)


@dataclass(frozen=True)
class Cap:
    """The assumption h(gamma) <= ``most`` in ``order``, at node ``node`` of the lattice."""

    order: str
    node: int
    gamma: float
    most: float


@dataclass(frozen=True)
class Certificate:
    """Step functions and multipliers that prove a bound: sum_k weight_k h(gamma_k) + mu u(P) >= tau for every P.

    The first term is the one whose gamma may still be moved; ``fixed`` are the G of the caps, at the knots.
    """

    inner: np.ndarray  # int lam at the knots, for the first term
    outer: np.ndarray  # the same, shifted by s
    fixed: np.ndarray
    fixed_size: np.ndarray
    mu: float
    paid: float  # sum of multiplier * cap


@dataclass(frozen=True)
class Space:
    """A grid in whole units of s / shift on which the linear programs propose: breaks of densities, outcome bins."""

    problem: Problem
    utility: float
    unit: float
    shift: int
    breaks: np.ndarray  # 0 = t_0 < ... < t_n, whole units
    bins: np.ndarray
    limit: float  # the half-width in units, rounded up, or infinity

    @property
    def budget(self) -> float:
        """The utility loss in units."""
        return self.utility / self.unit ** (1 if self.problem.loss == "l1" else 2)

    def cost(self, t: np.ndarray) -> np.ndarray:
        """The utility loss of the uniform noise on [-t, t], in units."""
        return t / 2 if self.problem.loss == "l1" else t * t / 3

    @cached_property
    def overlaps(self) -> tuple[Any, Any]:
        """Sparse (bins, n): how much of each bin, and of each bin moved back by s, lies in each density cell."""
        import scipy.sparse as sp

        edges = np.concatenate([-self.breaks[:0:-1], self.breaks])
        n = len(self.breaks) - 1

        def overlap(offset: int) -> Any:
            moved = edges + offset
            points = np.union1d(self.bins, moved)
            points = points[(points >= max(self.bins[0], moved[0])) & (points <= min(self.bins[-1], moved[-1]))]
            middle = (points[1:] + points[:-1]) / 2
            row = np.searchsorted(self.bins, middle, side="right") - 1
            cell = np.searchsorted(moved, middle, side="right") - 1
            half = np.where(cell < n, n - 1 - cell, cell - n)
            return sp.csr_matrix((np.diff(points), (row, half)), shape=(len(self.bins) - 1, n))

        return overlap(0), overlap(self.shift)

    @cached_property
    def knots(self) -> np.ndarray:
        """Where the G of a step function on the bins can bend, in units; all positive whole numbers."""
        knots = np.unique(np.abs(np.concatenate([self.bins, self.bins - self.shift])))
        knots = knots[(knots > 0) & (knots <= self.limit)]
        last = self.limit if math.isfinite(self.limit) else 2.0 * knots[-1]
        return np.append(knots, last) if last > knots[-1] else knots

    def integrals(self, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int_{-t..t} lam(x) dx, int_{-t..t} lam(x + s) dx) at the knots, exact for lam in multiples of 2^-32."""
        total = np.concatenate([[0.0], np.cumsum(lam * np.diff(self.bins))])
        first, last = self.bins[0], self.bins[-1]
        bin_of = lambda x: np.clip(np.searchsorted(self.bins, x, side="right") - 1, 0, len(lam) - 1)  # noqa: E731

        def primitive(x: np.ndarray) -> np.ndarray:
            at = bin_of(x)  # beyond the bins lam keeps its first or last value
            return total[at] + (x - self.bins[at]) * lam[at]

        assert first < last
        t, s = self.knots, self.shift
        return primitive(t) - primitive(-t), primitive(t + s) - primitive(s - t)

    def propose(self, order: str, gamma: float, caps: Sequence[Cap] = ()) -> Certificate | None:
        """Solve for the noise of least h(gamma) under the caps; the certificate its dual suggests."""
        solution = solve_program(self, [(order, gamma)], caps)
        if solution is None:
            return None
        lam = quantised(solution.multipliers[0])
        inner, outer = self.integrals(lam)
        fixed, size, paid = self._caps(caps, solution.multipliers[1:], solution.prices)
        return Certificate(inner, outer, fixed, size, solution.mu, paid)

    def _caps(
        self, caps: Sequence[Cap], multipliers: Sequence[np.ndarray], prices: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        fixed, size, paid = np.zeros(len(self.knots)), np.zeros(len(self.knots)), 0.0
        for cap, rho, price in zip(caps, multipliers, prices, strict=True):
            if price <= 0:
                continue
            alpha, beta = self.problem.combination(cap.gamma, cap.order)
            inner, outer = self.integrals(quantised(rho / price))
            fixed += price * (alpha * inner + beta * outer)
            size += price * (abs(alpha) * inner + abs(beta) * outer)
            paid += price * cap.most
        return fixed, size, paid

    def bound(self, certificate: Certificate, alpha: Any, beta: Any) -> np.ndarray:
        """inf over all t of [G(t)/(2t) + mu c(t)] less what was paid: a lower bound for each (alpha, beta).

        alpha, beta: shape (m,); the certificate is one for all of them or m stacked ones.
        """
        c, t = certificate, self.knots
        alpha, beta = np.atleast_1d(alpha)[:, None], np.atleast_1d(beta)[:, None]
        mu, paid = np.broadcast_to(c.mu, alpha.shape[0])[:, None], np.broadcast_to(c.paid, alpha.shape[0])
        g = alpha * c.inner + beta * c.outer + c.fixed
        size = (np.abs(alpha) * c.inner + np.abs(beta) * c.outer + c.fixed_size) / (2 * t) + mu * self.cost(t)
        slack = 32 * EPS * size
        best = np.minimum((g / (2 * t) + mu * self.cost(t) - slack).min(axis=1), (g / (2 * t) - slack)[:, 0])
        rise = np.diff(g) / np.diff(t)
        rest = g[:, :-1] - rise * t[:-1]
        upper = t[1:].copy()
        if not math.isfinite(self.limit):
            upper[-1] = math.inf
            best = np.where(mu[:, 0] > 0, best, np.minimum(best, rise[:, -1] / 2 - slack[:, -1]))
        # On a piece, G(t)/(2t) + mu c(t) = rest/(2t) + rise/2 + mu c(t) has its only minimum here, if any.
        curved = np.maximum(rest, 0.0) / np.where(mu > 0, mu, 1.0)
        at = np.sqrt(curved) if self.problem.loss == "l1" else np.cbrt(0.75 * curved)
        inside = (at > t[:-1]) & (at < upper) & (mu > 0)
        at = np.where(inside, at, 1.0)
        value = rest / (2 * at) + rise / 2 + mu * self.cost(at)
        doubt = 2 * (slack[:, :-1] + slack[:, 1:]) + 8 * EPS * np.abs(rise)
        best = np.minimum(best, np.where(inside, value - doubt, math.inf).min(axis=1))
        paid = mu[:, 0] * self.budget + paid
        return best - paid - 8 * EPS * (paid + np.abs(best))


def certified_contradiction(space: Space, caps: Sequence[Cap]) -> bool:
    """Whether a dual combination proves that no noise of the class meets all the caps."""
    solution = solve_program(space, [], caps, elastic=True)
    if solution is None:
        return False
    fixed, size, paid = space._caps(caps, solution.multipliers, solution.prices)
    nothing = np.zeros(len(space.knots))
    certificate = Certificate(nothing, nothing, fixed, size, solution.mu, paid)
    return bool(space.bound(certificate, 0.0, 0.0)[0] > 0)


def quantised(lam: np.ndarray) -> np.ndarray:
    """A step function clipped to [0, 1] and rounded to multiples of 2^-32, so that its integrals are exact."""
    unit = 2.0**LAMBDA_BITS
    return np.round(np.clip(lam, 0.0, 1.0) * unit) / unit


@dataclass(frozen=True)
class Solution:
    """A solved program: multipliers of the outcome bins (objective first, then caps), of the caps, of the budget."""

    value: float
    multipliers: list[np.ndarray]
    prices: np.ndarray
    mu: float


def solve_program(
    space: Space, objective: Sequence[tuple[str, float]], caps: Sequence[Cap], *, elastic: bool = False
) -> Solution | None:
    """min h(gamma) over the class on the grid under the caps, or with ``elastic`` min theta: h <= theta cap for all.

    ``None`` when the solver finds no solution (which proves nothing).
    """
    import scipy.sparse as sp
    from scipy.optimize import linprog

    inner, outer = space.overlaps
    n, bins = inner.shape[1], inner.shape[0]
    terms = [*objective, *((cap.order, cap.gamma) for cap in caps)]
    blocks, kept = [], []
    for order, gamma in terms:
        alpha, beta = space.problem.combination(gamma, order)
        rows = (float(alpha) * inner + float(beta) * outer).tocsr()
        # A row whose running sums from the centre are never positive is never positive on the class.
        running = np.cumsum(rows.toarray(), axis=1)
        kept.append(np.flatnonzero(running.max(axis=1) > 1e-12))
        # The last column is a peak at zero: it fills the bins as the first cell does, and costs nothing. Without it
        # the proofs, which hold for peaks too, would lose a term of first order in the grid.
        blocks.append(sp.hstack([rows, rows[:, [0]]], format="csr")[kept[-1]])
    counts = [len(k) for k in kept]
    slacks = sum(counts)
    peak, n = n, n + 1
    columns = n + slacks + 1  # densities, peak, slacks, theta

    starts = np.concatenate([[0], np.cumsum(counts)])
    kinks = sp.hstack([sp.vstack(blocks), -sp.identity(slacks, format="csr"), sp.csr_matrix((slacks, 1))], format="csr")
    falls = sp.hstack(
        [
            sp.diags_array([-np.ones(peak - 1), np.ones(peak - 1)], offsets=[0, 1], shape=(peak - 1, peak)),
            sp.csr_matrix((peak - 1, slacks + 2)),
        ]
    )
    width = np.diff(space.breaks)
    power = 2 if space.problem.loss == "l1" else 3
    price = np.zeros(columns)
    budget = space.budget
    price[:peak] = 2 * np.diff(space.breaks.astype(float) ** power) / power / budget
    limits = [price]
    right = [1.0]
    for i, cap in enumerate(caps, start=len(objective)):
        row = np.zeros(columns)
        row[n + starts[i] : n + starts[i + 1]] = 1.0
        if elastic:
            row[-1] = -cap.most
        limits.append(row)
        right.append(0.0 if elastic else cap.most)
    cost = np.zeros(columns)
    if elastic:
        cost[-1] = 1.0
    else:
        cost[n : n + starts[len(objective)]] = 1.0
    total = np.zeros(columns)
    total[:n] = 2 * np.append(width, width[0])
    scale = 1e3  # the solver's tolerances are absolute
    result = linprog(
        cost * scale,
        A_ub=sp.vstack([kinks, falls, sp.csr_matrix(np.array(limits))]).tocsc(),
        b_ub=np.concatenate([np.zeros(slacks + peak - 1), right]),
        A_eq=sp.csr_matrix(total[None, :]),
        b_eq=[1.0],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if result.x is None or result.status != 0:
        return None
    duals = np.maximum(-result.ineqlin.marginals / scale, 0.0)
    multipliers = []
    for i, rows in enumerate(kept):
        rho = np.zeros(bins)
        rho[rows] = duals[starts[i] : starts[i + 1]]
        multipliers.append(rho)
    tail = duals[slacks + peak - 1 :]
    return Solution(result.fun / scale, multipliers, tail[1:], tail[0] / budget)


def discretise(problem: Problem, utility: float, resolution: float = 1.0) -> Space:
    """A grid fit for noises of this utility loss: fine to five times its width, then in growing steps."""
    width = utility if problem.loss == "l1" else math.sqrt(utility)
    shift = max(2, math.ceil(resolution * 8 * problem.sensitivity / width))
    if resolution > 1:
        shift = max(shift, math.ceil(2 * resolution))
    unit = problem.sensitivity / shift
    limit = math.ceil(problem.half_width / unit * (1 - 1e-12)) if math.isfinite(problem.half_width) else math.inf
    end = min(limit, math.ceil(60 * width / unit))
    fine = 5 * width / unit
    grain = max(1, int(width / unit / (GRAIN * resolution)))
    breaks = [0]
    while breaks[-1] < end:
        t = breaks[-1]
        breaks.append(min(int(end), t + (grain if t < fine else max(grain, int(0.05 * t / resolution)))))
    breaks = np.array(breaks)
    bins = np.concatenate([-breaks[:0:-1], breaks])
    if problem.pair == "additive":
        # For gamma >= 1 first exceeds gamma second only nearer to the first's centre.
        bins = np.append(bins[bins <= shift / 2], shift // 2 + 1)
    else:
        bins = np.append(bins, breaks[-1] + shift)
    return Space(problem, utility, unit, shift, breaks, bins, limit)
