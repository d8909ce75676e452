"""Bound tightening: prove that no noise of a class reaches a target delta under n compositions.

Suppose that a noise P with u(P) <= u and delta_n(P) <= target exists. Its hockey-stick curve h lies above the
envelope y (:mod:`optnoise.envelope`) and is convex, so at each node gamma_k it also lies above its tangent there:

    h >= max(y, v + m (gamma - gamma_k)),   v = h(gamma_k), m the slope.

The right-hand side is again a curve whose n-fold delta P cannot beat (same theorem). It rises with v. Let cap_k be
the largest v at which some slope m leaves the n-fold delta at or below the target: then h(gamma_k) <= cap_k. Slopes
are scanned in intervals; left of gamma_k the flattest slope of an interval is used, right of it the steepest, so that
the line lies below every tangent with a slope in it.

The caps are convex constraints on P, and go into the linear programs, all nodes at once. Two things can happen:

- the programs under the caps contradict each other (a dual combination sum_k nu_k h(gamma_k) + mu u(P) >= tau with
  sum_k nu_k cap_k + mu u < tau): P does not exist;
- the envelope of the noises that meet the caps is higher; if its n-fold delta exceeds the target, P does not exist;
  if not, it gives lower caps, and the argument repeats.

Every cap is a consequence of the assumption, every bound is a dual value evaluated as in the envelope, so a
contradiction is a proof whatever the solver did. Compositions are by a tilted FFT on the lattice of log-ratios, on
which the curves' pairs live exactly; its rounding is bounded and subtracted. For the additive pair a curve has a slope
of at least -(1 - h(1))/2 at gamma > 1, by h(gamma) = 1 - gamma + gamma h(1/gamma) and convexity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optnoise.envelope import Envelope, envelope, lower_hull, pair_of_curves
from optnoise.envelope_programs import Cap, Problem, certified_contradiction, discretise

Curves = dict[str, np.ndarray]
UNIT_ROUNDOFF = 2.0**-53
MOST_EXPONENT = 600.0  # of a tilted mass; any tilt gives a bound


@dataclass(frozen=True)
class Effort:
    """How hard to try; it decides the strength of bounds, never whether they hold.

    programs: linear programs per envelope. nodes: lattice nodes. keys: nodes that get caps. slopes: intervals of
    tangent slopes. rounds: of caps. resolution: of the grid on which programs propose.
    """

    programs: int = 13
    nodes: int = 96
    keys: int = 12
    slopes: int = 24
    rounds: int = 8
    resolution: float = 1.0


QUICK = Effort(programs=10, nodes=72, keys=9, slopes=16, rounds=2, resolution=0.4)
"""A few seconds per attempt: for a whole frontier."""


@dataclass(frozen=True)
class Attempt:
    """``impossible``: proven that no noise of the class has delta_n <= the target. ``rounds`` of tightening used."""

    impossible: bool
    rounds: int
    floor: float


def prove_impossible(
    problem: Problem,
    utility: float,
    *,
    delta: float,
    epsilon: float,
    compositions: int,
    effort: Effort | None = None,
    first: Envelope | None = None,
) -> Attempt:
    """Try to prove that no noise with utility loss at most ``utility`` has delta_n(epsilon) <= ``delta``.

    first: the plain envelope (:func:`plain_envelope`), where several targets share it. ``floor`` of the result is
    the last envelope's n-fold delta (under the assumption, once caps are in use). A result that is not
    ``impossible`` says nothing.
    """
    effort = effort or Effort()
    space = discretise(problem, utility, effort.resolution)
    first = first or plain_envelope(problem, utility, effort)
    step, curves = first.step, first.curves
    fold = lattice_delta(first, epsilon, compositions)
    caps: list[Cap] = []
    floor = fold(curves)
    for attempt in range(effort.rounds + 1):
        if floor > delta:
            return Attempt(True, attempt, floor)
        if attempt == effort.rounds:
            break
        before = {(cap.order, cap.node): cap.most for cap in caps}
        caps = []
        for order in problem.orders:
            lowest = 0 if problem.pair == "additive" else 1
            for node in np.unique(np.linspace(lowest, effort.nodes - 2, effort.keys).astype(int)):
                most = cap_at(fold, convex(curves, step), order, int(node), step, delta, effort.slopes)
                most = min(most, before.get((order, int(node)), 1.0))
                caps.append(Cap(order, int(node), math.exp(step * node), most))
        if certified_contradiction(space, caps):
            return Attempt(True, attempt + 1, floor)
        if attempt + 1 == effort.rounds:
            break
        tighter = envelope(
            problem,
            utility,
            programs=effort.programs,
            nodes=effort.nodes,
            resolution=effort.resolution,
            caps=caps,
            step=step,
        )
        last, floor, curves = floor, fold(tighter.curves), tighter.curves
        if attempt > 0 and floor < 1.03 * last:
            break
    return Attempt(False, attempt, floor)


def plain_envelope(problem: Problem, utility: float, effort: Effort) -> Envelope:
    """The envelope that tightening starts from: its lattice leaves room above, where caps raise the curve."""
    return envelope(
        problem,
        utility,
        programs=effort.programs,
        nodes=effort.nodes,
        resolution=effort.resolution,
        stretch=1.3,
    )


def lattice_delta(bound: Envelope, epsilon: float, n: int) -> Callable[[Curves], float]:
    """A function from curves on the lattice of ``bound`` to a lower bound on their n-fold delta, larger order."""
    from scipy.fft import next_fast_len

    step, top = bound.step, len(bound.curves["A/B"]) - 1
    losses = step * np.arange(-top, top + 1)
    size = 2 * n * top + 1
    length = next_fast_len(size, real=True)
    composed = step * np.arange(-n * top, n * top + 1)
    # The masses below have ratios that are off e^losses by a few roundings each; an epsilon larger by more is safe.
    epsilon = epsilon + 16 * UNIT_ROUNDOFF * (n + n * top * step + abs(epsilon))
    counted = composed > epsilon
    excess = composed[counted] - epsilon
    error_of_transform = 10 * (math.log2(length) + 2) * UNIT_ROUNDOFF
    both = len(bound.problem.orders) == 2

    def tilt_of(masses: np.ndarray) -> float:
        mean = float(masses @ losses)
        spread = float(masses @ (losses - mean) ** 2)
        best = max(0.0, (epsilon / n - mean) / spread) if spread > 0 else 0.0
        return min(best, MOST_EXPONENT / float(np.abs(losses - epsilon / n).max()))

    def prepare(tilt: float) -> tuple[np.ndarray, np.ndarray]:
        return np.exp(tilt * (losses - epsilon / n)), -np.expm1(-excess) * np.exp(-tilt * excess)

    def one_order(masses: np.ndarray, state: list) -> float:
        if not state:
            state.extend(prepare(tilt_of(masses)))
        weights, payoff = state
        tilted = masses * weights
        total = tilted.sum()
        if total <= 0:
            return 0.0
        spectrum = np.fft.rfft(tilted / total, length)
        c = np.fft.irfft(spectrum**n, length)[:size][counted]
        # Each entry is off by at most n e ||x||_2 + 4 n U + e ||c||_2 (Higham, section 24; |X| <= 1).
        error = (n + 1) * error_of_transform * (1 + 4 * n * error_of_transform) * 2
        value = float(c @ payoff) - error * float(payoff.sum())
        if value <= 0:
            return 0.0
        logarithm = math.log(value) + n * math.log(total)
        lost = 64 * n * top + 8 * (abs(math.log(value)) + n * abs(math.log(total)))
        return math.exp(min(0.0, logarithm)) * (1 - lost * UNIT_ROUNDOFF)

    states: tuple[list, list] = ([], [])

    def delta(curves: Curves) -> float:
        pair = pair_of_curves(curves["A/B"], curves.get("B/A", curves["A/B"]), step)
        value = one_order(pair.first("A/B"), states[0])
        return max(value, one_order(pair.first("B/A"), states[1])) if both else value

    return delta


def convex(curves: Curves, step: float) -> Curves:
    """The half curves made convex, each on its own half."""
    return {order: lower_hull(np.exp(step * np.arange(len(c))), c) for order, c in curves.items()}


def cap_at(
    fold: Callable[[Curves], float],
    curves: Curves,
    order: str,
    node: int,
    step: float,
    target: float,
    slopes: int,
) -> float:
    """An upper bound on h at a node for every noise above ``curves`` whose n-fold delta is at most ``target``."""
    curve = curves[order]
    gamma = np.exp(step * np.arange(len(curve)))
    symmetric = len(curves) == 1
    steepest = -(1 - curve[0]) / 2 if symmetric else -1.0
    grid = np.linspace(steepest, 0.0, slopes + 1)
    order_of_trial = list(range(slopes))

    def possible(v: float) -> bool:
        if symmetric and node == 0:
            slope = -(1 - v) / 2  # the only slope that a symmetric curve can have there
            return fold(curves | {order: raised(curve, gamma, 0, v, slope, slope)}) <= target
        for place, i in enumerate(order_of_trial):
            trial = raised(curve, gamma, node, v, grid[i + 1], grid[i], symmetric=symmetric)
            if fold(curves | {order: trial}) <= target:
                order_of_trial.insert(0, order_of_trial.pop(place))
                return True
        return False

    low, high = float(curve[node]), 1.0
    growth = max(0.05 * low, 1e-3 * float(curve[0]), 1e-6)
    while low + growth < 1.0:
        if not possible(low + growth):
            high = low + growth
            break
        low, growth = low + growth, 2 * growth
    if high == 1.0 and possible(1.0):
        return 1.0
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    return high


def raised(
    curve: np.ndarray,
    gamma: np.ndarray,
    node: int,
    v: float,
    flatter: float,
    steeper: float,
    *,
    symmetric: bool = True,
) -> np.ndarray:
    """``curve`` raised to lines through (gamma[node], v): slope ``flatter`` to the left, ``steeper`` to the right.

    A line is moved (left: flatter still, right: steeper still) to leave the curve exactly at a node, so that straight
    pieces between nodes do not exceed the larger of the two. Where there is no such node, v itself is given up. A
    ``symmetric`` curve goes on below gamma = 1 as its own mirror image, so that a line may reach gamma = 1 above it;
    otherwise the other half is left alone, and the line must leave the curve at gamma = 1 at the latest.
    """
    out = curve.copy()
    below = np.flatnonzero(flatter * (gamma[:node] - gamma[node]) + v <= curve[:node])
    start = below[-1] + 1 if below.size else 0
    left = start < node or node == 0
    if start < node:
        slope = (v - curve[start]) / (gamma[node] - gamma[start]) if below.size or not symmetric else flatter
        out[start:node] = np.maximum(curve[start:node], v + slope * (gamma[start:node] - gamma[node]))
    after = np.flatnonzero(steeper * (gamma[node + 1 :] - gamma[node]) + v <= curve[node + 1 :])
    end = node + (after[0] if after.size else len(curve) - 1 - node)  # the last node that the line is above
    right = end > node
    if right:
        slope = (curve[end] - v) / (gamma[end] - gamma[node])
        inner = slice(node + 1, end + 1)
        out[inner] = np.maximum(curve[inner], v + slope * (gamma[inner] - gamma[node]))
    if left and right:
        out[node] = max(v, curve[node])
    return out
