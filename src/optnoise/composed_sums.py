"""Lower and upper bounds on sums over a composed privacy loss distribution: delta, or the tail of the loss.

What is added and subtracted here is argued in :mod:`optnoise.composition`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from optnoise.backend import array_namespace, to_host
from optnoise.composition import RAISED, Composed
from optnoise.pld import U

DEVIATIONS = 1.1
"""The c of Hoeffding's inequality; c / (1 - 2 e^(-2 c^2)) is near its least."""

CONFIDENCE = 1 / (1 - 2 * math.exp(-2 * DEVIATIONS**2))
"""kappa, what the inequality costs."""


def divergence_bounds(
    composed: Composed, for_upper: np.ndarray, for_lower: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) bounds on the hockey-stick divergence of finite losses, shaped as the epsilons given.

    The upper bound is read at ``for_upper``, the lower one at ``for_lower``, less the lattice's gap.
    """
    for_lower = for_lower + RAISED * sum(count * step for step, count in composed.roundings)
    lowest = float(min(for_upper.min(), for_lower.min()))
    if _hopeless(composed, lowest):
        return np.zeros(for_lower.shape), np.ones(for_upper.shape)
    table = _SuffixSums(composed, lowest)
    lower = table.lower(for_lower, hockey_stick=True) - table.lattice_gap(for_lower)
    return lower, table.upper(for_upper, hockey_stick=True)


def tail_bounds(composed: Composed, for_upper: np.ndarray, for_lower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) bounds on P[sum L > eps] from a lattice of losses rounded down."""
    for_upper = for_upper - sum(count * step for step, count in composed.roundings) * (1 + 8 * U)
    lowest = float(min(for_upper.min(), for_lower.min()))
    if _hopeless(composed, lowest):
        return np.zeros(for_lower.shape), np.ones(for_upper.shape)
    table = _SuffixSums(composed, lowest)
    return table.lower(for_lower, hockey_stick=False), table.upper(for_upper, hockey_stick=False)


def _hopeless(composed: Composed, lowest: float) -> bool:
    """Whether only trivial bounds are left: too few buckets for the tilt, or numbers beyond the range of floats."""
    reference = max(lowest, composed.start * composed.step)
    exponents = composed.log_scale - composed.tilt * reference, composed.tilt * (reference - lowest)
    return not (composed.growth <= 1.0 and max(exponents) <= 300.0)


