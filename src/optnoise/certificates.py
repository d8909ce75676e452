"""Convex optima over noises, each with a proven lower bound: the n = 1 linear program and fixed-order moments.

**The class.** Symmetric cell masses on a grid, monotone from the centre outwards or free, are the convex hull of
N vertices: the uniform masses on the middle 2t cells (monotone), or half a unit on each of two mirrored cells
(free), t = 1..N. So a linear functional <g, p> is least over the class at a vertex, and that minimum is a short
vectorised expression (:func:`vertex_values`). Every bound here has this form, and needs nothing of a solver:

    sum_o max(0, A(o) - gamma B(o)) >= sum_o rho(o) (A(o) - gamma B(o))   for every 0 <= rho <= 1,

whatever rho is. A solver proposes rho and multipliers, :func:`numpy.clip` makes them feasible, and the minimum
over the vertices, less a bound on its own rounding, is the certified value. A solver that stops early makes the
bound weaker, never wrong.

**n = 1** (Geng and Viswanath 2015 pose the problem; on a grid it is a linear program): minimise the utility loss
subject to delta <= d. Its Lagrangian gives, for multipliers nu >= 0,

    u(p) >= min_t [ <c, v_t> + sum_orders nu <g_rho, v_t> ] - sum_orders nu d.

**Moments accountant at a fixed order** lam: M(p) = sum a^(1 + lam) b^(-lam) is jointly convex in (a, b) (the
perspective of x^(1 + lam)), so that D(p) = e^(-lam eps) M(p)^n + n a_inf, which bounds delta from above, is convex
over noises that reach the grid's edge. For a convex D, D(p') >= D(p) + <grad D(p), p' - p> for all p', and the least
right-hand side over the class is one small linear program: the Frank-Wolfe gap (Jaggi 2013).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optnoise.grid import Grid
from optnoise.pairs import ORDERS, in_order, pull_back, worst_case_pair

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class LinearProgramOptimum:
    """The least utility loss at n = 1.

    noise: (2N,) masses whose delta is at most ``delta`` up to rounding. utility: the noise's u_1 or u_2.
    lower: no noise of the class with delta at most the target has a smaller one. delta: the noise's own, the
    larger over the orders.
    """

    noise: np.ndarray
    utility: float
    lower: float
    delta: float


def linear_program(
    grid: Grid,
    *,
    loss: str,
    epsilon: float,
    delta: float,
    monotone: bool = True,
    pair: str = "additive",
    q: float | None = None,
    orders: Sequence[str] = ORDERS,
) -> LinearProgramOptimum:
    """The symmetric noise of least utility loss with delta(epsilon) <= ``delta`` for one release, and a proof.

    loss: ``l1`` or ``l2`` (u_1 or u_2, the units of the query or their square). monotone: masses fall from the
    centre outwards. orders: the constraints that count; for the additive pair they coincide. Raises
    ``ValueError`` for bad input and when no noise on the grid reaches ``delta``.
    """
    import scipy.sparse as sp
    from scipy.optimize import linprog

    _check_privacy(epsilon, delta)
    if pair == "additive":
        orders = orders[:1]
    n = grid.half_cells
    gamma = math.exp(epsilon)
    rows = [_hockey_stick_rows(grid, gamma, order, pair=pair, q=q, monotone=monotone) for order in orders]
    # Variables: N z (so that they are of order one), then one slack for each outcome and order.
    slacks = sum(r.kinked.shape[0] for r in rows)
    budgets, kinks, at = [], [], 0
    for r in rows:
        m = r.kinked.shape[0]
        share = sp.csr_matrix((np.ones(m), (np.zeros(m, int), np.arange(at, at + m))), shape=(1, slacks))
        budgets.append(sp.hstack([sp.csr_matrix(r.linear[None, :]), share]))
        kinks.append(
            sp.hstack([r.kinked, sp.csr_matrix((-np.ones(m), (np.arange(m), np.arange(at, at + m))), (m, slacks))])
        )
        at += m
    blocks = [*budgets, *kinks]
    limits = [delta * n] * len(rows) + [0.0] * slacks
    if monotone:
        rises = sp.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
        blocks.append(sp.hstack([rises, sp.csr_matrix((n - 1, slacks))]))
        limits += [0.0] * (n - 1)
    cost = grid.cost(loss)[n:]
    result = linprog(
        np.concatenate([2 * cost, np.zeros(slacks)]),
        A_ub=sp.vstack(blocks).tocsc(),
        b_ub=np.array(limits),
        A_eq=sp.csr_matrix((np.full(n, 2.0), (np.zeros(n, int), np.arange(n))), (1, n + slacks)),
        b_eq=[n],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if result.status == 2:
        raise ValueError(f"delta: {delta!r} is not allowed; no noise on this grid reaches it at epsilon {epsilon}")
    if result.x is None:
        raise RuntimeError(f"the linear program did not solve: {result.message}")

    noise = _repaired(result.x[:n], monotone)
    deltas = lambda p: max(  # noqa: E731
        hockey_stick(*in_order(*worst_case_pair(p, grid, pair=pair, q=q), order), gamma) for order in orders
    )
    noise = _mixed_to(noise, delta, deltas)

    # The dual: multipliers of the budgets and of the kinks, made feasible by clipping.
    duals = np.maximum(-result.ineqlin.marginals, 0.0)
    nus, rest = duals[: len(rows)], duals[len(rows) :]
    total = vertex_values(grid.cost(loss), grid, monotone)
    at = 0
    for r, nu, order in zip(rows, nus, orders, strict=True):
        m = r.kinked.shape[0]
        rho = r.outcomes(np.minimum(rest[at : at + m], nu), nu)
        at += m
        value, error = certified_values(rho, gamma, grid, order, pair=pair, q=q, monotone=monotone)
        total = total + value - error
    paid = float(nus.sum() * delta)
    lower = float(total.min()) - paid
    lower -= 8 * EPS * (abs(paid) + abs(lower) + float(np.abs(total).min()))
    return LinearProgramOptimum(noise, float(noise @ grid.cost(loss)), lower, deltas(noise))


def hockey_stick(a: np.ndarray, b: np.ndarray, gamma: float) -> float:
    """sum max(0, a - gamma b), summed without rounding of the sum."""
    return math.fsum(np.maximum(a - gamma * b, 0.0))


def vertex_values(g: np.ndarray, grid: Grid, monotone: bool) -> np.ndarray:
    """<g, v_t> for the vertices v_1..v_N of the class, from g of shape (2N,)."""
    n = grid.half_cells
    half = (g[n - 1 :: -1] + g[n:]) / 2
    return np.cumsum(half) / np.arange(1, n + 1) if monotone else half


def certified_values(
    rho: np.ndarray, gamma: float, grid: Grid, order: str, *, pair: str, q: float | None, monotone: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(values, errors): sum_o rho(o) (first - gamma second)(o) at each vertex, and a bound on the rounding.

    rho: shape (2N + k,), not negative. The error of a running sum of t terms is at most t eps times the sum of
    their magnitudes; the few operations before it add a constant number of eps.
    """
    weights = [(rho, -gamma * rho), (rho, gamma * rho)]
    if order == "B/A":
        weights = [pair_of[::-1] for pair_of in weights]
    (da, db), (abs_a, abs_b) = weights
    values = vertex_values(pull_back(da, db, grid, pair=pair, q=q), grid, monotone)
    size = vertex_values(pull_back(abs_a, abs_b, grid, pair=pair, q=q), grid, monotone)
    return values, (grid.half_cells + 16) * EPS * size


