"""Lower bounds on the n-fold delta of every noise of a class: the hockey-stick envelope and its linear programs.

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

**n-fold.** Let y be a convex function below d with y(0) = 1. Then y is the hockey-stick curve of a pair (F_A, F_B) with
finitely many likelihood ratios (the second difference of y in gamma gives the masses of F_B, times gamma those of F_A).
Each P of the class has h_P >= y everywhere. By Blackwell's theorem (F_A, F_B) is then a post-processing of P's pair;
so is the n-fold product of the one of the n-fold product of the other, and hockey-stick divergences never grow under
post-processing (Dong, Roth and Su 2022, theorem 2 and section 3). Hence delta_n(P) >= delta_n(F) for every P, and
the evaluator's lower bound on delta_n(F) is a number that no noise of the class beats. In terms of trade-off
curves: P's lies below sup_gamma (1 - d(gamma) - gamma alpha).

**Subsampled pairs.** The curve of the order B/A is 1 - gamma + gamma h(1/gamma), so both orders at gamma >= 1 give the
curve at all gamma > 0. For the additive pair the two orders coincide by symmetry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from optnoise.grid import Grid
from optnoise.pairs import PAIRS, check_sampling_rate

EPS = float(np.finfo(float).eps)
LAMBDA_BITS = 32
GRAIN = 40
MARGIN = 1e-13
"""Subtracted from curves: more than all rounding between a curve and the masses of its pair."""


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
class Envelope:
    """A lower bound on the hockey-stick curve of every noise of the class, and so on its n-fold delta.

    step: the lattice of log-ratios is step * (0..J). curves: by order, (J + 1,) values at gamma = e^(step j), the last
    one 0. Straight lines between them bound h_P from below.
    """

    problem: Problem
    utility: float
    step: float
    curves: dict[str, np.ndarray]

    @cached_property
    def atoms(self) -> tuple[np.ndarray, np.ndarray]:
        """(F_A, F_B): masses at log-ratios step * (-J..J), no mass at infinity; a finite pair for the evaluator."""
        ab = self.curves["A/B"]
        return pair_of_curves(ab, self.curves.get("B/A", ab), self.step)

    def delta(self, epsilon: Any, compositions: int = 1) -> np.ndarray:
        """No noise of the class has a smaller delta(epsilon): the larger over the orders, by the evaluator."""
        from optnoise.accounting import delta_bounds

        a, b = self.atoms
        lower = np.asarray(delta_bounds(a, b, epsilon, compositions).lower)
        if len(self.problem.orders) == 2:
            lower = np.maximum(lower, delta_bounds(b, a, epsilon, compositions).lower)
        return lower


def envelope(
    problem: Problem,
    utility: float,
    *,
    programs: int = 30,
    nodes: int = 180,
    resolution: float = 1.0,
    caps: Sequence[Cap] = (),
    step: float | None = None,
    stretch: float = 1.0,
) -> Envelope:
    """The envelope of all noises of the class with u_1 (``l1``) or u_2 (``l2``) at most ``utility``.

    programs: linear programs per order. nodes: J, lattice nodes above gamma = 1. resolution: refines the grid on
    which the programs propose. caps: assumptions h(gamma) <= most that the noises also meet (bound tightening).
    step: the lattice's; by default J steps reach ``stretch`` times the log-ratio where the envelope vanishes.
    """
    if not (math.isfinite(utility) and utility > 0):
        raise ValueError(f"utility: {utility!r} is not allowed; it must be positive and finite")
    space = discretise(problem, utility, resolution)
    if step is None:
        step = stretch * _highest_ratio(problem, space) / nodes
    curves = {}
    for order in problem.orders:
        at = np.unique(np.round(np.linspace(0, nodes - 1, programs)).astype(int))
        certificates = [space.propose(order, math.exp(step * j), caps) for j in at]
        curves[order] = _half_curve(space, order, at, certificates, step, nodes)
    return Envelope(problem, utility, step, curves)


def pair_of_curves(ab: np.ndarray, ba: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """(F_A, F_B) of the largest convex curve below the two half curves, on log-ratios step * (-J..J)."""
    top = len(ab) - 1
    gamma = np.exp(step * np.arange(-top, top + 1))
    h = np.empty(2 * top + 1)
    h[top:] = np.maximum(ab - MARGIN, 0.0)
    h[-1] = 0.0
    below = gamma[:top]
    h[:top] = (1 - below) + below * np.maximum(ba[:0:-1] - MARGIN, 0.0)
    h[0] = 1 - gamma[0]
    h[top] = max(h[top], ba[0] - MARGIN, 0.0)
    x = np.concatenate([[0.0], gamma])
    y = lower_hull(x, np.concatenate([[1.0], h]))
    slope = np.append(np.diff(y) / np.diff(x), 0.0)
    second = np.maximum(np.diff(slope), 0.0)
    return gamma * second, second


@lru_cache(maxsize=1)
def _compiled_hull() -> Any:
    from numba import njit

    @njit(cache=True)
    def hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        count = 0
        kept = np.empty(x.size, np.int64)
        for i in range(x.size):
            while count >= 2:
                p, m = kept[count - 2], kept[count - 1]
                if (y[m] - y[p]) * (x[i] - x[p]) < (y[i] - y[p]) * (x[m] - x[p]):
                    break
                count -= 1
            kept[count] = i
            count += 1
        out = np.empty(x.size)
        for c in range(count - 1):
            p, m = kept[c], kept[c + 1]
            for i in range(p, m):
                out[i] = y[p] + (y[m] - y[p]) * ((x[i] - x[p]) / (x[m] - x[p]))
        out[x.size - 1] = y[x.size - 1]
        return out

    return hull


def lower_hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Values at ``x`` (rising) of the largest convex function below the points."""
    return _compiled_hull()(x, y)


