"""Lower bounds on the n-fold delta of every noise of a class: the hockey-stick envelope and its linear programs.

The class of noises and the bound d(gamma) for one gamma are those of :mod:`optnoise.envelope_programs`: symmetric
unimodal noises on [-r, r] with E|x| or E x^2 at most u, and the values of proofs that linear programs propose. The
bound of one proof (lam, mu) is the minimum of functions linear in gamma, thus concave in gamma: between two gammas at
which the same proof is evaluated it is at least the chord. Mixtures of proofs are proofs. So the values at the nodes
of a lattice, joined by straight lines, bound d(gamma) = min over the class of h_P(gamma) at every gamma.

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
from typing import Any, NamedTuple

import numpy as np

from optnoise.envelope_programs import Cap, Certificate, Problem, Space, discretise, solve_program

U = 2.0**-53
MOST_RATIO = 40.0  # log-ratios that are looked at; beyond, the curve is taken to be 0


class Pair(NamedTuple):
    """A pair (F_A, F_B) of distributions with finitely many likelihood ratios, as exact real numbers.

    At the ratio gamma_j = ``gamma[j]`` F_B has mass ``right[j]`` and F_A gamma_j times as much; at 1/gamma_j F_A has
    mass ``left[j]`` and F_B gamma_j times as much. All else of both is at one more point, of a ratio near 1.
    """

    gamma: np.ndarray  # (J,), rising, above 1
    right: np.ndarray
    left: np.ndarray

    def first(self, order: str) -> np.ndarray:
        """Masses, (2J + 1,) by rising ratio, none above those of the order's first distribution."""
        high, low = (self.right, self.left) if order == "A/B" else (self.left, self.right)
        high = self.gamma * high * (1 - 4 * U)
        rest = 1 - (high.sum() + low.sum()) * (1 + (2 * len(high) + 16) * U)
        return np.concatenate([low[::-1], [max(0.0, rest - U)], high])

    def second(self, order: str) -> np.ndarray:
        """Masses, (2J + 1,), none below those of the order's second distribution."""
        high, low = (self.right, self.left) if order == "A/B" else (self.left, self.right)
        low = self.gamma * low * (1 + 4 * U)
        rest = 1 - (high.sum() + low.sum()) * (1 - (2 * len(high) + 16) * U)
        return np.concatenate([low[::-1], [rest + U], high])


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
    def pair(self) -> Pair:
        """(F_A, F_B), whose curve is nowhere above this bound's."""
        return pair_of_curves(self.curves["A/B"], self.curves.get("B/A", self.curves["A/B"]), self.step)

    def atoms(self, order: str) -> tuple[np.ndarray, np.ndarray]:
        """(first, second): a finite pair for the evaluator, in the order asked for, at least as private as F."""
        return self.pair.first(order), self.pair.second(order)

    def delta(self, epsilon: Any, compositions: int = 1) -> np.ndarray:
        """No noise of the class has a smaller delta(epsilon): the larger over the orders, by the evaluator."""
        from optnoise.accounting import delta_bounds

        lower = [delta_bounds(*self.atoms(order), epsilon, compositions).lower for order in self.problem.orders]
        return np.max(lower, axis=0)


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


def pair_of_curves(ab: np.ndarray, ba: np.ndarray, step: float) -> Pair:
    """The pair of the largest convex curve below both half curves, (J + 1,) each, its rounding errors taken off.

    Each half is made convex, and its second differences are the masses beyond ratio 1, in its own gamma: through
    h(gamma) = 1 - gamma + gamma h(1/gamma) the lesser half would lose all digits of a small delta. The halves meet at
    gamma = 1, where both bound the same h(1), in a convex corner if what they leave for ratio 1 is not negative;
    v is the largest value there for which that holds.

    Rounding: the pair is exact by definition, whatever its floats. Its curve is a sum of positive terms, evaluated at
    every node to within a share ``slack`` and compared with the bounds, then scaled down to be below each of them; it
    is convex, so that it is below their straight lines as well. What is left at ratio 1 differs between F_A and F_B by
    the rounding of h(1); that it leaves the next node alone is what the second slack is for.
    """
    gamma = np.exp(step * np.arange(len(ab)))
    nodes, gap = len(ab) - 1, gamma - 1
    top = max(ab[0], ba[0], 0.0)
    # The slopes on both sides of gamma = 1 and the mass left there: 1 - v + slope + slope >= 0.
    steep = [(half[1:] / gap[1:], 1 / gap[1:]) for half in (ab, ba)]
    if ab is ba:
        v = ((2 * steep[0][0] + 1) / (2 * steep[0][1] + 1)).min()
    else:
        (rise, pull), (other_rise, other_pull) = steep
        v = ((rise[:, None] + other_rise + 1) / (pull[:, None] + other_pull + 1)).min()
    v = min(top, float(v))
    slack = 32 * U * (nodes + 1 / min(1.0, step))
    masses, fits = [], 1.0
    for half in (ab,) if ab is ba else (ab, ba):
        curve = np.concatenate([[v], np.maximum(half[1:], 0.0)])
        curve[-1] = 0.0
        slopes = np.append(np.diff(lower_hull(gamma, curve)) / np.diff(gamma), 0.0)
        mass = np.maximum(np.diff(slopes), 0.0)
        beyond = np.cumsum(mass[::-1])[::-1]
        found = np.cumsum((np.diff(gamma) * beyond)[::-1])[::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = min(fits, float(np.where(found > 0, np.append(top, curve[1:-1]) / found, 1.0).min()))
        masses.append(mass)
    fits *= (1 - slack) * (1 - 2 * slack / gap[1])
    right, left = (max(0.0, fits) * masses[i] for i in (0, -1))
    return Pair(gamma[1:], right, left)


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


def _highest_ratio(problem: Problem, space: Space, negligible: float = 1e-8) -> float:
    """A log-ratio beyond which the envelope is negligible (only the bound's strength depends on it)."""
    width = space.utility if problem.loss == "l1" else math.sqrt(space.utility)
    high = min(problem.sensitivity / width, MOST_RATIO / 2)
    low = high / 8

    def relevant(level: float) -> bool:
        return any(
            (found := solve_program(space, [(order, math.exp(level))], ())) is not None and found.value > negligible
            for order in problem.orders
        )

    while high < MOST_RATIO and relevant(high):
        low, high = high, min(1.5 * high, MOST_RATIO)
    for _ in range(5):
        middle = (low + high) / 2
        low, high = (middle, high) if relevant(middle) else (low, middle)
    return high