@dataclass(frozen=True)
class _Rows:
    """first - gamma second for every outcome, as rows over the half masses, sorted by their sign on the class."""

    kinked: Any  # (m, N) sparse: the sign depends on the noise
    linear: np.ndarray  # (N,) the sum of the rows that are never negative
    kinked_at: np.ndarray
    linear_at: np.ndarray
    size: int

    def outcomes(self, kinked: np.ndarray, linear: float) -> np.ndarray:
        """Multipliers of all outcomes from those of the kinked rows and the one that the linear rows share."""
        rho = np.zeros(self.size)
        rho[self.kinked_at] = kinked
        rho[self.linear_at] = linear
        return rho


def _hockey_stick_rows(grid: Grid, gamma: float, order: str, *, pair: str, q: float | None, monotone: bool) -> _Rows:
    import scipy.sparse as sp

    n, k, size = grid.half_cells, grid.shift, grid.cells + grid.shift
    cells = np.arange(grid.cells)
    half = np.where(cells < n, n - 1 - cells, cells - n)
    ones = np.ones(grid.cells)
    first = sp.csr_matrix((ones, (cells, half)), shape=(size, n))
    shifted = sp.csr_matrix((ones, (cells + k, half)), shape=(size, n))
    second = shifted if pair == "additive" else (1 - q) * first + q * shifted
    if order == "B/A":
        first, second = second, first
    rows = (first - gamma * second).tocsr()
    rows.sum_duplicates()
    # On the class a row is a positive mixture of its values at the vertices: for monotone noise its running sums.
    held = np.diff(rows.indptr) > 0
    starts = rows.indptr[:-1][held]
    values = rows.data
    if monotone:
        running = np.cumsum(values)
        before = np.where(starts > 0, running[starts - 1], 0.0)
        values = running - np.repeat(before, np.diff(rows.indptr)[held])
    tolerance = 1e-12 * gamma
    highest = np.full(size, 0.0)
    lowest = np.full(size, 0.0)
    highest[held] = np.maximum.reduceat(values, starts)
    lowest[held] = np.minimum.reduceat(values, starts)
    linear_at = np.flatnonzero((lowest >= -tolerance) & (highest > tolerance))
    kinked_at = np.flatnonzero((lowest < -tolerance) & (highest > tolerance))
    linear = np.asarray(rows[linear_at].sum(axis=0)).ravel()
    return _Rows(rows[kinked_at], linear, kinked_at, linear_at, size)


def _repaired(half: np.ndarray, monotone: bool) -> np.ndarray:
    """Masses exactly in the class from a solver's half, given from the centre outwards."""
    half = np.maximum(half, 0.0)
    if monotone:
        half = np.maximum.accumulate(half[::-1])[::-1]
    half = half / (2 * math.fsum(half))
    return np.concatenate([half[::-1], half])


def _mixed_to(noise: np.ndarray, delta: float, deltas: Any) -> np.ndarray:
    """Undo a violation within solver tolerance: mix in the uniform noise, as delta is convex in the noise."""
    excess = deltas(noise) - delta
    if excess <= 0:
        return noise
    even = np.full(noise.size, 1 / noise.size)
    room = delta - deltas(even)
    if room <= 0:
        return noise
    share = min(1.0, 1.01 * excess / (excess + room))
    return (1 - share) * noise + share * even


def _check_privacy(epsilon: float, delta: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon: {epsilon!r} is not allowed; it must be finite and at least 0")
    if epsilon > 700:
        raise ValueError(f"epsilon: {epsilon!r} is not allowed here; e^epsilon must be a float64, so at most 700")
    if not 0 <= delta <= 1:
        raise ValueError(f"delta: {delta!r} is not allowed; it must be in [0, 1]")