# The linear programs and the exact evaluation of what they propose.


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
    density: np.ndarray


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
        blocks.append(rows[kept[-1]])
    counts = [len(k) for k in kept]
    slacks = sum(counts)
    columns = n + slacks + 1  # densities, slacks, theta

    starts = np.concatenate([[0], np.cumsum(counts)])
    kinks = sp.hstack([sp.vstack(blocks), -sp.identity(slacks, format="csr"), sp.csr_matrix((slacks, 1))], format="csr")
    falls = sp.hstack(
        [
            sp.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n)),
            sp.csr_matrix((n - 1, slacks + 1)),
        ]
    )
    width = np.diff(space.breaks)
    power = 2 if space.problem.loss == "l1" else 3
    price = np.zeros(columns)
    budget = space.budget
    price[:n] = 2 * np.diff(space.breaks.astype(float) ** power) / power / budget
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
    total[:n] = 2 * width
    scale = 1e3  # the solver's tolerances are absolute
    result = linprog(
        cost * scale,
        A_ub=sp.vstack([kinks, falls, sp.csr_matrix(np.array(limits))]).tocsc(),
        b_ub=np.concatenate([np.zeros(slacks + n - 1), right]),
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
    tail = duals[slacks + n - 1 :]
    return Solution(result.fun / scale, multipliers, tail[1:], tail[0] / budget, result.x[:n])


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


def _half_curve(
    space: Space, order: str, at: np.ndarray, certificates: Sequence[Certificate | None], step: float, nodes: int
) -> np.ndarray:
    """Bounds at all nodes. Each interval of the lattice has one certificate, a mixture of those of the two nearest
    programs (a mixture proves at least the mixture of what they prove); each node takes the lesser of its two.
    """
    gamma = np.exp(step * np.arange(nodes + 1))
    middle = np.arange(nodes) + 0.5
    right = np.clip(np.searchsorted(at, middle), 1, len(at) - 1)
    share = np.clip((middle - at[right - 1]) / (at[right] - at[right - 1]), 0.0, 1.0)
    solved = np.array([c is not None for c in certificates])
    use = solved[right - 1] & solved[right]
    curve = np.full(nodes + 1, math.inf)
    curve[:-1][~use] = 0.0
    curve[1:][~use] = 0.0
    own, right, share = np.flatnonzero(use), right[use], share[use]
    if own.size:

        def mixed(name: str) -> np.ndarray:
            stack = np.array([np.zeros_like(first) if c is None else getattr(c, name) for c in certificates])
            first_share = share.reshape(-1, *([1] * (stack.ndim - 1)))
            return (1 - first_share) * stack[right - 1] + first_share * stack[right]

        names = ("inner", "outer", "fixed", "fixed_size", "mu", "paid")
        values = []
        for name in names:
            first = next(np.asarray(getattr(c, name)) for c in certificates if c is not None)
            values.append(mixed(name))
        certificate = Certificate(*values)
        for end in (own, own + 1):
            alpha, beta = space.problem.combination(gamma[end], order)
            curve[end] = np.minimum(curve[end], space.bound(certificate, alpha, beta))
    curve = np.maximum(curve, 0.0)
    curve[-1] = 0.0
    return curve


def _highest_ratio(problem: Problem, space: Space, negligible: float = 1e-10) -> float:
    """A log-ratio beyond which the envelope is negligible (only the bound's strength depends on it)."""
    width = space.utility if problem.loss == "l1" else math.sqrt(space.utility)
    high = problem.sensitivity / width
    low = high / 8

    def relevant(level: float) -> bool:
        return any(
            (found := solve_program(space, [(order, math.exp(level))], ())) is not None and found.value > negligible
            for order in problem.orders
        )

    while relevant(high) and high < 20:
        low, high = high, 1.5 * high
    for _ in range(5):
        middle = (low + high) / 2
        low, high = (middle, high) if relevant(middle) else (low, middle)
    return high