class _SuffixSums:
    """Suffix sums over the window of c_J e^(-theta (l - reference)) and of the same times e^-(l - reference).

    They give sum_J c_J f(l_J - eps) for any number of epsilons. Each is a sum of non-negative terms, added in
    sequence, so its relative error is at most its number of terms times U.
    """

    def __init__(self, composed: Composed, lowest: float) -> None:
        self.composed = composed
        step, theta = composed.step, composed.tilt
        xp = array_namespace(composed.tilted)
        self.length = composed.tilted.shape[0]
        self.reference = max(lowest, composed.start * step)
        # Below the reference only the lattice gap looks; there e^(-theta l) must not explode.
        below = sum(self.spread(i, count)[0] for i, (_, count) in enumerate(composed.roundings)) + 4.0
        below = min(below, 50.0 / (theta * step)) if theta > 0 else below
        first = math.floor(self.reference / step - below) - composed.start
        self.first = min(max(first, 0), self.length)
        losses = (composed.start + xp.arange(self.first, self.length, dtype=np.float64)) * step - self.reference
        plain = composed.tilted[self.first :] * xp.exp(-theta * losses)
        self.plain = _suffix_sums(plain)
        # Read at epsilons from the reference on only: what is below it has no part in those sums, and may not overflow.
        self.discounted = _suffix_sums(plain * xp.exp(-xp.maximum(losses, 0.0)))
        largest = max(abs(composed.start), abs(composed.start + self.length)) * step + abs(self.reference)
        exponents = (abs(composed.log_scale) + (theta + 1) * largest + 50) * 8 * U
        # Of each suffix sum: adding in sequence, and the exponentials.
        self.summing = (self.length + 20) * U + exponents
        self.growth = math.exp(composed.growth + exponents)
        self.scale = math.exp(composed.log_scale - theta * self.reference)

    def spread(self, stage: int, rounded: float) -> tuple[float, float]:
        """(half-width in final steps, confidence) of what ``rounded`` roundings of a stage add up to: w_m, kappa."""
        step, _ = self.composed.roundings[stage]
        likely = DEVIATIONS * math.sqrt(rounded) + rounded * step / 8
        width, confidence = (rounded, 1.0) if rounded <= likely else (likely, CONFIDENCE)
        return width * step / self.composed.step, confidence

    def position(self, epsilon: np.ndarray) -> np.ndarray:
        """Place in the window of the first loss above epsilon (it may lie outside the window)."""
        step = self.composed.step
        index = np.floor(epsilon / step)
        index = index + ((index + 1) * step <= epsilon) - (index * step > epsilon)
        return np.clip(index + 1 - self.composed.start, -1e15, 1e15).astype(np.int64)

    def read(self, table: np.ndarray, position: np.ndarray) -> np.ndarray:
        return table[np.clip(position - self.first, 0, self.length - self.first)]

    def decay(self, epsilon: np.ndarray) -> np.ndarray:
        return np.exp(np.minimum(-self.composed.tilt * (epsilon - self.reference), 700.0))

    def edge(self, place: int) -> float:
        return (self.composed.start + place) * self.composed.step

    def value(self, epsilon: np.ndarray, hockey_stick: bool) -> tuple[np.ndarray, np.ndarray]:
        """(sum over the window, its error from sums and entries), before scaling."""
        composed = self.composed
        theta, step = composed.tilt, composed.step
        position = self.position(epsilon)
        value = plain = self.read(self.plain, position)
        error = plain * self.summing
        places = np.clip(self.length - position, 0, self.length)
        first_norm, second_norm = places, np.sqrt(places)
        if theta > 0:
            # Sums over a lattice of e^(-theta x) f(x) and its square: sup e^(-theta x/2) f(x) <= 1/(1 + theta/2).
            rate = theta if hockey_stick else 2 * theta
            first_norm = np.minimum(first_norm, -1 / math.expm1(-rate / 2 * step))
            second_norm = np.minimum(second_norm, math.sqrt(-1 / math.expm1(-rate * step)))
        height = 1.0
        if hockey_stick:
            height = np.minimum(1 / (1 + theta / 2), places * step)
            discounted = self.read(self.discounted, position) * np.exp(epsilon - self.reference)
            value, error = plain - discounted, (plain + discounted) * self.summing
        noise = np.minimum(composed.entry_error * first_norm, composed.norm_error * second_norm)
        return value, error + noise * height * self.decay(epsilon)

    def upper(self, epsilon: np.ndarray, hockey_stick: bool) -> np.ndarray:
        composed = self.composed
        value, error = self.value(epsilon, hockey_stick)
        value = np.maximum(value, 0.0) + error
        value += composed.above * self.decay(np.maximum(epsilon, self.edge(self.length)))
        value += np.where(epsilon < self.edge(0), composed.outside * self.decay(epsilon), 0.0)
        value += composed.stray * self.decay(epsilon) / (1 + composed.tilt if hockey_stick else 1.0)
        return self.scale * self.growth * value

    def lower(self, epsilon: np.ndarray, hockey_stick: bool) -> np.ndarray:
        composed = self.composed
        value, error = self.value(epsilon, hockey_stick)
        misplaced = composed.outside + composed.stray
        value = value - error - misplaced * self.decay(epsilon) / (1 + composed.tilt if hockey_stick else 1.0)
        return np.maximum(value, 0.0) * self.scale / self.growth

    def lattice_gap(self, epsilon: np.ndarray) -> np.ndarray:
        """The most by which the lattices raised the divergence: the module docstring's sums over m."""
        composed = self.composed
        position = self.position(epsilon)
        gap = np.zeros(epsilon.shape)
        step, count = composed.roundings[-1]
        blocks = np.unique(np.ceil(np.geomspace(1, count, 25)).astype(np.int64)) if count > 1 else np.array([1])
        blocks[-1] = count
        # The bound grows with m: within a block of m its value at the block's end is used.
        for m, times in zip(blocks.tolist(), np.diff(blocks, prepend=0).tolist(), strict=True):
            width, confidence = self.spread(-1, m)
            gap += 0.25 * step * times * confidence * self.interval(epsilon, position, width)
        if len(composed.roundings) == 2:
            # Roundings of the first stage, seen through all those of the second.
            seen, seen_confidence = self.spread(-1, count)
            step, count = composed.roundings[0]
            width, confidence = self.spread(0, count)
            width += seen + step / composed.step
            gap += 0.25 * step * count * confidence * seen_confidence * self.interval(epsilon, position, width)
        return gap

    def interval(self, epsilon: np.ndarray, position: np.ndarray, width: float) -> np.ndarray:
        """Bound on the composed lattice's P[|R - eps| <= (width + 1) step]."""
        composed = self.composed
        reach = math.floor(width + 1)
        below = position - 1 - reach
        inside = self.read(self.plain, below)
        error = inside * self.summing
        inside = inside - self.read(self.plain, position + reach + 1)
        noise = min(composed.entry_error * (2 * reach + 3), composed.norm_error * math.sqrt(2 * reach + 3))
        noise += composed.outside + composed.stray
        error = error + noise * self.decay(epsilon - (reach + 1) * composed.step)
        probability = np.minimum((inside + error) * self.scale * self.growth, 1.0)
        # Where the table does not reach down far enough, only the trivial bound is left.
        return np.where((below < self.first) & (self.first > 0), 1.0, probability)


def _suffix_sums(terms: Any) -> np.ndarray:
    """sums[i] = terms[i] + terms[i+1] + ..., with a final 0, on the host."""
    xp = array_namespace(terms)
    return np.append(to_host(xp.cumsum(terms[::-1])[::-1]), 0.0)
